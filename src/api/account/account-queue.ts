import { readFile } from 'node:fs/promises';
import { type Bytes, sizeOf } from '../../base/bytes.ts';
import { hasCode } from '../../base/errors.ts';
import type { AcceptResult, Arrival, RoutedRecipient } from '../../inbound/types.ts';
import {
  type AttemptRecord,
  type DeliveryKind,
  type Endpoint,
  kindsOf,
  type Message,
  type QueuedDelivery,
  type Selection,
  writeAll,
} from '../../queue/delivery.ts';
import type { LaneView, PreparingDelivery } from '../../queue/insight.ts';
import { type WaitReason, waitReason } from '../../queue/wait-reason.ts';
import type { Submission, SubmitOutcome } from '../../sending/types.ts';
import type { AccountRow } from '../../store/rows/accounts.ts';
import type { ScheduledRow } from '../../store/rows/messages.ts';
import { type WebhookRow, webhookNumber } from '../../store/rows/webhooks.ts';
import { invalid } from '../errors.ts';
import type { Deps } from './account.ts';

/** A delivery of inbound mail with its message. */
export interface QueuedMail {
  readonly delivery: QueuedDelivery;
  readonly message: Message;
  readonly body: Bytes;
}

/** A selection of inbound mail; for batches of events, see `bindWebhooks`. */
type OwnSelection = Omit<Selection, 'account' | 'kinds' | 'webhook'>;

/** Inbound mail of one account on this host's queue. */
export function bindQueue(deps: Deps<'spool' | 'acceptance' | 'log'>, account: string) {
  const { spool } = deps;
  const own = (selection: OwnSelection) => ({ ...selection, account, kinds: kindsOf('route') });
  return {
    backlog: () => spool.backlog(account),
    deliveries: (selection: OwnSelection, limit: number) => spool.list(own(selection), limit),
    attempts: async (delivery: QueuedDelivery) =>
      delivery.account === account ? await spool.attempts(delivery.id) : [],
    /** The findings of the scanners about the message of a delivery; undefined if it was not scanned. */
    scanOf: async (delivery: QueuedDelivery) =>
      delivery.account === account ? await spool.scanOf(delivery.messageId) : undefined,
    /** A delivery with its message; undefined if it is not inbound mail of the account, or no longer kept. */
    async message(id: string): Promise<QueuedMail | undefined> {
      const delivery = await spool.delivery(id);
      if (delivery?.account !== account || !kindsOf('route').includes(delivery.kind)) return undefined;
      const found = await spool.message(delivery.messageId);
      return found && { delivery, ...found };
    },
    /** Redirects queued deliveries of a route to another URL. The route must come from the account's store. */
    async redirect(route: { readonly id: string; readonly account: string }, url: string) {
      if (route.account === account) await spool.redirect(route.id, url);
    },
    /** Takes responsibility for a message. */
    accept: (arrival: Arrival, routed: readonly RoutedRecipient[], bytes: Uint8Array) =>
      accept(deps, arrival, routed, bytes),
  };
}

async function accept(
  { spool, acceptance, log }: Deps<'spool' | 'acceptance' | 'log'>,
  arrival: Arrival,
  routed: readonly RoutedRecipient[],
  bytes: Uint8Array,
): Promise<AcceptResult> {
  if (!spool.hasRoom() || !routed.every(({ match }) => spool.isWithinShare(match.account))) return { outcome: 'full' };
  const { messageId, body } = acceptance.begin();
  try {
    await writeAll(body, bytes);
    return await acceptance.accept(messageId, arrival, routed, await body.finish());
  } catch (error) {
    await body.abort();
    log.error('api.fault', { part: 'acceptance', error });
    return { outcome: 'fault' };
  }
}

/** The state of an endpoint on this host. */
export interface KnownEndpoint {
  readonly kind: DeliveryKind;
  readonly waiting: number;
  /** Undefined if nothing was posted to it recently. */
  readonly lane: LaneView | undefined;
}

/** The endpoints of one account's routes and webhooks on this host. */
export function bindEndpoints(
  { spool, scanning, dispatcher, pauses, clock }: Deps<'spool' | 'scanning' | 'dispatcher' | 'pauses' | 'clock'>,
  account: string,
) {
  const kinds = kindsOf('route', 'webhook');
  const isOurs = (endpoint: Endpoint) => endpoint.account === account && kinds.includes(endpoint.kind);
  /** Returns, by URL, the endpoints that have waiting deliveries, were used recently, are down, or are paused. */
  function known(isWanted: (endpoint: Endpoint) => boolean): ReadonlyMap<string, KnownEndpoint> {
    const found = new Map<string, KnownEndpoint>();
    for (const lane of dispatcher.lanes(isWanted)) found.set(lane.url, { kind: lane.kind, waiting: 0, lane });
    for (const { url, kind, waiting } of spool.waitingOf(account).filter(isWanted))
      found.set(url, { kind, waiting, lane: found.get(url)?.lane });
    return found;
  }
  return {
    all: () => known(isOurs),
    one: (url: string) => known((endpoint) => endpoint.url === url && isOurs(endpoint)).get(url),
    /** When the oldest waiting delivery to each of these URLs was accepted. */
    oldest: (urls: readonly string[]) => spool.oldestOf(account, urls),
    history: (url: string) => spool.history({ account, url }, clock.now()),
    preparing: (url: string) => dispatcher.preparing({ account, url }),
    /** Why a delivery to one of them is not delivered yet. `preparing`: undefined if it is not being prepared. */
    async waitReason(
      delivery: QueuedDelivery,
      preparing: PreparingDelivery | undefined,
    ): Promise<WaitReason | undefined> {
      const { url, messageId, kind, attempts } = delivery;
      const isScanned =
        !scanning || kind !== 'inbound' || attempts > 0 || (await spool.scanOf(messageId)) !== undefined;
      const [endpoint] = dispatcher.lanes((one) => one.account === account && one.url === url);
      const scanner = isScanned ? undefined : scanning.waitsFor(messageId);
      return waitReason(delivery, { endpoint, preparing, scanner, now: clock.now() });
    },
    /** The number of paused endpoints, up to `most`. */
    paused: (most: number) => pauses.count(account, most),
    /** If the operator has paused it, changes nothing and returns when that pause ends. So does `resume`. */
    pause: (url: string, kind: DeliveryKind, until: number) => pauses.pause({ account, url, kind }, until, 'account'),
    resume: (url: string) => pauses.resume({ account, url }, 'account'),
    retry: (url: string) => dispatcher.retry({ account, url }),
  };
}

/** A queued message with its delivery and its bytes. */
export interface MessageContent {
  readonly delivery: QueuedDelivery;
  readonly message: Message;
  readonly bytes: Buffer;
}

/** Mail that one account sends. Rows passed in must come from the account's store. */
export function bindMessages(
  deps: Deps<'limits' | 'submitting' | 'scheduling' | 'releasing' | 'spool' | 'dispatcher' | 'clock'>,
  account: string,
) {
  const { limits, submitting, scheduling, releasing, spool, dispatcher, clock } = deps;
  const waiting = (id: string): Selection => ({ ids: [id], account, kinds: kindsOf('sender'), states: ['waiting'] });
  return {
    async submit(submission: Omit<Submission, 'account'>): Promise<SubmitOutcome> {
      await limits.check(account, submission.sendAt === null ? undefined : 'scheduled');
      if (!spool.isWithinShare(account))
        throw invalid({
          account:
            'The waiting mail of the account takes its whole share of the disk; wait until some of it has ' +
            'left, or delete some',
        });
      return submitting.submit({ ...submission, account });
    },
    /**
     * The content of a message that is still on this host's queue; undefined if it is gone or larger than `maxBytes`.
     */
    async content(id: string, maxBytes: number): Promise<MessageContent | undefined> {
      const delivery = await spool.delivery(id);
      if (delivery?.account !== account) return undefined;
      const found = await spool.message(delivery.messageId);
      if (!found || sizeOf(found.body) > maxBytes) return undefined;
      const bytes = found.body.kind === 'file' ? await readBlob(found.body.path) : Buffer.from(found.body.bytes);
      return bytes && { delivery, message: found.message, bytes };
    },
    /** A delivery with its attempts; undefined if this host's queue no longer has it. */
    async delivery(id: string): Promise<{ delivery: QueuedDelivery; attempts: AttemptRecord[] } | undefined> {
      const delivery = await spool.delivery(id);
      return delivery?.account === account ? { delivery, attempts: await spool.attempts(id) } : undefined;
    },
    /** Makes a waiting delivery due now, and probes its destination if that is down. False if it does not wait here. */
    async retry(id: string): Promise<boolean> {
      const [delivery] = await spool.list(waiting(id), 1);
      if (!delivery || (await spool.retry(waiting(id), clock.now())) === 0) return false;
      dispatcher.probe({ account, url: delivery.url });
      return true;
    },
    /** Ends a waiting delivery without another attempt. False if it does not wait here. */
    stop: async (id: string): Promise<boolean> => (await spool.drop(waiting(id), clock.now())) > 0,
    cancel: (row: ScheduledRow) => scheduling.cancel(row),
    move: (row: ScheduledRow, at: Date) => scheduling.move(row, at),
    /** Holds the mail of a paused subaccount. */
    hold: (subaccount: string) => releasing.hold(account, subaccount),
    /** Releases the mail of a subaccount that this host held back. */
    async release(subaccount: string) {
      await releasing.release(account, subaccount);
    },
  };
}

/** Undefined if the file was deleted meanwhile. */
async function readBlob(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** The queues and caches of one account's webhooks. Rows passed in must come from the account's store. */
export function bindWebhooks(
  deps: Deps<'store' | 'spool' | 'outbox' | 'clock' | 'ids' | 'log'>,
  account: Pick<AccountRow, 'id' | 'number'>,
) {
  const { store, spool, outbox, clock, ids, log } = deps;
  return {
    /** Returns a new webhook number; numbers are never reused. */
    async newNumber() {
      return webhookNumber(
        account.number,
        (await store.revisions.add(`webhooks:${account.id}`, { count: 1 }, { count: 0 })).count,
      );
    },
    /** Drops the cached webhooks, so that new events see the changed rows. */
    changed: () => outbox.forget(account.id),
    /** Redirects its queued batches to its current URL. */
    moved: ({ id, url }: WebhookRow) => spool.events.redirect(id, url),
    /** Drops its queued events and deletes its tallies. */
    async deleted({ id }: WebhookRow) {
      await spool.events.forget(id, clock.now());
      while (await store.webhookTallies.remove({ account: account.id, webhook: id }));
    },
    /**
     * Queues a batch of events (each a JSON text) and returns the id of its delivery; undefined if the queue cannot
     * accept it now.
     */
    async send({ id, url }: WebhookRow, events: readonly string[]) {
      const wanted = { hook: { id, account: account.id, url }, events: events.map((body) => ({ id: '', body })) };
      try {
        return (await spool.events.send(wanted, ids.message(), clock.now())).id;
      } catch (error) {
        log.error('api.fault', { part: 'webhooks', error });
        return undefined;
      }
    },
    /** Lists batches of events, newest first. */
    batches: (selection: Omit<Selection, 'account' | 'kinds'>, limit: number) =>
      spool.list({ ...selection, account: account.id, kinds: ['events'] }, limit),
  };
}
