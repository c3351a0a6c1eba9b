import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { MessageEventRow } from '../store/message-events.ts';
import type { SentMessageRow } from '../store/messages.ts';
import type { Store } from '../store/store.ts';
import { subaccountId } from '../store/subaccounts.ts';
import { createCounting } from './counting.ts';
import { createOnce } from './once.ts';
import { outcomeOf, REASON_OF, textOf } from './outcome.ts';
import type { Lists, Outbox } from './types.ts';
import { createUrlCounting } from './url-counting.ts';

export interface ApplyDeps {
  readonly store: Pick<Store, 'messages' | 'messageEvents' | 'counters' | 'subaccounts' | 'urls' | 'urlHours'>;
  readonly lists: Pick<Lists, 'reject'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly log: Log;
}

/** Brings an event that is recorded to where it belongs. Throws when the store is away; what was done by then is not done again. */
export type Apply = (event: MessageEventRow) => Promise<void>;

/**
 * The message, the rejection list, the counters, the webhooks, and only then the mark that all have it (`appliedAt`). Cut off
 * between any two of these, the event is applied again as a whole: the message and the counters know that they have it
 * (once.ts), the list knows its last event, and webhooks get the same event under the same id once more.
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
