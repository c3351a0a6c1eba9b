import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { MOST_COUNTED_URLS, urlKey } from '../store/rows/counters.ts';
import type { Reason } from '../store/rows/lists.ts';
import type { MessageEventKind, MessageEventRow, SentMessageRow, SentState } from '../store/rows/messages.ts';
import { subaccountId } from '../store/rows/subaccounts.ts';
import type { UnsentEvent } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import { createCounting, createOnce, createUrlCounting } from './counting.ts';

import type { Lists } from './lists.ts';

/** Where events leave the store: onto the spool, for every webhook of the account that asked for them. */
export interface Outbox {
  /**
   * Resolves when they are durable on the spool (or no webhook wants them); then the row may forget them. Throws when
   * they are not.
   */
  publish(account: string, events: readonly UnsentEvent[]): Promise<void>;
}

export interface ApplyDeps {
  readonly store: Pick<Store, 'messages' | 'messageEvents' | 'counters' | 'subaccounts' | 'urls' | 'urlHours'>;
  readonly lists: Pick<Lists, 'reject'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Brings an event that is recorded to where it belongs. Throws when the store is away; what was done by then is not
 * done again.
 */
type Apply = (event: MessageEventRow) => Promise<void>;

/**
 * The message, the rejection list, the counters, the webhooks, and only then the mark that all have it (`appliedAt`).
 * Cut off between any two of these, the event is applied again as a whole: the message and the counters know that they
 * have it (counting.ts), the list knows its last event, and webhooks get the same event under the same id once more.
 */
export function createApply(deps: ApplyDeps): Apply {
  const { store, clock } = deps;
  const messages = createOnce({ rows: store.messages, events: store.messageEvents });
  const counting = createCounting({ store });
  const urlCounting = createUrlCounting({ store });

  async function spread(event: MessageEventRow, message: SentMessageRow): Promise<void> {
    const { account, subaccount } = message;
    // A subaccount that is deleted gets neither numbers nor rejects again, because another may be made with its id.
    const deleted = subaccount !== null && !(await store.subaccounts.one({ id: subaccountId(account, subaccount) }));
    if (!deleted) {
      await suppress(deps, event, message);
      await markFirstSend(deps, event, message);
    }
    await counting.count(event, deleted ? { ...message, subaccount: null } : message);
    await urlCounting.count(event, message);
  }

  return async (event) => {
    const message = await messages.apply({
      row: event.message,
      event: event.id,
      toPatch: (row) => outcomeOf(event, row),
    });
    // Gone: the account's messages were purged meanwhile, and there is nothing left that it could be counted of.
    if (message) await spread(event, message);
    const sent = await publish(deps, event);
    await store.messageEvents.change(
      { id: event.id },
      { appliedAt: new Date(clock.now()), ...(sent && { unsent: null, unsentSince: null }) },
    );
  };
}

async function suppress({ lists }: ApplyDeps, event: MessageEventRow, message: SentMessageRow): Promise<void> {
  const reason = REASON_OF[event.kind];
  if (!reason) return;
  await lists.reject({
    account: event.account,
    email: message.email,
    subaccount: message.subaccount ?? '',
    reason,
    detail: textOf(event.detail['diag']),
    sender: message.sender,
    at: event.at,
    eventId: event.id,
  });
}

async function markFirstSend(
  { store }: ApplyDeps,
  { kind, account, at }: MessageEventRow,
  { subaccount }: SentMessageRow,
): Promise<void> {
  if (kind !== 'send' || subaccount === null) return;
  await store.subaccounts.change({ id: subaccountId(account, subaccount), firstSentAt: null }, { firstSentAt: at });
}

/** False: the spool did not take it, so the row keeps it and the sweep of the outbox sends it. */
async function publish({ outbox, log }: ApplyDeps, { account, kind, unsent }: MessageEventRow): Promise<boolean> {
  try {
    if (unsent)
      await outbox.publish(
        account,
        unsent.map((event) => ({ ...event, at: new Date(event.at) })),
      );
    return true;
  } catch (error) {
    log.warn('event.unsent', { account, kind, error });
    return false;
  }
}

/** Opens and clicks that are kept with a message one by one; the numbers count all. */
const MOST_DETAILS = 100;

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
 * Events come in no particular order, and one that was cut off comes minutes late. So the state is the last of these
 * that the message ever had, whatever came first.
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
const REASON_OF: Readonly<Partial<Record<MessageEventKind, Reason>>> = {
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
