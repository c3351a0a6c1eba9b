import { COUNTS, type Counts, NO_COUNTS } from '../mail/stats.ts';
import { type Collection, filterOf, type Patch, type Row } from '../store/driver/port.ts';
import {
  type CounterRow,
  type CounterSpan,
  type CounterSubject,
  counterId,
  LONGEST_COUNTED_URL,
  SPANS_OF,
  startOf,
  URL_COUNTS,
  type UrlCounts,
  type UrlHourRow,
  type UrlRow,
  urlHourId,
  urlId,
  urlKey,
} from '../store/rows/counters.ts';
import {
  asText,
  type EventMarks,
  type MessageEventKind,
  type MessageEventRow,
  type SentMessageRow,
} from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';

const COUNT_OF: Readonly<Record<MessageEventKind, keyof Counts | undefined>> = {
  send: 'sent',
  hard_bounce: 'hardBounces',
  soft_bounce: 'softBounces',
  reject: 'rejects',
  spam: 'complaints',
  unsub: 'unsubs',
  open: 'opens',
  click: 'clicks',
  deferral: undefined, // not an outcome yet
  reply: undefined, // a reply is no outcome
};

/** The counts that an event adds. The first open or click of a message is unique. */
function amountsOf(event: MessageEventRow, message: SentMessageRow): Partial<Counts> {
  const count = COUNT_OF[event.kind];
  if (event.kind === 'open' && message.firstOpen === event.id) return { opens: 1, uniqueOpens: 1 };
  if (event.kind === 'click' && message.firstClick === event.id) return { clicks: 1, uniqueClicks: 1 };
  return count === undefined ? {} : { [count]: 1 };
}

/** The subjects that an event of a message is counted for. */
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

/** Adds numbers to a counter row; `at` is when they were first counted. */
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

/** One change per subject and span. */
function changesOf(event: MessageEventRow, message: SentMessageRow): Change<CounterRow>[] {
  const amounts = amountsOf(event, message);
  if (Object.keys(amounts).length === 0) return [];
  const { account, at } = event;
  const toPatch = adding(amounts, at);
  const isWanted = (span: CounterSpan) => span !== 'minute' || amounts.sent !== undefined;
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
 * Counts events for a message's account, sender, tags, template and subaccount. These are many rows, but a crash
 * between two of them leaves no trace: each row records the event, and the next try continues with the others. Until
 * then a total may exceed the sum of its hours.
 */
export function createEventCounting({ store }: { readonly store: Pick<Store, 'counters' | 'messageEvents'> }) {
  const once = createExactlyOnce({ rows: store.counters, events: store.messageEvents });
  /** Resolves when every counter has the event exactly once. `message` is the row with the event applied. */
  return async (event: MessageEventRow, message: SentMessageRow) => {
    await Promise.all(changesOf(event, message).map(once));
  };
}

interface UrlCountingDeps {
  readonly store: Pick<Store, 'urls' | 'urlHours' | 'messageEvents'>;
}

const NONE: UrlCounts = { sent: 0, clicks: 0, uniqueClicks: 0 };

/**
 * A sent message counts for each tracked link in it, a click for the link that was followed; the first click of a link
 * in a message is unique. A crash in between leaves no trace here either (`createExactlyOnce`).
 */
export function createUrlCounting({ store }: UrlCountingDeps) {
  const totals = createExactlyOnce<UrlRow>({ rows: store.urls, events: store.messageEvents });
  const hours = createExactlyOnce<UrlHourRow>({ rows: store.urlHours, events: store.messageEvents });

  async function add(event: MessageEventRow, url: string, key: string, amounts: Partial<UrlCounts>): Promise<void> {
    const { account, at, id } = event;
    const start = startOf('hour', at);
    const total = urlId(account, key);
    const hour = urlHourId(account, key, at);
    await Promise.all([
      totals({
        row: total,
        event: id,
        toPatch: (row) => ({ ...sumOf(row, amounts), lastHour: start > row.lastHour ? start : row.lastHour }),
        fresh: { ...NONE, id: total, account, url, lastHour: start },
      }),
      hours({
        row: hour,
        event: id,
        toPatch: (row) => sumOf(row, amounts),
        fresh: { ...NONE, id: hour, account, key, start },
      }),
    ]);
  }

  /** Resolves when every link has the event exactly once. `message` is the row with the event applied. */
  return async (event: MessageEventRow, message: SentMessageRow) => {
    await Promise.all(urlAmountsOf(event, message).map(({ url, amounts }) => add(event, url, urlKey(url), amounts)));
  };
}

/** The counts that an event adds, by link. */
function urlAmountsOf(
  event: MessageEventRow,
  message: SentMessageRow,
): { readonly url: string; readonly amounts: Partial<UrlCounts> }[] {
  if (event.kind === 'send') return (event.links ?? []).map((url) => ({ url, amounts: { sent: 1 } }));
  const url = event.kind === 'click' ? (asText(event.detail['url']) ?? '') : '';
  if (url === '' || url.length > LONGEST_COUNTED_URL) return [];
  const unique = message.firstClicks?.[urlKey(url)] === event.id;
  return [{ url, amounts: unique ? { clicks: 1, uniqueClicks: 1 } : { clicks: 1 } }];
}

function sumOf(row: UrlCounts, amounts: Partial<UrlCounts>): UrlCounts {
  const sums: { -readonly [C in keyof UrlCounts]: number } = { ...NONE };
  for (const name of URL_COUNTS) sums[name] = row[name] + (amounts[name] ?? 0);
  return sums;
}

/** The change that an event makes to one row. */
interface Change<R> {
  /** Id of the row. */
  readonly row: string;
  /** Id of the event. */
  readonly event: string;
  /** The changed fields, never `version` and `marks`. Pure: it may be called again. */
  toPatch(row: R): Patch<R>;
  /** The initial row if there is none; if omitted, a missing row is not created. */
  readonly fresh?: R;
}

interface ExactlyOnceDeps<R extends Row> {
  readonly rows: Collection<R>;
  readonly events: Pick<Collection<MessageEventRow>, 'many'>;
}

/** Changes per turn; the rest waits for the next. Each turn takes two queries, however many changes it has. */
const MAX_CHANGES = 1000;
/** Rounds lost to concurrent writers; it never takes this many. */
const MAX_ROUNDS = 50;

interface Waiting<R> {
  readonly change: Change<R>;
  resolve(row: R | undefined): void;
  reject(error: unknown): void;
}

/**
 * Applies changes exactly once, however often they are retried, by how many processes, and wherever one is interrupted.
 * The store can only change one row atomically, so each row lists the events in it (`marks`) and is written only if
 * unchanged since it was read (`version`). A mark may be removed once its event is applied (`appliedAt`), because then
 * nobody retries it; but a writer delayed since before that must not find the mark missing and count again. Therefore
 * rows are read first and events after them: an event not applied then was not applied when the row was read, so its
 * mark was still there; and an applied one is in the row already.
 *
 * Within a process, changes are batched while the store works: fifty events of one message or tag are one write.
 */
export function createExactlyOnce<R extends Row & EventMarks>({ rows, events }: ExactlyOnceDeps<R>) {
  const waiting: Waiting<R>[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    while (waiting.length > 0) {
      const turn = waiting.splice(0, MAX_CHANGES);
      try {
        await applyAll(turn);
      } catch (error) {
        for (const one of turn) one.reject(error); // no effect on those already resolved
      }
    }
    running = false;
  }

  async function applyAll(turn: readonly Waiting<R>[]): Promise<void> {
    let rest = [...Map.groupBy(turn, ({ change }) => change.row)];
    for (let round = 0; rest.length > 0; round++) {
      if (round === MAX_ROUNDS) throw new Error('a row could not be updated because of concurrent changes');
      const known = await rows.many(filterOf<Row, R>({ id: { in: rest.map(([id]) => id) } }));
      const applied = await appliedOf(
        rest.flatMap(([, all]) => all.map(({ change }) => change.event)),
        known,
      );
      const byId = new Map(known.map((row) => [row.id, row]));
      const done = await Promise.all(rest.map(([id, all]) => write(byId.get(id), all, applied)));
      rest = rest.filter((_, n) => done[n] === false);
    }
  }

  /** Which of these events, and of those marked in the rows, will not be retried; purged ones included. */
  async function appliedOf(tried: readonly string[], known: readonly R[]): Promise<ReadonlySet<string>> {
    const ids = new Set([...tried, ...known.flatMap(({ marks = [] }) => marks)]);
    for (const { id, appliedAt } of await events.many({ id: { in: [...ids] } })) if (appliedAt === null) ids.delete(id);
    return ids;
  }

  /** False: another writer was first, and the row must be read again. */
  async function write(row: R | undefined, all: readonly Waiting<R>[], applied: ReadonlySet<string>): Promise<boolean> {
    const base = row ?? all.find(({ change }) => change.fresh)?.change.fresh;
    const due = base ? dueOf(base, all, applied) : [];
    if (!base || due.length === 0) return end(all, row);
    const patch = toPatch(base, due, applied);
    if (!row) {
      const made = { ...base, ...patch };
      return (await rows.insert(made)) === 'inserted' && end(all, made);
    }
    const written = await rows.change(
      filterOf<Row & EventMarks, R>({ id: row.id, version: row.version ?? null }),
      patch,
    );
    return written !== undefined && end(all, written);
  }

  /** Resolves with the row once it has the event; undefined if there is no row. Throws the store's errors. */
  return (change: Change<R>) =>
    new Promise<R | undefined>((resolve, reject) => {
      waiting.push({ change, resolve, reject });
      if (!running) void run();
    });
}

function end<R>(all: readonly Waiting<R>[], row: R | undefined): true {
  for (const one of all) one.resolve(row);
  return true;
}

/** One change per event that is neither in the row nor applied. */
function dueOf<R extends EventMarks>(
  { marks = [] }: R,
  all: readonly Waiting<R>[],
  applied: ReadonlySet<string>,
): Change<R>[] {
  const byEvent = new Map(all.map(({ change }) => [change.event, change]));
  return [...byEvent.values()].filter(({ event }) => !marks.includes(event) && !applied.has(event));
}

/** Only the changed fields: others may have other writers. */
function toPatch<R extends Row & EventMarks>(
  base: R,
  due: readonly Change<R>[],
  applied: ReadonlySet<string>,
): Patch<R> {
  const patch = due.reduce<Patch<R>>((sum, change) => ({ ...sum, ...change.toPatch({ ...base, ...sum }) }), {});
  const marks = [...(base.marks ?? []).filter((event) => !applied.has(event)), ...due.map(({ event }) => event)];
  return { ...patch, version: (base.version ?? 0) + 1, marks };
}
