import type { MessageEventKind, MessageEventRow } from '../store/message-events.ts';
import type { SentMessageRow, SentState } from '../store/messages.ts';
import type { Reason } from '../store/rejects.ts';
import { MOST_COUNTED_URLS, urlKey } from '../store/urls.ts';

/** Opens and clicks that are kept with a message one by one; the numbers count all. */
export const MOST_DETAILS = 100;

/** What an event makes of a message; an open or a click leaves its state alone. */
const STATES: Readonly<Partial<Record<MessageEventKind, SentState>>> = {
  send: 'sent',
  deferral: 'deferred',
  hard_bounce: 'bounced',
  soft_bounce: 'soft-bounced',
  reject: 'rejected',
  spam: 'spam',
  unsub: 'unsub',
};

/**
 * Events come in no particular order, and one that was cut off comes minutes late. So the state is the last of these that the
 * message ever had, whatever came first.
 */
const ORDER: readonly SentState[] = [
  'queued',
  'deferred',
  'sent',
  'rejected',
  'soft-bounced',
  'bounced',
  'unsub',
  'spam',
];

/** Why an event puts the recipient on the rejection list. */
export const REASON_OF: Readonly<Partial<Record<MessageEventKind, Reason>>> = {
  hard_bounce: 'hard-bounce',
  soft_bounce: 'soft-bounce',
  spam: 'spam',
  unsub: 'unsub',
};

/** What an event changes of its message. */
export function outcomeOf(event: MessageEventRow, message: SentMessageRow): Partial<Omit<SentMessageRow, 'id'>> {
  const ts = Math.floor(event.at.getTime() / 1000);
  const state = laterState(message.state, STATES[event.kind]);
  switch (event.kind) {
    case 'open':
      return {
        opens: message.opens + 1,
        firstOpen: message.firstOpen ?? event.id,
        openDetail: latest([...message.openDetail, { ts }]),
      };
    case 'click': {
      const url = textOf(event.detail['url']) ?? '';
      return {
        clicks: message.clicks + 1,
        firstClick: message.firstClick ?? event.id,
        firstClicks: withFirstClick(message.firstClicks ?? {}, urlKey(url), event.id),
        clickDetail: latest([...message.clickDetail, { ts, url }]),
      };
    }
    case 'hard_bounce':
    case 'soft_bounce':
      return { state, diag: textOf(event.detail['diag']), bounceDescription: textOf(event.detail['description']) };
    default:
      return { state };
  }
}

/** Which event was the first click of each link; of more links than are counted the others have none. */
function withFirstClick(
  known: Readonly<Record<string, string>>,
  key: string,
  event: string,
): Readonly<Record<string, string>> {
  return known[key] !== undefined || Object.keys(known).length >= MOST_COUNTED_URLS
    ? known
    : { ...known, [key]: event };
}

function laterState(present: SentState, next: SentState | undefined): SentState {
  return next !== undefined && ORDER.indexOf(next) > ORDER.indexOf(present) ? next : present;
}

function latest<T>(details: readonly T[]): readonly T[] {
  return details.slice(-MOST_DETAILS);
}

/** A detail that should be a text. */
export function textOf(value: string | number | null | undefined): string | null {
  return value === undefined || value === null ? null : String(value);
}
