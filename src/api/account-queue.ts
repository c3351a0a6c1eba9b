import { readFile } from 'node:fs/promises';
import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Acceptance, AcceptResult, Arrival, RoutedRecipient } from '../inbound/types.ts';
import type { AttemptRecord, Message, QueuedDelivery, Selection, Spool } from '../queue/delivery.ts';
import type { Releasing } from '../sending/leave.ts';
import type { Scheduling, WishOutcome } from '../sending/scheduling.ts';
import type { Submission, SubmitOutcome, Submitting } from '../sending/types.ts';
import type { ScheduledRow } from '../store/rows/messages.ts';
import { type WebhookRow, webhookNumber } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { AccountLimits } from './account-limits.ts';

export interface QueueDeps {
  readonly spool: Spool;
  readonly acceptance: Acceptance;
  readonly clock: Clock;
  readonly log: Log;
}

/** Of inbound mail: batches of events are asked for by `webhooks`. */
type OwnSelection = Omit<Selection, 'account' | 'kind' | 'webhook'>;

/** Inbound mail of one account on this host's spool. */
export interface AccountQueue {
  backlog(): number;
  deliveries(selection: OwnSelection, limit: number): Promise<QueuedDelivery[]>;
  attempts(delivery: QueuedDelivery): Promise<AttemptRecord[]>;
  replay(selection: OwnSelection): Promise<number>;
  /** Sends what waits for a route to another URL. The route must have been found in the account's store. */
  redirect(route: { readonly id: string; readonly account: string }, url: string): Promise<void>;
  /** Takes responsibility for a message. */
  accept(arrival: Arrival, routed: readonly RoutedRecipient[], bytes: Uint8Array): Promise<AcceptResult>;
}

const CHUNK_BYTES = 65_536;

/** Binds it to an account. */
export function bindQueue(deps: QueueDeps, account: string): AccountQueue {
  const { spool, clock } = deps;
  const own = (selection: OwnSelection) => ({ ...selection, account, kinds: ['inbound'] as const });
  return {
    backlog: () => spool.backlog(account),
    deliveries: (selection, limit) => spool.list(own(selection), limit),
    attempts: (delivery) => (delivery.account === account ? spool.attempts(delivery.id) : Promise.resolve([])),
    replay: (selection) => spool.replay(own(selection), clock.now()),
    async redirect(route, url) {
      if (route.account === account) await spool.redirect(route.id, url);
    },
    accept: (arrival, routed, bytes) => accept(deps, arrival, routed, bytes),
  };
}

async function accept(
  { spool, acceptance, log }: QueueDeps,
  arrival: Arrival,
  routed: readonly RoutedRecipient[],
  bytes: Uint8Array,
): Promise<AcceptResult> {
  if (!spool.hasRoom()) return { outcome: 'full' };
  const { messageId, body } = acceptance.begin();
  try {
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) await body.write(bytes.subarray(at, at + CHUNK_BYTES));
    return await acceptance.accept(messageId, arrival, routed, await body.finish());
  } catch (error) {
    await body.abort();
    log.error('api.fault', { part: 'acceptance', error });
    return { outcome: 'fault' };
  }
}

export interface MessageDeps {
  readonly limits: Pick<AccountLimits, 'check'>;
  readonly submitting: Submitting;
  readonly scheduling: Pick<Scheduling, 'cancel' | 'move'>;
  readonly releasing: Releasing;
  readonly spool: Pick<Spool, 'delivery' | 'message'>;
}

/** What this host's spool has of a message. */
export interface Kept {
  readonly delivery: QueuedDelivery;
  readonly message: Message;
  readonly bytes: Buffer;
}

/** Mail that one account sends. A row that is handed over must have been found in the account's store. */
export interface AccountMessages {
  submit(submission: Omit<Submission, 'account'>): Promise<SubmitOutcome>;
  /** What a message was made of, while this host's spool has it; undefined when it is gone, or larger than `maxBytes`. */
  kept(delivery: string, maxBytes: number): Promise<Kept | undefined>;
  cancel(row: ScheduledRow): Promise<WishOutcome>;
  move(row: ScheduledRow, at: Date): Promise<WishOutcome>;
  /** Lets no mail of a subaccount leave that was paused. */
  hold(subaccount: string): void;
  /** Lets mail of a subaccount leave that this host held back. */
  release(subaccount: string): Promise<void>;
}

/** Binds them to an account. */
export function bindMessages(
  { limits, submitting, scheduling, releasing, spool }: MessageDeps,
  account: string,
): AccountMessages {
  return {
    async submit(submission) {
      await limits.check(account, submission.sendAt === null ? undefined : 'scheduled');
      return submitting.submit({ ...submission, account });
    },
    async kept(id, maxBytes) {
      const delivery = await spool.delivery(id);
      if (delivery?.account !== account) return undefined;
      const found = await spool.message(delivery.messageId);
      if (!found || sizeOf(found.body) > maxBytes) return undefined;
      const bytes = found.body.kind === 'blob' ? await readBlob(found.body.path) : Buffer.from(found.body.bytes);
      return bytes && { delivery, message: found.message, bytes };
    },
    cancel: (row) => scheduling.cancel(row),
    move: (row, at) => scheduling.move(row, at),
    hold: (subaccount) => releasing.hold(account, subaccount),
    async release(subaccount) {
      await releasing.release(account, subaccount);
    },
  };
}

function sizeOf(
  body: { readonly kind: 'inline'; readonly bytes: Uint8Array } | { readonly kind: 'blob'; readonly size: number },
): number {
  return body.kind === 'blob' ? body.size : body.bytes.byteLength;
}

/** Undefined when it was forgotten in this moment. */
async function readBlob(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

export interface WebhookDeps {
  readonly store: Pick<Store, 'revisions' | 'webhookTallies'>;
  readonly spool: Spool;
  /** What remembers the webhooks of accounts. */
  readonly outbox: { forget(account: string): void };
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** The webhooks of one account beside their rows. A row that is handed over must have been found in the account's store. */
export interface AccountWebhooks {
  /** A number that was never given out. */
  newNumber(): Promise<number>;
  /** Events go by what the store says from now on. */
  changed(): void;
  /** What waits for it goes to its present URL. */
  moved(row: WebhookRow): Promise<void>;
  /** What waits for it is dropped, and what was counted for it is forgotten. */
  deleted(row: WebhookRow): Promise<void>;
  /** Puts a batch of events, JSON texts each, onto the spool and answers its delivery's id; undefined when the spool cannot take it now. */
  send(row: WebhookRow, events: readonly string[]): Promise<string | undefined>;
  /** Batches of events, the newest first. */
  batches(selection: Omit<Selection, 'account' | 'kind'>, limit: number): Promise<QueuedDelivery[]>;
}

/** Binds them to an account. */
export function bindWebhooks(
  deps: WebhookDeps,
  account: { readonly id: string; readonly number: number },
): AccountWebhooks {
  const { store, spool, outbox, clock, ids, log } = deps;
  return {
    async newNumber() {
      return webhookNumber(
        account.number,
        (await store.revisions.add(`webhooks:${account.id}`, { count: 1 }, { count: 0 })).count,
      );
    },
    changed: () => outbox.forget(account.id),
    moved: ({ id, url }) => spool.events.redirect(id, url),
    async deleted({ id }) {
      await spool.events.forget(id, clock.now());
      while (await store.webhookTallies.remove({ account: account.id, webhook: id }));
    },
    async send({ id, url }, events) {
      const wanted = { hook: { id, account: account.id, url }, events: events.map((body) => ({ id: '', body })) };
      try {
        return (await spool.events.send(wanted, ids.message(), clock.now())).id;
      } catch (error) {
        log.error('api.fault', { part: 'webhooks', error });
        return undefined;
      }
    },
    batches: (selection, limit) => spool.list({ ...selection, account: account.id, kinds: ['events'] }, limit),
  };
}
