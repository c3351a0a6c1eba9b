import { frozen } from '../base/frozen.ts';
import type { Collection, Filter, Patch, Row } from '../store/driver/port.ts';
import {
  COUNTS,
  type CounterRow,
  type CounterSubject,
  type Counts,
  counterId,
  LONGEST_COUNTED_URL,
  NO_COUNTS,
  SPANS_OF,
  type Span,
  startOf,
  URL_COUNTS,
  type UrlCounts,
  type UrlHourRow,
  type UrlRow,
  urlHourId,
  urlId,
  urlKey,
} from '../store/rows/counters.ts';
import type { EventMarks, MessageEventKind, MessageEventRow, SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import { textOf } from './apply.ts';

/** Brings events into the counters. */
interface Counting {
  /**
   * Resolves when every counter has the event, each exactly once. `message` is the row as it is with the event in it.
   */
  count(event: MessageEventRow, message: SentMessageRow): Promise<void>;
}

const COUNT_OF: Readonly<Record<MessageEventKind, keyof Counts | undefined>> = {
  send: 'sent',
  hard_bounce: 'hardBounces',
  soft_bounce: 'softBounces',
  reject: 'rejects',
  spam: 'complaints',
  unsub: 'unsubs',
  open: 'opens',
  click: 'clicks',
  deferral: undefined, // nothing has become of the message yet
};

/** What an event adds. An open or click is unique when it is the first of its message. */
function amountsOf(event: MessageEventRow, message: SentMessageRow): Partial<Counts> {
  const count = COUNT_OF[event.kind];
  if (event.kind === 'open' && message.firstOpen === event.id) return { opens: 1, uniqueOpens: 1 };
  if (event.kind === 'click' && message.firstClick === event.id) return { clicks: 1, uniqueClicks: 1 };
  return count === undefined ? {} : { [count]: 1 };
}

/** What an event of a message is counted of. */
function countedOf({ account, sender, tags, template, subaccount }: SentMessageRow): [CounterSubject, string][] {
  const things: [CounterSubject, string][] = [
    ['account', account],
    ['sender', sender],
    ...tags.map((tag): [CounterSubject, string] => ['tag', tag]),
  ];
  if (template !== null) things.push(['template', template]);
  if (subaccount !== null) things.push(['subaccount', subaccount]);
  return things;
}

/** Adds numbers to a row of counts, which were first counted at `at`. */
function adding(amounts: Partial<Counts>, at: Date): Change<CounterRow>['toPatch'] {
  return (row) => {
    const sums: { -readonly [C in keyof Counts]?: number } = {};
    for (const [name, amount] of entriesOf(amounts)) sums[name] = row[name] + amount;
    return { ...sums, firstAt: at < row.firstAt ? at : row.firstAt };
  };
}

function entriesOf(amounts: Partial<Counts>): [keyof Counts, number][] {
  return COUNTS.flatMap((name) => (amounts[name] === undefined ? [] : [[name, amounts[name]]]));
}

/** One change for each thing that is counted and each span of it. */
function changesOf(event: MessageEventRow, message: SentMessageRow): Change<CounterRow>[] {
  const amounts = amountsOf(event, message);
  if (Object.keys(amounts).length === 0) return [];
  const { account, at } = event;
  const toPatch = adding(amounts, at);
  const isWanted = (span: Span) => span !== 'minute' || amounts.sent !== undefined;
  return countedOf(message).flatMap(([kind, key]) =>
    SPANS_OF[kind].filter(isWanted).map((span) => {
      const start = startOf(span, at);
      const row = counterId(account, kind, span, start, key);
      return {
        row,
        event: event.id,
        toPatch,
        fresh: { ...NO_COUNTS, id: row, account, kind, span, key, start, firstAt: at },
      };
    }),
  );
}

/**
 * The counters of the account, of the sender, of each tag, of the template and of the subaccount of a message. They are
 * many rows, and no crash between two of them shows in the end: a row that has the event says so, and the next try goes
 * on with the others. Until then a total may be ahead of an hour.
 */
export function createCounting({ store }: { readonly store: Pick<Store, 'counters' | 'messageEvents'> }): Counting {
  const once = createOnce({ rows: store.counters, events: store.messageEvents });
  return frozen({
    async count(event, message) {
      await Promise.all(changesOf(event, message).map((change) => once.apply(change)));
    },
  });
}

/** Brings events into the numbers of the links of messages. */
interface UrlCounting {
  /** Resolves when every link has the event, exactly once. `message` is the row as it is with the event in it. */
  count(event: MessageEventRow, message: SentMessageRow): Promise<void>;
}

interface UrlCountingDeps {
  readonly store: Pick<Store, 'urls' | 'urlHours' | 'messageEvents'>;
}

const NONE: UrlCounts = { sent: 0, clicks: 0, uniqueClicks: 0 };

/**
 * A sent message counts for each tracked link in it, a click for the link that was followed; a click is unique when it
 * is the first of that link in its message. As with the other counters, no crash in between shows in the end
 * (`createOnce`).
 */
export function createUrlCounting({ store }: UrlCountingDeps): UrlCounting {
  const totals = createOnce<UrlRow>({ rows: store.urls, events: store.messageEvents });
  const hours = createOnce<UrlHourRow>({ rows: store.urlHours, events: store.messageEvents });

  async function add(event: MessageEventRow, url: string, key: string, amounts: Partial<UrlCounts>): Promise<void> {
    const { account, at, id } = event;
    const start = startOf('hour', at);
    const total = urlId(account, key);
    const hour = urlHourId(account, key, at);
    await Promise.all([
      totals.apply({
        row: total,
        event: id,
        toPatch: (row) => ({ ...sumOf(row, amounts), lastHour: start > row.lastHour ? start : row.lastHour }),
        fresh: { ...NONE, id: total, account, url, lastHour: start },
      }),
      hours.apply({
        row: hour,
        event: id,
        toPatch: (row) => sumOf(row, amounts),
        fresh: { ...NONE, id: hour, account, key, start },
      }),
    ]);
  }

  return frozen({
    async count(event, message) {
      await Promise.all(urlAmountsOf(event, message).map(({ url, amounts }) => add(event, url, urlKey(url), amounts)));
    },
  });
}

/** What an event adds, and to which links. */
function urlAmountsOf(
  event: MessageEventRow,
  message: SentMessageRow,
): { readonly url: string; readonly amounts: Partial<UrlCounts> }[] {
  if (event.kind === 'send') return (event.links ?? []).map((url) => ({ url, amounts: { sent: 1 } }));
  const url = event.kind === 'click' ? (textOf(event.detail['url']) ?? '') : '';
  if (url === '' || url.length > LONGEST_COUNTED_URL) return [];
  const unique = message.firstClicks?.[urlKey(url)] === event.id;
  return [{ url, amounts: unique ? { clicks: 1, uniqueClicks: 1 } : { clicks: 1 } }];
}

function sumOf(row: UrlCounts, amounts: Partial<UrlCounts>): UrlCounts {
  const sums: { -readonly [C in keyof UrlCounts]: number } = { ...NONE };
  for (const name of URL_COUNTS) sums[name] = row[name] + (amounts[name] ?? 0);
  return sums;
}

/** What an event does to one row. */
interface Change<R> {
  /** Id of the row. */
  readonly row: string;
  /** Id of the event. */
  readonly event: string;
  /** The fields of the row that the event changes, never `version` and `marks`. Pure: it may be called again. */
  toPatch(row: R): Patch<R>;
  /** The row before any event, where there is none yet. Left out: a row that is not there is left alone. */
  readonly fresh?: R;
}

interface OnceDeps<R extends Row> {
  readonly rows: Collection<R>;
  readonly events: Pick<Collection<MessageEventRow>, 'many'>;
}

/** Changes rows, each event once. */
interface Once<R> {
  /**
   * Resolves when the row has the event, with the row; undefined when it is not there. Throws what the store throws.
   */
  apply(change: Change<R>): Promise<R | undefined>;
}

/** Changes of one turn. More wait for the next; each turn asks the store twice, whatever the number. */
const MOST_CHANGES = 1000;
/** Another process changed the row between reading and writing it; so often in a row it does not. */
const MOST_ROUNDS = 50;

interface Waiting<R> {
  readonly change: Change<R>;
  resolve(row: R | undefined): void;
  reject(error: unknown): void;
}

/**
 * Exactly once, however often a change is tried, by how many processes, and wherever one of them is cut off. The store
 * can change one row in one atomic step and nothing more, so a row says itself which events are in it (`marks`), and is
 * written only as it was read (`version`). A mark may be forgotten once its event is applied (`appliedAt`), because
 * then nobody tries it any more; one who was held up before that moment must not find the mark gone and count again.
 * Therefore the rows are read first and the events after them: an event that is not applied then was not applied when
 * the row was read, so its mark was not forgotten; and one that is applied is in the row already.
 *
 * Within one process changes are gathered while the store works: fifty events of one message or tag are one write, not
 * fifty.
 */
export function createOnce<R extends Row & EventMarks>({ rows, events }: OnceDeps<R>): Once<R> {
  const waiting: Waiting<R>[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    while (waiting.length > 0) {
      const turn = waiting.splice(0, MOST_CHANGES);
      try {
        await applyAll(turn);
      } catch (error) {
        for (const one of turn) one.reject(error); // those that were resolved stay so
      }
    }
    running = false;
  }

  async function applyAll(turn: readonly Waiting<R>[]): Promise<void> {
    let rest = [...Map.groupBy(turn, ({ change }) => change.row)];
    for (let round = 0; rest.length > 0; round++) {
      if (round === MOST_ROUNDS) throw new Error('a row changed each time before it could be written');
      const known = await rows.many(idIn<R>(rest.map(([id]) => id)));
      const applied = await appliedOf(
        rest.flatMap(([, all]) => all.map(({ change }) => change.event)),
        known,
      );
      const byId = new Map(known.map((row) => [row.id, row]));
      const done = await Promise.all(rest.map(([id, all]) => write(byId.get(id), all, applied)));
      rest = rest.filter((_, n) => done[n] === false);
    }
  }

  /**
   * Which of these events, and of those that the rows have marks of, nobody will try again. One that was purged is
   * among them.
   */
  async function appliedOf(tried: readonly string[], known: readonly R[]): Promise<ReadonlySet<string>> {
    const ids = new Set([...tried, ...known.flatMap(({ marks = [] }) => marks)]);
    for (const { id, appliedAt } of await events.many({ id: { in: [...ids] } })) if (appliedAt === null) ids.delete(id);
    return ids;
  }

  /** False: somebody else was first, and it must be read again. */
  async function write(row: R | undefined, all: readonly Waiting<R>[], applied: ReadonlySet<string>): Promise<boolean> {
    const base = row ?? all.find(({ change }) => change.fresh)?.change.fresh;
    const due = base ? dueOf(base, all, applied) : [];
    if (!base || due.length === 0) return end(all, row);
    const patch = toPatch(base, due, applied);
    if (!row) {
      const made = { ...base, ...patch };
      return (await rows.insert(made)) === 'inserted' && end(all, made);
    }
    const written = await rows.change(sameVersion(row), patch);
    return written !== undefined && end(all, written);
  }

  return frozen({
    apply: (change) =>
      new Promise<R | undefined>((resolve, reject) => {
        waiting.push({ change, resolve, reject });
        if (!running) void run();
      }),
  });
}

function end<R>(all: readonly Waiting<R>[], row: R | undefined): true {
  for (const one of all) one.resolve(row);
  return true;
}

/** One of each event that is neither in the row nor applied. */
function dueOf<R extends EventMarks>(
  { marks = [] }: R,
  all: readonly Waiting<R>[],
  applied: ReadonlySet<string>,
): Change<R>[] {
  const byEvent = new Map(all.map(({ change }) => [change.event, change]));
  return [...byEvent.values()].filter(({ event }) => !marks.includes(event) && !applied.has(event));
}

/** Only what changes: other fields of the row may have other writers. */
function toPatch<R extends Row & EventMarks>(
  base: R,
  due: readonly Change<R>[],
  applied: ReadonlySet<string>,
): Patch<R> {
  const patch = due.reduce<Patch<R>>((sum, change) => ({ ...sum, ...change.toPatch({ ...base, ...sum }) }), {});
  const marks = [...(base.marks ?? []).filter((event) => !applied.has(event)), ...due.map(({ event }) => event)];
  return { ...patch, version: (base.version ?? 0) + 1, marks };
}

// For a generic row TypeScript cannot see that these name its fields; these two say so, and nothing else does.

function idIn<R extends Row>(ids: readonly string[]): Filter<R> {
  const filter: Filter<Row> = { id: { in: ids } };
  return filter as Filter<R>;
}

function sameVersion<R extends Row & EventMarks>(row: R): Filter<R> {
  const filter: Filter<Row & EventMarks> = { id: row.id, version: row.version ?? null };
  return filter as Filter<R>;
}
