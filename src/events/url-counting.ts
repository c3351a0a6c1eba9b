import { startOf } from '../store/counters.ts';
import type { MessageEventRow } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import type { Store } from '../store/store.ts';
import {
  LONGEST_COUNTED_URL,
  URL_COUNTS,
  type UrlCounts,
  type UrlHourRow,
  type UrlRow,
  urlHourId,
  urlId,
  urlKey,
} from '../store/urls.ts';
import { createOnce } from './once.ts';
import { textOf } from './outcome.ts';

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

  return Object.freeze({
    async count(event: MessageEventRow, message: SentMessageRow) {
      await Promise.all(amountsOf(event, message).map(({ url, amounts }) => add(event, url, urlKey(url), amounts)));
    },
  });
}

/** What an event adds, and to which links. */
function amountsOf(
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
