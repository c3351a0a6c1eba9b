import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall, useLoad } from '../load.ts';
import type { Answer } from '../operations.ts';
import type { Endpoint, EndpointDetail } from '../records.ts';
import { account, may } from '../session.ts';
import { Button, Dialog, Time } from './elements.ts';
import { jobOfMail } from './job.ts';
import { Many } from './many.ts';
import { answerOf, type EndedState, isFailing, type OpenState } from './states.ts';
import { count, number, shortUrl, span } from './text.ts';

// Changes of many messages: replay, retry and drop. First the number, then the button with the number in it.

/** The messages to drop: by id, or all results of a search. */
type DropTarget = { readonly ids: readonly string[] } | { readonly query: string; readonly state: OpenState };

/** The number has to be typed, except for the one message that is open. */
export function DropDialog({ wish, onClose }: { readonly wish: DropTarget; onClose(): void }) {
  const isQuery = 'query' in wish;
  const params = { ...wish, ...(isQuery && { query: wish.query || '*' }) };
  return h(Dialog, { title: 'Drop', onClose }, [
    h(Many<Answer<'inbound/drop'>>, {
      about: `drop ${JSON.stringify(wish)}`,
      change: (how, stop) => call('inbound/drop', { ...params, ...how }, stop),
      job: jobOfMail('Drop', 'inbound/drop', params),
      nothing: 'Nothing to drop',
      explain: ({ matched }) =>
        matched > 0 && [
          h('p', [`${count(matched, 'message')} will not be posted. Senders are not notified.`]),
          h('p.faint', ['Dropped messages can be replayed until their content is deleted.']),
        ],
      label: (matched) => `Drop ${matched}`,
      kind: 'danger',
      isTyped: isQuery,
      done: ({ dropped }) => `${count(dropped, 'message')} dropped.`,
      onClose,
    }),
  ]);
}

/** Another attempt for all that a search finds and that waits. */
export function RetryDialog({
  query,
  onClose,
}: {
  /** Without its state. */
  readonly query: string;
  onClose(): void;
}) {
  const params = { query: query || '*', state: 'waiting' };
  return h(Dialog, { title: 'Retry now', onClose }, [
    h(Many<Answer<'inbound/retry'>>, {
      about: `retry ${query}`,
      change: (how, stop) => call('inbound/retry', { ...params, ...how }, stop),
      job: jobOfMail('Retry', 'inbound/retry', params),
      nothing: 'Nothing to retry',
      explain: ({ matched }) =>
        matched > 0 && [
          h('p', `${count(matched, 'message')} will be posted now.`),
          h(WaitsFor, { query }),
          h('p.faint', [
            'An endpoint that is down gets one message first, and the rest if it accepts that one. ' +
              'Paused endpoints stay paused.',
          ]),
        ],
      label: (matched) => `Retry ${matched} now`,
      kind: 'main',
      done: ({ retried }) => `Retrying ${count(retried, 'message')}.`,
      onClose,
    }),
  ]);
}

const MAX_CAUSES = 3;

/** The endpoints that it goes to, with their last answers, the most frequent first. */
function WaitsFor({ query }: { readonly query: string }) {
  const [opened] = useState(() => Date.now());
  const { data } = useCall('inbound/causes', { query: `${query} state:waiting` }, opened);
  if (!data) return null;
  return h('ul', [
    data.causes
      .slice(0, MAX_CAUSES)
      .map((cause) =>
        h('li', { key: `${cause.url} ${answerOf(cause)}` }, [
          `${number(cause.count)} to ${shortUrl(cause.url)}, ` +
            `${answerOf(cause) ? `last response ${answerOf(cause)}` : 'not attempted yet'}`,
        ]),
      ),
  ]);
}

/** Which mail: by id, or all that a search finds. */
export type Wish =
  | { readonly ids: readonly string[] }
  | {
      readonly query: string;
      readonly state: EndedState;
      /** Endpoints whose mail is left out. */
      readonly except_urls?: readonly string[];
    };

export function ReplayDialog({
  wish: given,
  isHeld = 'query' in given && given.state === 'held',
  onClose,
}: {
  readonly wish: Wish;
  /** Held mail was never posted, so its replay is a release. */
  readonly isHeld?: boolean;
  onClose(): void;
}) {
  const word = isHeld ? 'Release' : 'Replay';
  const [leftOut, setLeftOut] = useState<readonly string[]>([]);
  const wish = 'query' in given && leftOut.length > 0 ? { ...given, except_urls: leftOut } : given;
  const { where, isKnown } = useWhere(given);
  const params = { ...wish, ...('query' in wish && { query: wish.query || '*' }) };
  return h(Dialog, { title: word, onClose }, [
    h(Many<Answer<'inbound/replay'>>, {
      about: `replay ${JSON.stringify(wish)}`,
      change: (how, stop) => call('inbound/replay', { ...params, ...how }, stop),
      job: jobOfMail(word, 'inbound/replay', params),
      nothing: 'Nothing to replay',
      isExplained: isKnown,
      explain: ({ matched, forgotten }) => [
        matched > 0 &&
          h(
            'p',
            `${count(matched, 'message')} will be ` +
              `posted${isHeld ? '.' : ' again, with the same webhook-id as before.'}`,
          ),
        matched > 0 && where && h(Facts, { where: where.filter(({ url }) => !leftOut.includes(url)) }),
        forgotten > 0 &&
          h('p.faint', `${count(forgotten, 'other message')} can no longer be replayed: content deleted.`),
        h(Troubled, { where, leftOut, onLeave: (url) => setLeftOut([...leftOut, url]) }),
      ],
      label: (matched) => `${word} ${matched}`,
      kind: 'main',
      icon: 'replay',
      done: ({ replayed }) => `${count(replayed, 'message')} queued for delivery.`,
      onClose,
    }),
  ]);
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

/** The number of endpoints whose speed is queried. */
const ASKED = 3;

/** Where the mail goes, the most first; undefined for single mails, or if it cannot be read. */
function useWhere(wish: Wish): { readonly where: readonly Where[] | undefined; readonly isKnown: boolean } {
  const [opened] = useState(() => Date.now()); // an old answer is not shown
  const query = 'query' in wish ? `${wish.query} state:${wish.state}` : undefined;
  const key = query === undefined ? undefined : `where ${account.value?.id} ${query} ${opened}`;
  const { data, error } = useLoad(key, (stop) => readWhere(query ?? '', stop));
  return { where: data, isKnown: key === undefined || data !== undefined || error !== undefined };
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
    const { most_in_flight: slots = null } = detail ?? {};
    return p50 === null || slots === null ? undefined : (count * p50) / slots;
  });
  const known = each.filter((one) => one !== undefined);
  return known.length < each.length || known.length === 0 ? undefined : Math.max(...known);
}

/** Where the mail goes, how old it is, and how long it takes. */
function Facts({ where }: { readonly where: readonly Where[] }) {
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

const MAX_TROUBLED = 5;

/** Endpoints that would not take it now. */
function Troubled({
  where = [],
  leftOut,
  onLeave,
}: {
  readonly where: readonly Where[] | undefined;
  readonly leftOut: readonly string[];
  onLeave(url: string): void;
}) {
  const troubled = where.filter(
    ({ url, endpoint }) =>
      endpoint && !leftOut.includes(url) && (endpoint.breaker !== 'up' || endpoint.paused || isFailing(endpoint)),
  );
  return h('div', [
    leftOut.map((url) => h('p.faint', { key: url }, `${shortUrl(url)} is excluded.`)),
    troubled.slice(0, MAX_TROUBLED).map(({ url, count: many, endpoint }) =>
      h('p.row', { key: url }, [
        `${shortUrl(url)} is ` +
          `${endpoint?.paused ? 'paused' : endpoint?.breaker === 'up' ? 'failing' : 'still down'} ` +
          `(${count(many, 'message')}). `,
        // With one endpoint there is nothing else to replay.
        where.length > 1 + leftOut.length && h(Button, { label: 'Exclude', onPress: () => onLeave(url) }),
      ]),
    ),
  ]);
}
