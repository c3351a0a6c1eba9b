import type { ServerResponse } from 'node:http';
import type { Context } from 'koa';
import { type Clock, createLoop } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createShares } from '../base/shares.ts';
import type { Feed, FeedEvent } from '../journal/feed.ts';
import type { MailRecord, RefusalRecord } from '../journal/types.ts';
import { kindsOf } from '../queue/delivery.ts';
import { busy, Denial } from './denial.ts';
import type { Visitor } from './sessions.ts';
import type { Redactor } from './url-redaction.ts';

// The live feed as server-sent events: one direction is enough, and unlike a WebSocket they are plain HTTP, with the
// cookie and the origin of every other request.

interface LiveDeps {
  readonly feed: Pick<Feed, 'watch'>;
  /** The same records that the operations answer. */
  readonly records: { mail(row: MailRecord): unknown; refusal(row: RefusalRecord): unknown };
  readonly clock: Clock;
  /** Whether the session is still open, with the same role and account. */
  readonly lasts: (visitor: Visitor) => Promise<boolean>;
  /** Whether there are other hosts, of whose mail this one gets no events. */
  readonly hasOthers: () => Promise<boolean>;
}

const TOPICS = ['mail', 'refused'] as const;
type Topic = (typeof TOPICS)[number];
/** Concurrent streams, in total and per session. Each tab has one. */
const STREAMS = { all: 100, each: 6 };
/** Events of a topic that one stream sends per second. If there are more, it sends `more` instead. */
const MAX_PER_SECOND = 20;
const SECOND_MS = 1000;
/**
 * The interval of comments that keep proxies from closing a silent stream, of checks whether the session is still open,
 * and of `more` events if there are other hosts.
 */
const ALIVE_MS = 15_000;
/** A browser with more unread data is disconnected. */
const MAX_UNREAD_BYTES = 1_048_576;

const INBOUND = kindsOf('route');

export function createLive(deps: LiveDeps) {
  const streams = createShares(STREAMS);
  const open = new Set<ServerResponse>();

  return frozen({
    /** Answers with the stream of `topics`; `account` null: of all accounts. */
    open(ctx: Context, visitor: Visitor, account: string | null, redactor: Wanted['redactor']): void {
      const topics = topicsOf(String(ctx.query.topics ?? ''));
      const who = visitor.session.id;
      if (streams.take(who, 1) !== 'taken') throw busy();
      ctx.set({
        'Content-Type': 'text/event-stream; charset=utf-8',
        'Cache-Control': 'no-store',
        'X-Accel-Buffering': 'no', // nginx passes each event on at once
      });
      ctx.status = 200;
      ctx.respond = false;
      const { res } = ctx;
      res.flushHeaders();
      open.add(res);
      const last = ctx.get('last-event-id');
      const end = follow(res, { topics, account, redactor, last: last === '' ? undefined : last }, visitor, deps);
      res.once('close', () => {
        end();
        open.delete(res);
        streams.give(who, 1);
      });
    },
    /** Ends all streams: a stop must not wait for them. */
    stop(): void {
      for (const res of open) res.end();
    },
  });
}

interface Wanted {
  readonly topics: ReadonlySet<Topic>;
  readonly account: string | null;
  readonly redactor: Pick<Redactor, 'redact'> | undefined;
  /** The id of the last event that the browser received. */
  readonly last: string | undefined;
}

/** Writes events to `res` until the returned function is called. */
function follow(res: ServerResponse, wanted: Wanted, visitor: Visitor, deps: LiveDeps): () => void {
  const { feed, records, clock } = deps;
  const shown = { mail: 0, refused: 0 };
  const leftOut = new Set<Topic>();
  let cancelSecond: (() => void) | undefined;

  function send(event: string, data: unknown, id?: string): void {
    if (res.writableLength > MAX_UNREAD_BYTES) return void res.destroy();
    res.write(`event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`);
  }

  function show(event: FeedEvent): void {
    if (event.topic === 'missed') {
      for (const topic of wanted.topics) leaveOut(topic);
      return;
    }
    const { topic, row } = event;
    if (!wanted.topics.has(topic) || (wanted.account !== null && row.account !== wanted.account)) return;
    if (topic === 'mail' && !INBOUND.includes(event.row.kind)) return;
    if (++shown[topic] > MAX_PER_SECOND) return leaveOut(topic);
    cancelSecond ??= clock.after(SECOND_MS, startSecond);
    const { account } = row;
    const seen = (record: unknown) => (wanted.redactor ? wanted.redactor.redact(record) : record);
    if (topic === 'mail') send('mail', { account, mail: seen(records.mail(event.row)) }, event.id);
    else send('refused', { account, refusal: seen(records.refusal(event.row)) }, event.id);
  }

  function leaveOut(topic: Topic): void {
    leftOut.add(topic);
    cancelSecond ??= clock.after(SECOND_MS, startSecond);
  }

  function startSecond(): void {
    cancelSecond = undefined;
    shown.mail = shown.refused = 0;
    for (const topic of leftOut) send('more', { topic });
    leftOut.clear();
  }

  const staying = createLoop(clock, async () => {
    // While the store is unavailable, sessions cannot be checked and stay open.
    const lasts = await deps.lasts(visitor).catch(() => true);
    const hasOthers = lasts && (await deps.hasOthers().catch(() => true));
    if (res.closed) return undefined;
    if (!lasts) {
      send('end', {});
      res.end();
      return undefined;
    }
    res.write(':\n\n');
    if (hasOthers) for (const topic of wanted.topics) leaveOut(topic);
    return ALIVE_MS;
  });

  const watching = feed.watch((events) => events.forEach(show), wanted.last);
  res.write('retry: 4000\n\n');
  if (watching.missed) watching.missed.forEach(show);
  else send('reset', {});
  staying.startAfter(ALIVE_MS);
  return () => {
    watching.end();
    cancelSecond?.();
    void staying.stop();
  };
}

function topicsOf(text: string): ReadonlySet<Topic> {
  const named = new Set(text.split(','));
  const topics = TOPICS.filter((topic) => named.delete(topic));
  if (named.size > 0 || topics.length === 0) throw new Denial('ValidationError', `The topics are ${TOPICS.join(', ')}`);
  return new Set(topics);
}
