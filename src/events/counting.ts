import {
  COUNTS,
  type Counted,
  type CounterRow,
  type Counts,
  counterId,
  NO_COUNTS,
  SPANS_OF,
  type Span,
  startOf,
} from '../store/counters.ts';
import type { MessageEventKind, MessageEventRow } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import type { Store } from '../store/store.ts';
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
  return Object.freeze({
    async count(event: MessageEventRow, message: SentMessageRow) {
      await Promise.all(changesOf(event, message).map((change) => once.apply(change)));
    },
  });
}
