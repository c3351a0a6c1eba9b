import { frozen } from '../base/frozen.ts';
import {
  COUNTS,
  type Counted,
  type CounterRow,
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
import type { MessageEventKind, MessageEventRow, SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import { textOf } from './apply.ts';
import { type Change, createOnce } from './once.ts';

/** Brings events into the counters. */
export interface Counting {
  /** Resolves when every counter has the event, each exactly once. `message` is the row as it is with the event in it. */
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
function countedOf({ account, sender, tags, template, subaccount }: SentMessageRow): [Counted, string][] {
  const things: [Counted, string][] = [
    ['account', account],
    ['sender', sender],
    ...tags.map((tag): [Counted, string] => ['tag', tag]),
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
 * The counters of the account, of the sender, of each tag, of the template and of the subaccount of a message. They are many
 * rows, and no crash between two of them shows in the end: a row that has the event says so, and the next try goes on with
 * the others. Until then a total may be ahead of an hour.
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
export interface UrlCounting {
  /** Resolves when every link has the event, exactly once. `message` is the row as it is with the event in it. */
  count(event: MessageEventRow, message: SentMessageRow): Promise<void>;
}

export interface UrlCountingDeps {
  readonly store: Pick<Store, 'urls' | 'urlHours' | 'messageEvents'>;
}

const NONE: UrlCounts = { sent: 0, clicks: 0, uniqueClicks: 0 };

/**
 * A sent message counts for each tracked link in it, a click for the link that was followed; a click is unique when it is the
 * first of that link in its message. As with the other counters, no crash in between shows in the end (once.ts).
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
