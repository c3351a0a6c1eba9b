import { AGREE_MS, type Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { createSteadiness } from '../queue/purge.ts';
import { type Collection, type Filter, type Row, StoreAway } from '../store/driver/port.ts';
import type { Span } from '../store/rows/counters.ts';
import { noteSenderDomain } from '../store/rows/domains.ts';
import type { MessageEventKind, MessageEventRow, SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import { type ApplyDeps, createApply, outcomeOf } from './apply.ts';
import type { Numbers } from './numbers.ts';
import { toPayload } from './payload.ts';

/** A message that the account handed over, before anything has happened to it. */
export type NewSentMessage = Pick<
  SentMessageRow,
  | 'id'
  | 'account'
  | 'createdAt'
  | 'sender'
  | 'email'
  | 'subject'
  | 'tags'
  | 'template'
  | 'subaccount'
  | 'metadata'
  | 'apiKey'
  | 'delivery'
>;

/** Something that happened to a sent message. */
export interface MessageEvent {
  /** Chosen by who saw it happen; the same event said twice is recorded once. */
  readonly id: string;
  readonly account: string;
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /**
   * Which names there are depends on the kind: diag, description, code (bounces) · diag, source_ip, destination_ip
   * (send, deferral) · url, ip, user_agent (open, click) · reason, a code word, and diag, a sentence (reject).
   */
  readonly detail?: Readonly<Record<string, string | number | null>>;
  /** The tracked links of the message, each once, where `kind` is send. */
  readonly links?: readonly string[];
}

/** The one way of events into the numbers, the lists, and onto the webhooks that asked for them. */
export interface Recorder {
  /**
   * Makes the row of a message. Tags that begin with an underscore or are longer than 50 characters are the caller's to
   * refuse.
   */
  begin(message: NewSentMessage): Promise<'recorded' | 'duplicate'>;
  /** Idempotent by the event's id. `unknown`: the account has no such message. */
  record(event: MessageEvent): Promise<'recorded' | 'duplicate' | 'unknown'>;
}

interface RecorderDeps extends ApplyDeps {
  readonly store: ApplyDeps['store'] & Pick<Store, 'messageTags' | 'senderDomains'>;
}

/** A recorder that can take up what was cut off. */
export interface EventRecorder extends Recorder {
  /**
   * Applies events that were recorded before `before`, or after `beyond`, and not finished; the number that are now.
   */
  finish(before: Date, ending?: AbortSignal, beyond?: Date): Promise<number>;
}

/** Events that are finished side by side. */
const PAGE = 50;

/**
 * The one way of events into the numbers, the lists and onto the webhooks. An event is durable with its row, together
 * with what webhooks will be told; everything else follows from the row and may be cut off anywhere. What fails then is
 * done by the sweep (`finish`): who reports an event need not know.
 */
export function createRecorder(deps: RecorderDeps): EventRecorder {
  const { store, clock, log } = deps;
  const apply = createApply(deps);

  async function tryToApply(row: MessageEventRow): Promise<boolean> {
    try {
      await apply(row);
      return true;
    } catch (error) {
      // That it is away is logged once.
      if (!(error instanceof StoreAway)) log.error('event.fault', { account: row.account, error });
      return false;
    }
  }

  async function finishBetween(
    first: Date,
    end: { readonly lt?: Date },
    ending: AbortSignal | undefined,
  ): Promise<number> {
    let done = 0;
    for (let from = first; ; ) {
      const rows = await store.messageEvents.many(
        { appliedAt: null, at: { range: { gt: from, ...end } } },
        { sort: 'at', limit: PAGE },
      );
      done += (await Promise.all(rows.map(tryToApply))).filter(Boolean).length;
      const last = rows.at(-1);
      if (!last || rows.length < PAGE || ending?.aborted) return done;
      from = last.at; // behind it even when it failed, so that one that always fails keeps no other waiting
    }
  }

  return frozen({
    async begin(message) {
      const row = toMessageRow(message);
      const { account, createdAt } = row;
      await noteSenderDomain(store, account, row.sender.slice(row.sender.lastIndexOf('@') + 1), new Date(clock.now()));
      // Tags first: cut off in between, a pair without its message harms nobody; a message without its pairs would keep
      // a deleted tag.
      await Promise.all(
        row.tags.map((tag) =>
          store.messageTags.insert({ id: `${row.id} ${tag}`, account, tag, message: row.id, createdAt }),
        ),
      );
      return (await store.messages.insert(row)) === 'inserted' ? 'recorded' : 'duplicate';
    },
    async record(event) {
      const message = await store.messages.one({ id: event.message, account: event.account });
      if (!message) return 'unknown';
      const row = toEventRow(event, message, new Date(clock.now()));
      if ((await store.messageEvents.insert(row)) === 'inserted') {
        await tryToApply(row);
        return 'recorded';
      }
      // Said again because the first answer was lost: then nobody else may be at work on it.
      const known = await store.messageEvents.one({ id: event.id });
      if (known?.appliedAt === null) await tryToApply(known);
      return 'duplicate';
    },
    finish: async (before, ending, beyond) =>
      (await finishBetween(new Date(0), { lt: before }, ending)) +
      (beyond ? await finishBetween(beyond, {}, ending) : 0),
  });
}

/** An event of tomorrow, by a clock that is wrong, happened now: the sweep looks for what is old. */
function toEventRow(event: MessageEvent, message: SentMessageRow, now: Date): MessageEventRow {
  const { id, account, kind } = event;
  const at = event.at < now ? event.at : now;
  const bare = {
    id,
    account,
    message: event.message,
    kind,
    at,
    appliedAt: null,
    detail: toDetail(event),
    ...(event.links && { links: event.links }),
    unsent: null,
    unsentSince: now,
  };
  const after = { ...message, ...outcomeOf(bare, message) };
  const unsent = (name: 'delivered' | typeof kind, eventId: string) => ({
    id: eventId,
    event: name,
    at: at.getTime(),
    body: JSON.stringify(toPayload({ ...bare, kind: name }, after)),
  });
  // What a server took is sent and delivered at once: nobody learns more of it by SMTP (RFC 5321 section 6.1).
  return {
    ...bare,
    unsent: kind === 'send' ? [unsent('send', id), unsent('delivered', `${id}-delivered`)] : [unsent(kind, id)],
  };
}

// What comes from mail or from a browser may be of any length; what is kept of it may not.

/** A tag has at most 50 characters (documented); a subject line at most 998 (RFC 5322 section 2.1.1). */
const LONGEST = { tag: 50, subject: 998, address: 320, name: 255, value: 500, detail: 2048 } as const;
const MOST_TAGS = 100;
/** Documented: metadata is flat and small. */
const MOST_METADATA = 50;

/** Which details are kept of an event. */
const DETAILS: Readonly<Record<MessageEventKind, readonly string[]>> = {
  send: ['diag', 'source_ip', 'destination_ip'],
  deferral: ['diag', 'description', 'code', 'source_ip', 'destination_ip'],
  hard_bounce: ['diag', 'description', 'code'],
  soft_bounce: ['diag', 'description', 'code'],
  open: ['url', 'ip', 'user_agent'],
  click: ['url', 'ip', 'user_agent'],
  spam: ['diag'],
  unsub: ['diag'],
  reject: ['reason', 'diag'],
};

/** The first `max` units of a text; a character of two units stays whole. */
function cut(text: string, max: number): string {
  return text.length <= max ? text : text.slice(0, max).replace(/[\ud800-\udbff]$/, '');
}

/** The row of a message that nothing has happened to yet. */
export function toMessageRow(message: NewSentMessage): SentMessageRow {
  const metadata = Object.entries(message.metadata)
    .slice(0, MOST_METADATA)
    .map(
      ([name, value]) =>
        [cut(name, LONGEST.name), typeof value === 'string' ? cut(value, LONGEST.value) : value] as const,
    );
  return {
    id: message.id,
    account: message.account,
    createdAt: message.createdAt,
    sender: cut(message.sender.toLowerCase(), LONGEST.address),
    email: cut(message.email, LONGEST.address),
    subject: cut(message.subject, LONGEST.subject),
    tags: [...new Set(message.tags.map((tag) => cut(tag, LONGEST.tag)))]
      .filter((tag) => tag !== '')
      .slice(0, MOST_TAGS),
    template: message.template,
    subaccount: message.subaccount,
    metadata: Object.fromEntries(metadata),
    apiKey: message.apiKey,
    delivery: message.delivery ?? null,
    state: 'queued',
    opens: 0,
    clicks: 0,
    openDetail: [],
    clickDetail: [],
    firstOpen: null,
    firstClick: null,
    diag: null,
    bounceDescription: null,
    version: 0,
  };
}

/** The details of an event that are kept. */
function toDetail({ kind, detail = {} }: MessageEvent): Record<string, string | number | null> {
  return Object.fromEntries(
    DETAILS[kind].flatMap((name) => {
      const value = detail[name];
      return value === undefined ? [] : [[name, typeof value === 'string' ? cut(value, LONGEST.detail) : value]];
    }),
  );
}

/**
 * An event that is younger is most likely still at work with whoever recorded it. Taking it up twice would do no harm.
 */
const GRACE_MS = 30_000;

/**
 * Finishes what a crash or an absent store cut off: events that are recorded and not in all numbers, tags that are
 * deleted and not off all messages.
 */
export function applyEventsTask(deps: {
  recorder: Pick<EventRecorder, 'finish'>;
  numbers: Pick<Numbers, 'finishRemovals'>;
  clock: Clock;
}): Task {
  return {
    async run(ending) {
      const now = deps.clock.now();
      const events = await deps.recorder.finish(new Date(now - GRACE_MS), ending, new Date(now + AGREE_MS));
      const tags = await deps.numbers.finishRemovals(ending);
      return events + tags > 0 ? { events, tags } : undefined;
    },
  };
}

export interface PurgeRowsSettings {
  /** Messages and their events are forgotten so many days later; the numbers stay. */
  readonly keepDays: number;
}

const DAY_MS = 86_400_000;
/** The longest window is 90 days and begins with a whole hour. Totals stay for ever. The number is in days. */
const KEEP_SPANS: readonly (readonly [Span, number])[] = [
  ['minute', 1],
  ['hour', 91],
  ['week', 91],
  ['month', 400],
];
/** A link has numbers as long as it is sent or clicked: every recipient may have links of his own. */
const KEEP_URL_DAYS = 91;
/** Rows of one step, which share a sync of the disk. */
const ROWS_A_STEP = 500;

/** Forgets rows that nothing shows any more, in small steps, so that nobody waits long for the store. */
export function purgeRowsTask(
  settings: PurgeRowsSettings,
  deps: {
    store: Pick<Store, 'counters' | 'messages' | 'messageTags' | 'messageEvents' | 'urls' | 'urlHours'>;
    clock: Clock;
    time: Pick<RunningTime, 'believed'>;
  },
): Task {
  const { store, clock } = deps;
  const isSteady = createSteadiness(clock, deps.time);
  return {
    async run(ending) {
      if (!isSteady()) return undefined;
      const before = (days: number) => ({ range: { lt: new Date(clock.now() - days * DAY_MS) } });
      const old = before(settings.keepDays);
      let counters = 0;
      for (const [span, days] of KEEP_SPANS)
        counters += await removeAll(store.counters, { span, start: before(days) }, ending);
      const urls = await removeAll(store.urls, { lastHour: before(KEEP_URL_DAYS) }, ending);
      counters += await removeAll(store.urlHours, { start: before(KEEP_URL_DAYS) }, ending);
      const events = await removeAll(store.messageEvents, { at: old }, ending);
      const tags = await removeAll(store.messageTags, { createdAt: old }, ending);
      const messages = await removeAll(store.messages, { createdAt: old }, ending);
      return counters + urls + events + tags + messages > 0 ? { counters, urls, events, tags, messages } : undefined;
    },
  };
}

async function removeAll<R extends Row>(
  rows: Collection<R>,
  filter: Filter<R>,
  ending: AbortSignal | undefined,
): Promise<number> {
  for (let done = 0; ; ) {
    const found = ending?.aborted ? [] : await rows.many(filter, { limit: ROWS_A_STEP });
    await Promise.all(found.map(({ id }) => rows.remove(byId<R>(id))));
    done += found.length;
    if (found.length < ROWS_A_STEP) return done;
  }
}

/** For a generic row TypeScript cannot see that this names a field of it. */
function byId<R extends Row>(id: string): Filter<R> {
  const filter: Filter<Row> = { id };
  return filter as Filter<R>;
}
