import type { Tools } from '../base/tools.ts';
import type { RejectReason } from '../mail/suppression.ts';
import { MAX_COUNTED_URLS, urlKey } from '../store/rows/counters.ts';
import {
  asText,
  type MessageEventKind,
  type MessageEventRow,
  type SentMessageRow,
  type SentState,
} from '../store/rows/messages.ts';
import { subaccountId } from '../store/rows/subaccounts.ts';
import type { UnsentEvent } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import { createEventCounting, createExactlyOnce, createUrlCounting } from './counting.ts';

import type { Lists } from './lists.ts';

/** Puts events on the spool for every subscribed webhook of the account. */
export interface Outbox {
  /** Resolves when they are durable on the spool (or no webhook wants them), and the row may drop them. Else throws. */
  publish(account: string, events: readonly UnsentEvent[]): Promise<void>;
}

export interface ApplyDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'messages' | 'messageEvents' | 'counters' | 'subaccounts' | 'urls' | 'urlHours'>;
  readonly lists: Pick<Lists, 'reject'>;
  readonly outbox: Outbox;
}

/** Applies a recorded event. Throws if the store is unavailable; completed steps are not repeated. */
type Apply = (event: MessageEventRow) => Promise<void>;

/**
 * Updates the message, the rejection list, the counters and the webhooks, and only then marks the event as applied
 * (`appliedAt`). After an interruption the whole event is applied again: message and counters have a mark of it
 * (counting.ts), the list its last event, and webhooks get it again under the same id.
 */
export function createApply(deps: ApplyDeps): Apply {
  const { store, clock } = deps;
  const applyOnce = createExactlyOnce({ rows: store.messages, events: store.messageEvents });
  const count = createEventCounting({ store });
  const countUrls = createUrlCounting({ store });

  async function updateRelated(event: MessageEventRow, message: SentMessageRow): Promise<void> {
    const { account, subaccount } = message;
    // A deleted subaccount gets no numbers or rejects, because its id may be reused.
    const deleted = subaccount !== null && !(await store.subaccounts.one({ id: subaccountId(account, subaccount) }));
    if (!deleted) {
      await suppress(deps, event, message);
      await markFirstSend(deps, event, message);
    }
    await count(event, deleted ? { ...message, subaccount: null } : message);
    await countUrls(event, message);
  }

  return async (event) => {
    const message = await applyOnce({
      row: event.message,
      event: event.id,
      toPatch: (row) => messageChangesOf(event, row),
    });
    // Missing: the account's messages were purged meanwhile, and there is nothing to count.
    if (message) await updateRelated(event, message);
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
    detail: asText(event.detail['diag']),
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

/** False: the spool refused them, so the row keeps them and the outbox sweep sends them. */
async function publish({ outbox, log }: ApplyDeps, { account, kind, unsent }: MessageEventRow): Promise<boolean> {
  try {
    if (unsent) await outbox.publish(account, unsent);
    return true;
  } catch (error) {
    log.warn('event.unsent', { account, kind, error });
    return false;
  }
}

/** Opens and clicks kept individually with a message; the numbers count all. */
const MAX_DETAILS = 100;

/** The new state of a message by event; opens and clicks do not change it. */
const STATES: Readonly<Partial<Record<MessageEventKind, SentState>>> = {
  send: 'sent',
  deferral: 'deferred',
  hard_bounce: 'bounced',
  soft_bounce: 'soft-bounced',
  reject: 'rejected',
  spam: 'spam',
  unsub: 'unsub',
};

/** Events come in any order, interrupted ones minutes late: the state is the last of these that the message had. */
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

/** The reason for which an event puts the recipient on the rejection list. */
const REASON_OF: Readonly<Partial<Record<MessageEventKind, RejectReason>>> = {
  hard_bounce: 'hard-bounce',
  soft_bounce: 'soft-bounce',
  spam: 'spam',
  unsub: 'unsub',
};

/** The changes that an event makes to its message. */
export function messageChangesOf(event: MessageEventRow, message: SentMessageRow): Partial<Omit<SentMessageRow, 'id'>> {
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
      const url = asText(event.detail['url']) ?? '';
      return {
        clicks: message.clicks + 1,
        firstClick: message.firstClick ?? event.id,
        firstClicks: withFirstClick(message.firstClicks ?? {}, urlKey(url), event.id),
        clickDetail: latest([...message.clickDetail, { ts, url }]),
      };
    }
    case 'hard_bounce':
    case 'soft_bounce':
      return { state, diag: asText(event.detail['diag']), bounceDescription: asText(event.detail['description']) };
    default:
      return { state };
  }
}

/** Records the first click of each link, up to `MAX_COUNTED_URLS` links. */
function withFirstClick(
  known: Readonly<Record<string, string>>,
  key: string,
  event: string,
): Readonly<Record<string, string>> {
  return known[key] !== undefined || Object.keys(known).length >= MAX_COUNTED_URLS ? known : { ...known, [key]: event };
}

function laterState(present: SentState, next: SentState | undefined): SentState {
  return next !== undefined && ORDER.indexOf(next) > ORDER.indexOf(present) ? next : present;
}

function latest<T>(details: readonly T[]): readonly T[] {
  return details.slice(-MAX_DETAILS);
}
