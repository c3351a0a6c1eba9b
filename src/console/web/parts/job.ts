import { effect, signal } from '@preact/signals';
import { call, chosenAccount, Failed } from '../call.ts';
import { h } from '../h.ts';
import type { Answer, Params } from '../operations.ts';
import { messageOf, session } from '../session.ts';
import { Button } from './elements.ts';
import { count, number } from './text.ts';

// Work that goes on after the answer. It is shown on every screen until somebody has seen its end, and found again
// when the page is loaded anew.

export interface Job {
  readonly operation: 'jobs/info' | 'host/job';
  readonly id: string;
  /** The action, and the number of deliveries. */
  readonly what: string;
  readonly one: string;
  readonly several: string;
  readonly of: number;
  /** The call that goes on where it stopped; undefined if it has to be asked for anew. */
  readonly again?: {
    readonly operation: MailChange;
    readonly params: Params<MailChange>;
  };
}

type MailChange = 'inbound/drop' | 'inbound/replay' | 'inbound/retry';

/** The job of a change of messages of the account, which can be resumed. */
export function jobOfMail(what: string, operation: MailChange, params: Params<MailChange>): Omit<Job, 'id' | 'of'> {
  return { operation: 'jobs/info', what, one: 'message', several: 'messages', again: { operation, params } };
}

interface Followed {
  readonly job: Job;
  /** Of which account it is, if there is a choice. */
  readonly account: string | undefined;
  readonly progress?: Answer<Job['operation']>;
  /** Why nothing is known of it. */
  readonly failed?: string;
}

const STORED = 'postern-job';
const EVERY_MS = 1_000;

export const followed = signal<Followed | undefined>(remembered());

function remembered(): Followed | undefined {
  try {
    return JSON.parse(window.sessionStorage.getItem(STORED) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}

/** Shows how far a job is from now on. */
export function followJob(job: Job): void {
  followed.value = { job, account: chosenAccount.value };
}

export function forgetJob(): void {
  followed.value = undefined;
}

/** Asks every second until the job has ended. */
export function keepFollowing(): void {
  effect(() => {
    const { job, account } = followed.value ?? {};
    if (job === undefined) return window.sessionStorage.removeItem(STORED);
    window.sessionStorage.setItem(STORED, JSON.stringify({ job, account }));
  });
  effect(() => {
    if (session.value.state !== 'in' || !isRunning(followed.value)) return;
    const timer = setTimeout(ask, EVERY_MS);
    return () => clearTimeout(timer);
  });
}

const isRunning = (one: Followed | undefined) =>
  one !== undefined && (one.progress === undefined || one.progress.state === 'running') && one.failed === undefined;

async function ask(): Promise<void> {
  const asked = followed.value;
  if (!asked) return;
  const next = asked.account === chosenAccount.value ? await look(asked) : { ...asked };
  // Somebody may have closed it, or begun another.
  if (followed.value === asked) followed.value = next;
}

async function look(one: Followed): Promise<Followed> {
  try {
    return { ...one, progress: await call(one.job.operation, { id: one.job.id }) };
  } catch (error) {
    // A server that does not answer for a while does not end a job.
    const isAway = error instanceof Failed && (error.status === 0 || error.status >= 500 || error.status === 429);
    return isAway ? { ...one } : { ...one, failed: messageOf(error) };
  }
}

/** Goes on where a job has stopped. */
async function goOn({ job }: Followed): Promise<void> {
  if (!job.again) return;
  const { operation, params } = job.again;
  const { job: id, matched } = await call(operation, { ...params, at_most: job.of });
  if (id === null) forgetJob();
  else followJob({ ...job, id, of: matched });
}

/** How far the job is; nothing if there is none. */
export function JobProgress() {
  const one = followed.value;
  if (!one) return null;
  const { job, progress, failed } = one;
  const { done, of, state, error } = progress ?? { done: 0, of: job.of, state: 'running', error: null };
  const wrong = failed ?? error;
  return h('div', [
    done !== null && h('progress', { max: of, value: done, 'aria-label': job.what }),
    h('p', { role: isRunning(one) ? undefined : 'status' }, [
      state === 'done'
        ? `${job.what} complete: ${count(done ?? of, job.one, job.several)}.`
        : done === null
          ? `${job.what} interrupted.`
          : `${job.what}: ${number(done)} of ${number(of)}.`,
      isRunning(one) && ' You can leave this page.',
    ]),
    wrong !== null && wrong !== undefined && h('p.wrong', wrong),
    wrong !== null && wrong !== undefined && job.again && h(Button, { label: 'Resume', onPress: () => goOn(one) }),
  ]);
}

/** The same on every screen. */
export function JobBar() {
  const one = followed.value;
  if (!one) return null;
  return h('div.banner.job', [
    h(JobProgress),
    !isRunning(one) && h(Button, { label: 'Close', kind: 'quiet', onPress: forgetJob }),
  ]);
}
