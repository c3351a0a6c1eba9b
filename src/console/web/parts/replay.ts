import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { type Loaded, useLoad } from '../load.ts';
import type { Answer } from '../operations.ts';
import type { Endpoint, EndpointDetail } from '../records.ts';
import { account, may } from '../session.ts';
import { Bars, Button, Dialog, Fault, Time } from './elements.ts';
import { followJob, JobProgress } from './job.ts';
import { isFailing } from './states.ts';
import { count, number, shortUrl, span } from './text.ts';

// Replays of many: first the number, then the button with the number in it.

/** Which mail: by id, or all that a search finds. */
export type Wish =
  | { readonly ids: readonly string[] }
  | {
      readonly query: string;
      readonly state: 'dead' | 'delivered' | 'dropped' | 'held';
      /** Endpoints whose mail is left out. */
      readonly except_urls?: readonly string[];
    };

const paramsOf = (wish: Wish) => ({ ...wish, ...('query' in wish && { query: wish.query || '*' }) });

const replay = (wish: Wish, dryRun: boolean, stop?: AbortSignal) =>
  call('inbound/replay', { ...paramsOf(wish), ...(dryRun && { dry_run: true }) }, stop);

export function ReplayDialog({
  wish: given,
  isHeld = 'query' in given && given.state === 'held',
  onClose,
}: {
  readonly wish: Wish;
  /** What is held was not posted before: its replay is a release. */
  readonly isHeld?: boolean;
  onClose(): void;
}): ComponentChildren {
  const word = isHeld ? 'Release' : 'Replay';
  const [leftOut, setLeftOut] = useState<readonly string[]>([]);
  const wish = 'query' in given && leftOut.length > 0 ? { ...given, except_urls: leftOut } : given;
  const opened = useOnce();
  const asked = useLoad(`replay ${account.value?.id} ${JSON.stringify(wish)} ${opened}`, (stop) =>
    replay(wish, true, stop),
  );
  const where = useWhere(given, opened);
  const [answer, setAnswer] = useState<Answer<'inbound/replay'>>();
  const start = async () => {
    const started = await replay(wish, false);
    if (started.job !== null)
      followJob({
        operation: 'jobs/info',
        id: started.job,
        what: word,
        one: 'message',
        several: 'messages',
        of: started.matched,
        again: { operation: 'inbound/replay', params: paramsOf(wish) },
      });
    setAnswer(started);
  };
  return h(Dialog, { title: word, onClose }, [
    answer
      ? h(Result, { answer, onClose })
      : h(Question, { word, asked, where, leftOut, onLeave: (url) => setLeftOut([...leftOut, url]), start, onClose }),
  ]);
}

/** A number of this dialog, so that an old answer is not shown. */
function useOnce(): number {
  const [number] = useState(() => Date.now());
  return number;
}

/** An endpoint of the mail that is meant. */
interface Where {
  readonly url: string;
  readonly count: number;
  readonly oldestAt: string;
  readonly endpoint: Endpoint | undefined;
  /** Of the largest ones. */
  readonly detail: EndpointDetail | undefined;
}

/** So many are asked how fast they are. */
const ASKED = 3;

/** Where the mail goes, the most first; undefined until that is known, or for single mails. */
function useWhere(wish: Wish, opened: number): readonly Where[] | undefined {
  const query = 'query' in wish ? `${wish.query} state:${wish.state}` : undefined;
  const { data } = useLoad(query === undefined ? undefined : `where ${account.value?.id} ${query} ${opened}`, (stop) =>
    readWhere(query ?? '', stop),
  );
  return data;
}

async function readWhere(query: string, stop: AbortSignal): Promise<readonly Where[]> {
  const [{ causes }, endpoints] = await Promise.all([
    call('inbound/causes', { query }, stop),
    may('endpoints/list') ? call('endpoints/list', {}, stop) : [],
  ]);
  const found = new Map<string, Where>();
  for (const { url, count, oldest_at: oldestAt } of causes) {
    const known = found.get(url);
    found.set(url, {
      url,
      count: count + (known?.count ?? 0),
      oldestAt: known && known.oldestAt < oldestAt ? known.oldestAt : oldestAt,
      endpoint: endpoints.find((one) => one.url === url),
      detail: undefined,
    });
  }
  const all = [...found.values()].sort((a, b) => b.count - a.count);
  // One after the other: the server answers one such question of an account at a time.
  for (const [i, one] of all.slice(0, ASKED).entries()) {
    const detail = one.endpoint && (await call('endpoints/info', { url: one.url }, stop).catch(() => undefined));
    all[i] = { ...one, detail };
  }
  return all;
}

/** How long it takes, if each endpoint answers as it did in the last day; undefined if that is not known. */
function takes(where: readonly Where[]): number | undefined {
  const each = where.map(({ count, detail }) => {
    const { p50_ms: p50 = null } = detail?.day ?? {};
    const { most_in_flight: places = null } = detail ?? {};
    return p50 === null || places === null ? undefined : (count * p50) / places;
  });
  const known = each.filter((one) => one !== undefined);
  return known.length < each.length || known.length === 0 ? undefined : Math.max(...known);
}

function Question({
  word,
  asked,
  where,
  leftOut,
  onLeave,
  start,
  onClose,
}: {
  readonly word: 'Replay' | 'Release';
  readonly asked: Loaded<Answer<'inbound/replay'>>;
  readonly where: readonly Where[] | undefined;
  readonly leftOut: readonly string[];
  onLeave(url: string): void;
  start(): Promise<void>;
  onClose(): void;
}): ComponentChildren {
  const { data, error, failedAt, again } = asked;
  if (error) return h(Fault, { error, since: failedAt, again });
  if (!data) return h(Bars, { rows: 2 });
  const { matched, forgotten } = data;
  const left = forgotten > 0 && `${count(forgotten, 'other message')} can no longer be replayed: content deleted.`;
  if (matched === 0) return h('div', [h('p', 'Nothing to replay'), left && h('p', left)]);
  return h('div', [
    h('p', [
      word === 'Release'
        ? `${count(matched, 'message')} will be posted.`
        : `${count(matched, 'message')} will be posted again, with the same webhook-id as before.`,
    ]),
    where && h(Facts, { where: where.filter(({ url }) => !leftOut.includes(url)) }),
    left && h('p.faint', left),
    h(Troubled, { where, leftOut, onLeave }),
    h('p.buttons', [
      h(Button, { label: 'Cancel', onPress: onClose }),
      h(Button, { label: `${word} ${number(matched)}`, kind: 'main', icon: 'replay', onPress: start }),
    ]),
  ]);
}

/** Where the mail goes, how old it is, and how long it takes. */
function Facts({ where }: { readonly where: readonly Where[] }): ComponentChildren {
  const [first] = where;
  if (!first) return null;
  const oldest = where.reduce((before, { oldestAt }) => (oldestAt < before ? oldestAt : before), first.oldestAt);
  const ms = takes(where);
  return h('p.faint', [
    where.length === 1 ? `To ${shortUrl(first.url)}` : `To ${count(where.length, 'endpoint')}`,
    '. Oldest: ',
    h(Time, { at: oldest }),
    '.',
    ms !== undefined && ms >= 1_000 && ` Takes about ${span(ms)} at the speed of the last 24 hours.`,
  ]);
}

const MOST_TROUBLED = 5;

/** Endpoints that would not take it now. */
function Troubled({
  where = [],
  leftOut,
  onLeave,
}: {
  readonly where: readonly Where[] | undefined;
  readonly leftOut: readonly string[];
  onLeave(url: string): void;
}): ComponentChildren {
  const troubled = where.filter(
    ({ url, endpoint }) =>
      endpoint && !leftOut.includes(url) && (endpoint.breaker !== 'up' || endpoint.paused || isFailing(endpoint)),
  );
  return h('div', { role: 'status' }, [
    leftOut.map((url) => h('p.faint', { key: url }, `${shortUrl(url)} is excluded.`)),
    troubled.slice(0, MOST_TROUBLED).map(({ url, count: many, endpoint }) =>
      h('p.row', { key: url }, [
        `${shortUrl(url)} is ${endpoint?.paused ? 'paused' : endpoint?.breaker === 'up' ? 'failing' : 'still down'} (${count(many, 'message')}). `,
        // With one endpoint there is nothing else to replay.
        where.length > 1 + leftOut.length && h(Button, { label: 'Exclude', onPress: () => onLeave(url) }),
      ]),
    ),
  ]);
}

function Result({
  answer,
  onClose,
}: {
  readonly answer: Answer<'inbound/replay'>;
  onClose(): void;
}): ComponentChildren {
  return h('div', { role: answer.job === null ? 'status' : undefined }, [
    answer.job === null ? h('p', `${count(answer.replayed, 'message')} queued for delivery.`) : h(JobProgress),
    h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: onClose })]),
  ]);
}
