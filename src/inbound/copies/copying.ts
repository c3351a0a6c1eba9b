import { sizeOf } from '../../base/bytes.ts';
import { createBoundedCache } from '../../base/cache.ts';
import { frozen } from '../../base/frozen.ts';
import { namesOf, tableOf } from '../../base/tables.ts';
import type { Tools } from '../../base/tools.ts';
import { type Delivery, KINDS, type NewMessage, type Spool } from '../../queue/delivery.ts';
import { STATES } from '../../queue/states.ts';
import type { Membership } from '../../store/membership.ts';
import type { Store } from '../../store/store.ts';
import type { AcceptingQueue } from '../types.ts';
import { createDeliveryWaits, type DeliveryWait, type DeliveryWaits } from './delivery-waits.ts';
import { createCopyReconciler } from './reconciler.ts';
import { createCopyWriter } from './writer.ts';

interface CopyingSettings {
  /** Whether new mail is copied. Existing copies are kept in step anyway. */
  readonly mode: 'none' | 'store';
  /** Whether mail is accepted while no copy can be made, because the store is away. */
  readonly withoutCopies: 'accept' | 'defer';
  /** How long the reply waits for the delivery before the message is copied. */
  readonly holdMs: number;
  /** Whether the store is a file of this host. */
  readonly alone: boolean;
}

interface CopyingDeps extends Pick<Tools, 'clock' | 'ids' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'copies' | 'copyParts'>;
  readonly spool: Spool;
  readonly member: Pick<Membership, 'id' | 'epoch' | 'isLive'>;
}

/** How long to wait for a POST in progress before its message is refused. Milliseconds. */
const POSTING_MS = 60_000;
/** Messages that were refused after they were on the queue, which a lane may still have. */
const TAKEN_BACK = 10_000;

/**
 * Keeps accepted mail in a second place before its reply: waits a moment for the delivery if every endpoint is quick,
 * and copies it to the store otherwise.
 */
export type Copying = ReturnType<typeof createCopying>;

export function createCopying(settings: CopyingSettings, { spool, ...deps }: CopyingDeps) {
  const { clock, log } = deps;
  const waits = createDeliveryWaits(settings, deps);
  const takenBack = createBoundedCache<true>({ most: TAKEN_BACK });
  const watchedSpool = watch(spool, waits.settled, (messageId) => takenBack.get(messageId) === true);
  const writer = createCopyWriter({ ...deps, spool });
  const reconciler = createCopyReconciler(settings, { ...deps, spool, writer });
  const counted = createMeters(deps.metrics);
  const absence = createAbsence({ log });
  deps.metrics.gauge('postern_copies_missing', async () => [[{}, await spool.copies.missing()]]);

  /** Accepts a message that is copied a moment later. */
  async function acceptNow(message: NewMessage, deliveries: readonly Delivery[]) {
    const outcome = await spool.accept(message, deliveries);
    const start = { messageId: message.id, id: message.id, epoch: deps.member.epoch() };
    if (outcome === 'accepted' && deliveries.some(isCopied))
      await spool.copies.start([start]).catch((error: unknown) => log.error('spool.fault', { error }));
    return outcome;
  }

  async function accept(message: NewMessage, deliveries: readonly Delivery[]) {
    const open = deliveries.filter(isCopied);
    // A command beside the daemon is no host: the daemon makes the copy.
    if (open.length === 0 || deps.member.id() === '') return acceptNow(message, deliveries);
    const wait = waits.begin(open);
    try {
      return await acceptAndCopy(message, deliveries, open, wait);
    } finally {
      wait.end();
    }
  }

  async function acceptAndCopy(
    message: NewMessage,
    deliveries: readonly Delivery[],
    open: readonly Delivery[],
    wait: DeliveryWait,
  ): ReturnType<AcceptingQueue['accept']> {
    const size = sizeOf(message.body);
    // A message that will be refused must not be posted.
    if (!wait.isQuick && writer.isAway() && settings.withoutCopies === 'defer') return counted('refused');
    const outcome = await spool.accept(message, deliveries);
    if (outcome !== 'accepted') return outcome;
    if (wait.isQuick && (await wait.until(settings.holdMs)) === 'ended') return counted('delivered');
    const copied = await writer.copy(message.id, size);
    if (copied === 'copied') {
      absence.over();
      return counted('copied');
    }
    if (copied === 'away' && settings.withoutCopies === 'accept') {
      absence.begin();
      return counted('without');
    }
    return counted((await revoke(message, open, wait)) ? 'refused' : 'delivered');
  }

  /** Ends a message whose sender will repeat it. False if it was delivered meanwhile. */
  async function revoke({ id }: NewMessage, open: readonly Delivery[], wait: DeliveryWait): Promise<boolean> {
    takenBack.set(id, true);
    if (wait.mayBePosting()) await wait.until(POSTING_MS);
    if (wait.isDelivered()) return false;
    const now = clock.now();
    const end = { attempt: null, state: 'dropped', dueAt: now, parked: false, at: now, forget: true } as const;
    for (const { id: deliveryId, fate } of open) if (!fate) await spool.settle({ deliveryId, ...end });
    const kept = open.filter(({ fate }) => fate).map(({ id }) => id);
    if (kept.length > 0) await spool.drop({ ids: kept }, now);
    log.warn('copy.refused', { message: id });
    return true;
  }

  return frozen({
    /** The queue for everything that delivers. Mail accepted here is copied a moment later. */
    spool: settings.mode === 'none' ? spool : frozen<Spool>({ ...watchedSpool, accept: acceptNow }),
    /** The queue for mail whose reply waits for its delivery or copy. */
    accepting: frozen<AcceptingQueue>({
      body: spool.body,
      accept: settings.mode === 'none' ? spool.accept : accept,
    }),
    start: reconciler.start,
    /** Ends the waits for deliveries: mail that has not been delivered is copied. */
    stopHolding: waits.stop,
    stop: reconciler.stop,
  });
}

/** Mail that a route discards needs no copy. */
const isCopied = ({ kind, fate }: Delivery): boolean =>
  KINDS[kind].copied === 'accepted' && (!fate || STATES[fate.state].open);

/** The same queue, which reports results to `settled` and finds no messages for which `isGone`. */
function watch(spool: Spool, settled: DeliveryWaits['settled'], isGone: (messageId: string) => boolean): Spool {
  return {
    ...spool,
    message: async (messageId, deliveryId) =>
      deliveryId !== undefined && isGone(messageId) ? undefined : spool.message(messageId, deliveryId),
    async settle(settlement, fresh) {
      const behind = await spool.settle(settlement, fresh);
      settled(settlement);
      return behind;
    },
  };
}

const OUTCOMES = { delivered: 'accepted', copied: 'accepted', without: 'accepted', refused: 'uncopied' } as const;

/** Counts the result of a message, and returns the outcome for its sender. */
function createMeters(metrics: Tools['metrics']) {
  const counters = tableOf(namesOf(OUTCOMES), (result) => metrics.counter('postern_copies_total', { result }));
  return (result: keyof typeof OUTCOMES) => {
    counters[result].add();
    return OUTCOMES[result];
  };
}

/** Logs the start and the end of a time without copies. */
function createAbsence({ log }: Pick<Tools, 'log'>) {
  let count = 0;
  return {
    begin() {
      if (count++ === 0) log.warn('copy.missing', { note: 'mail is accepted without a copy until the store is back' });
    },
    over() {
      if (count > 0) log.info('copy.resumed', { messages: count });
      count = 0;
    },
  };
}
