import { z } from 'zod';
import { toTime } from '../../api/operations/fields.ts';
import { standingOf } from '../../api/standing.ts';
import { KINDS } from '../../queue/delivery.ts';
import type { LaneView } from '../../queue/insight.ts';
import { account, type HostCall, hostOperation } from './operation.ts';

// Whether all is well, in a sentence, and what needs the operator.

const need = z.object({
  what: z.enum(['listener', 'queue', 'routes', 'store', 'certificate', 'endpoint', 'task', 'log']),
  level: z.enum(['warning', 'fault']),
  text: z.string(),
  account: account.nullable(),
  url: z.string().nullable(),
  since: z.string().nullable(),
});

type Need = Pick<z.output<typeof need>, 'what' | 'level' | 'text'> & {
  /** Of an endpoint. */
  readonly account?: string;
  readonly url?: string;
  readonly since?: number | null;
};

const MOST_NEEDS = 50;

const overview = hostOperation({
  path: '/host/overview',
  access: 'host',
  summary: 'Returns the state of the host in a sentence, and what needs attention.',
  params: {},
  returns: z.object({
    hostname: z.string(),
    version: z.string(),
    started_at: z.string(),
    state: z.enum(['ok', 'warning', 'fault']),
    text: z.string(),
    takes_mail: z.boolean(),
    waiting: z.int(),
    oldest_at: z.string().nullable(),
    endpoints_down: z.int(),
    dead: z.int(),
    needs: z.array(need),
  }),
  async handle(_, call) {
    const { names, settings, startedAt } = call;
    const { ok, checks } = await call.health.ready();
    const down = call.dispatcher.lanes().filter(isDown);
    const { waiting, dead, oldest_at: oldestAt } = await standingOf(call.metrics, call.now());
    const all: Need[] = [
      ...needsOfChecks(checks),
      ...(await needOfExpiry(call)),
      ...(await needOfName(call)),
      ...down.map(needOfLane),
      ...needsOfTasks(call),
      ...needsOfLog(call),
    ];
    const needs = all
      .toSorted((a, b) => Number(b.level === 'fault') - Number(a.level === 'fault'))
      .slice(0, MOST_NEEDS);
    const nameOf = await names(needs.flatMap((one) => one.account ?? []));
    return {
      hostname: settings.hostname,
      version: settings.version,
      started_at: toTime(startedAt),
      state: needs[0]?.level ?? ('ok' as const),
      text:
        `${ok && needs.length === 0 ? 'All systems normal' : ok ? 'Accepting mail' : 'Not accepting mail'}. ` +
        `${sentenceOf(down, waiting, oldestAt === null ? 0 : (call.now() - oldestAt) / 1000)}`,
      takes_mail: ok,
      waiting,
      oldest_at: toTime(oldestAt),
      endpoints_down: down.length,
      dead,
      needs: needs.map(({ account, url = null, since, ...rest }) => ({
        ...rest,
        account: account === undefined ? null : nameOf(account),
        url,
        since: toTime(since),
      })),
    };
  },
});

/** Webhooks that are down: the mail server of one recipient raises no alarm. */
const isDown = ({ kind, breaker }: LaneView) => KINDS[kind].endpoint === 'webhook' && breaker !== 'up';

function sentenceOf(down: readonly LaneView[], waiting: number, oldestS: number): string {
  const [first] = down.toSorted((a, b) => (a.since ?? 0) - (b.since ?? 0));
  if (first) {
    const theirs = down.reduce((sum, one) => sum + one.waiting, 0);
    const since = first.since === null ? '' : ` since ${toTime(first.since).slice(0, 16)}`;
    return down.length === 1
      ? `1 endpoint is down${since}; ${deliveries(theirs, 'waits', 'wait')} for it.`
      : `${down.length} endpoints are down, the first${since}; ${deliveries(theirs, 'waits', 'wait')} for them.`;
  }
  if (waiting === 0) return 'The queue is empty.';
  return `${deliveries(waiting, 'waits', 'wait')}, the oldest for ${toSpan(oldestS)}.`;
}

const deliveries = (count: number, one: string, many: string): string =>
  count === 0 ? `no deliveries ${many}` : count === 1 ? `1 delivery ${one}` : `${count} deliveries ${many}`;

function toSpan(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

const CHECKS: Readonly<Record<string, Pick<Need, 'what' | 'level'> & { readonly name: string }>> = {
  smtp: { what: 'listener', level: 'fault', name: 'The SMTP listener' },
  submission: { what: 'listener', level: 'fault', name: 'The listener for submission' },
  spool: { what: 'queue', level: 'fault', name: 'The queue' },
  routes: { what: 'routes', level: 'fault', name: 'The routes' },
  store: { what: 'store', level: 'warning', name: 'The store' },
};

/** The problems found by the health check. */
function needsOfChecks(checks: Readonly<Record<string, string>>): Need[] {
  return Object.entries(checks).flatMap(([check, words]) => {
    const known = CHECKS[check];
    if (!known || words === 'ok') return [];
    const { what, level, name } = known;
    const text =
      what === 'store' ? 'The store is unavailable. Mail for known routes is still accepted.' : `${name}: ${words}.`;
    return [{ what, level, text }];
  });
}

const DAY_S = 86_400;
const SOON_DAYS = 14;

async function needOfName({ metrics }: HostCall): Promise<Need[]> {
  const covers = (await metrics.level('postern_tls_certificate_covers_hostname')) ?? [];
  if (covers.every(([, value]) => value !== 0)) return [];
  const text = 'The TLS certificate is for another host name: senders that verify it do not deliver.';
  return [{ what: 'certificate', level: 'warning', text }];
}

async function needOfExpiry({ metrics, now }: HostCall): Promise<Need[]> {
  const ends = (await metrics.level('postern_tls_certificate_not_after_timestamp_seconds')) ?? [];
  // The listeners share one certificate.
  const end = Math.min(...ends.map(([, at]) => at));
  const days = Math.floor((end - now() / 1000) / DAY_S);
  if (days >= SOON_DAYS) return [];
  const on = toTime(end * 1000);
  const [level, text] =
    days < 0
      ? (['fault', `The TLS certificate ended on ${on}.`] as const)
      : (['warning', `The TLS certificate ends in ${days} ${days === 1 ? 'day' : 'days'}, on ${on}.`] as const);
  return [{ what: 'certificate', level, text }];
}

function needOfLane({ account, url, breaker, since, waiting, last }: LaneView): Need {
  const said =
    last === null ? '' : last.result.kind === 'answered' ? ` (HTTP ${last.result.status})` : ` (${last.result.error})`;
  const state = breaker === 'gone' ? 'says that it is gone' : 'is down';
  const text = `The endpoint ${state}${said}; ${deliveries(waiting, 'waits', 'wait')} for it.`;
  return { what: 'endpoint', level: 'warning', text, account, url, since };
}

function needsOfTasks({ host }: HostCall): Need[] {
  return host.tasks().flatMap(({ name, last }): Need[] => {
    if (last?.result !== 'failed') return [];
    return [{ what: 'task', level: 'warning', text: `The task ${name} failed: ${last.text}.`, since: last.at }];
  });
}

const HOUR_MS = 3_600_000;

/** Errors in the log of the last hour. */
function needsOfLog({ host, now }: HostCall): Need[] {
  const errors = host.log.counts().filter(({ level, lastAt }) => level === 'error' && lastAt > now() - HOUR_MS);
  return errors.map(({ event, count, lastAt }) => {
    const times = count === 1 ? 'once' : `${count} times`;
    const text = `The log has the error ${event} ${times} since the start, last at ${toTime(lastAt)}.`;
    return { what: 'log', level: 'warning', text };
  });
}

export const overviewOperations = [overview];
