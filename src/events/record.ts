import { truncate } from '../base/characters.ts';
import { type Clock, DAY_MS, MAX_CLOCK_SKEW_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { domainOf } from '../mail/addresses/address.ts';
import { createSteadiness } from '../queue/purge.ts';
import { type Collection, type Filter, filterOf, type Row, StoreAway } from '../store/driver/port.ts';
import type { CounterSpan } from '../store/rows/counters.ts';
import { noteSenderDomain } from '../store/rows/domains.ts';
import type { MessageEventKind, MessageEventRow, SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import { type ApplyDeps, createApply, messageChangesOf } from './apply.ts';
import type { CounterRemoval } from './counter-removal.ts';
import { toPayload } from './payload.ts';

/** A submitted message, before any event. */
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
  | 'thread'
> & {
  /** Other ids by which replies refer to it (mail/replies/sent-names.ts). */
  readonly names?: readonly string[];
};

/** An event of a sent message. */
export interface MessageEvent {
  /** Chosen by the reporting part; an event reported twice is recorded once. */
  readonly id: string;
  readonly account: string;
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /**
   * Keys by kind: diag, source_ip, destination_ip, destination (send, deferral) · these, description, code, rule
   * (bounces) · url, ip, user_agent (open, click) · reason, a code word, and diag, a sentence (reject) · inbound, the
   * id of the inbound message, from, recipient, subject, why it is automated (reply).
   */
  readonly detail?: Readonly<Record<string, string | number | null>>;
  /** For `send`: the tracked links of the message, each once. */
  readonly links?: readonly string[];
  /** For `send`: the ids that a relay gave the message (mail/replies/sent-names.ts). */
  readonly names?: readonly string[];
}

interface RecorderDeps extends ApplyDeps {
  readonly store: ApplyDeps['store'] & Pick<Store, 'messageTags' | 'messageNames' | 'senderDomains'>;
}

export type EventRecorder = ReturnType<typeof createRecorder>;
export type Recorder = Pick<EventRecorder, 'begin' | 'record'>;

/** Events finished concurrently. */
const PAGE = 50;

/**
 * Records events: the only way into the counters, the lists and the webhooks. An event is durable with its row, which
 * includes the webhook payloads; everything else is derived from the row and may be interrupted anywhere. A failed step
 * is finished by the sweep (`finish`), unnoticed by the caller.
 */
export function createRecorder(deps: RecorderDeps) {
  const { store, clock, log } = deps;
  const apply = createApply(deps);

  /** Before the row that they are about: after an interruption, a name without its message is harmless. */
  async function keepNames(
    { id: message, account, email, createdAt }: Pick<SentMessageRow, 'id' | 'account' | 'email' | 'createdAt'>,
    names: readonly string[] = [],
  ): Promise<void> {
    for (const name of names) {
      const row = { account, name, message, email: email.toLowerCase(), createdAt };
      await store.messageNames.insert({ id: `${message} ${name}`, ...row });
    }
  }

  async function tryToApply(row: MessageEventRow): Promise<boolean> {
    try {
      await apply(row);
      return true;
    } catch (error) {
      // Store outages are logged once.
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
      from = last.at; // continue after it even if it failed, so that one that always fails does not block others
    }
  }

  return frozen({
    /** Creates the row of a message. The caller must refuse tags that begin with an underscore or are too long (50). */
    async begin(message: NewSentMessage): Promise<'recorded' | 'duplicate'> {
      const row = toMessageRow(message);
      const { account, createdAt } = row;
      await noteSenderDomain(store, account, domainOf(row.sender), new Date(clock.now()));
      // Tags first: after an interruption, a tag row without its message is harmless; a message without its tag rows
      // would keep a deleted tag.
      await Promise.all(
        row.tags.map((tag) =>
          store.messageTags.insert({ id: `${row.id} ${tag}`, account, tag, message: row.id, createdAt }),
        ),
      );
      await keepNames(row, message.names);
      return (await store.messages.insert(row)) === 'inserted' ? 'recorded' : 'duplicate';
    },
    /** Records an event; idempotent by its id. `unknown`: the account has no such message. */
    async record(event: MessageEvent): Promise<'recorded' | 'duplicate' | 'unknown'> {
      const message = await store.messages.one({ id: event.message, account: event.account });
      if (!message) return 'unknown';
      await keepNames(message, event.names);
      const row = toEventRow(event, message, new Date(clock.now()));
      if ((await store.messageEvents.insert(row)) === 'inserted') {
        await tryToApply(row);
        return 'recorded';
      }
      // A repeated report, probably because the first response was lost; then no other process may be applying it.
      const known = await store.messageEvents.one({ id: event.id });
      if (known?.appliedAt === null) await tryToApply(known);
      return 'duplicate';
    },
    /** Applies unfinished events recorded before `before` or after `beyond`. Returns how many were finished. */
    finish: async (before: Date, ending?: AbortSignal, beyond?: Date) =>
      (await finishBetween(new Date(0), { lt: before }, ending)) +
      (beyond ? await finishBetween(beyond, {}, ending) : 0),
  });
}

/** An event dated in the future by a wrong clock gets the current time, because the sweep looks for old events. */
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
  const after = { ...message, ...messageChangesOf(bare, message) };
  const unsent = (name: 'delivered' | typeof kind, eventId: string) => ({
    id: eventId,
    event: name,
    at: at.getTime(),
    body: JSON.stringify(toPayload({ ...bare, kind: name }, after)),
  });
  // An accepted message is both sent and delivered: SMTP gives no later information (RFC 5321 section 6.1).
  return {
    ...bare,
    unsent: kind === 'send' ? [unsent('send', id), unsent('delivered', `${id}-delivered`)] : [unsent(kind, id)],
  };
}

// Data from mail and browsers may be of any length; what is stored is limited.

/**
 * A tag has at most 50 characters (documented), a subject line 998 (RFC 5322 section 2.1.1), an address 1000 octets
 * (mail/addresses/address.ts).
 */
const LONGEST = { tag: 50, subject: 998, address: 1000, name: 255, value: 500, detail: 2048 } as const;
const MAX_TAGS = 100;
/** Documented: metadata is flat and small. */
const MAX_METADATA = 50;

/** The addresses that a message was sent between, and the name of the server. */
const CONNECTION = ['source_ip', 'destination_ip', 'destination'] as const;

/** Stored details by kind of event. */
const DETAILS: Readonly<Record<MessageEventKind, readonly string[]>> = {
  send: ['diag', ...CONNECTION],
  deferral: ['diag', 'description', 'code', 'rule', ...CONNECTION],
  hard_bounce: ['diag', 'description', 'code', 'rule', ...CONNECTION],
  soft_bounce: ['diag', 'description', 'code', 'rule', ...CONNECTION],
  open: ['url', 'ip', 'user_agent'],
  click: ['url', 'ip', 'user_agent'],
  spam: ['diag'],
  unsub: ['diag'],
  reject: ['reason', 'diag'],
  reply: ['inbound', 'from', 'recipient', 'subject', 'automated'],
};

export function toMessageRow(message: NewSentMessage): SentMessageRow {
  const metadata = Object.entries(message.metadata)
    .slice(0, MAX_METADATA)
    .map(
      ([name, value]) =>
        [truncate(name, LONGEST.name), typeof value === 'string' ? truncate(value, LONGEST.value) : value] as const,
    );
  return {
    id: message.id,
    account: message.account,
    createdAt: message.createdAt,
    sender: truncate(message.sender.toLowerCase(), LONGEST.address),
    email: truncate(message.email, LONGEST.address),
    subject: truncate(message.subject, LONGEST.subject),
    tags: [...new Set(message.tags.map((tag) => truncate(tag, LONGEST.tag)))]
      .filter((tag) => tag !== '')
      .slice(0, MAX_TAGS),
    template: message.template,
    subaccount: message.subaccount,
    metadata: Object.fromEntries(metadata),
    apiKey: message.apiKey,
    delivery: message.delivery ?? null,
    ...(message.thread && { thread: message.thread }),
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

/** The details of an event that are stored. */
function toDetail({ kind, detail = {} }: MessageEvent): Record<string, string | number | null> {
  return Object.fromEntries(
    DETAILS[kind].flatMap((name) => {
      const value = detail[name];
      return value === undefined ? [] : [[name, typeof value === 'string' ? truncate(value, LONGEST.detail) : value]];
    }),
  );
}

/** A younger event is most likely still being applied. Applying it twice would do no harm. */
const GRACE_MS = 30_000;

/** Finishes what a crash or an outage interrupted: events not yet counted everywhere, deleted tags on messages. */
export function applyEventsTask(deps: {
  recorder: Pick<EventRecorder, 'finish'>;
  counterRemoval: Pick<CounterRemoval, 'finishRemovals'>;
  clock: Clock;
}): Task {
  return {
    async run(ending) {
      const now = deps.clock.now();
      const events = await deps.recorder.finish(new Date(now - GRACE_MS), ending, new Date(now + MAX_CLOCK_SKEW_MS));
      const tags = await deps.counterRemoval.finishRemovals(ending);
      return events + tags > 0 ? { events, tags } : undefined;
    },
  };
}

export interface PurgeRowsSettings {
  /** Messages and their events are deleted after this many days; the numbers stay. */
  readonly keepDays: number;
}

/** Retention in days. The longest window is 90 days and begins on the hour. Totals are kept forever. */
const KEEP_SPANS: readonly (readonly [CounterSpan, number])[] = [
  ['minute', 1],
  ['hour', 91],
  ['week', 91],
  ['month', 400],
];
/** A link has numbers as long as it is sent or clicked: every recipient may have unique links. */
const KEEP_URL_DAYS = 91;
/** How long a host that is not seen is listed. */
const KEEP_HOST_DAYS = 90;
/** Rows per step, which share a disk sync. */
const ROWS_A_STEP = 500;

/** Deletes rows that are no longer visible, in small steps that do not block the store for long. */
export function purgeRowsTask(
  settings: PurgeRowsSettings,
  deps: {
    store: Pick<
      Store,
      | 'counters'
      | 'messages'
      | 'messageTags'
      | 'messageNames'
      | 'messageEvents'
      | 'urls'
      | 'urlHours'
      | 'hosts'
      | 'copies'
    >;
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
      await removeAll(store.messageNames, { createdAt: old }, ending);
      const messages = await removeAll(store.messages, { createdAt: old }, ending);
      // Mail of a lost host can be taken over as long as it is listed.
      for (const { id } of await store.hosts.many({ seenAt: before(KEEP_HOST_DAYS) }))
        if (!(await store.copies.one({ host: id }))) await store.hosts.remove({ id, seenAt: before(KEEP_HOST_DAYS) });
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
    await Promise.all(found.map(({ id }) => rows.remove(filterOf<Row, R>({ id }))));
    done += found.length;
    if (found.length < ROWS_A_STEP) return done;
  }
}
