import { heldBy } from '../base/bytes.ts';
import { createLoop, HOUR_MS, MAX_CLOCK_SKEW_MS } from '../base/clock.ts';
import { createSemaphore, type Semaphore } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import { createShares } from '../base/shares.ts';
import type { Tools } from '../base/tools.ts';
import { FORMATS } from '../inbound/formats.ts';
import { isPulled } from '../inbound/pulled.ts';
import type { AttemptRecord, Delivery, EndpointName, QueuedDelivery, Spool } from '../queue/delivery.ts';
import type { Dispatcher } from '../queue/dispatcher.ts';
import { createDeliveryMeters } from '../queue/meters.ts';
import { type LeaseOutcome, settleLease } from '../queue/settle.ts';
import type { Destinations } from './destinations.ts';
import type { Preparation } from './preparation.ts';
import { createDiscard, createPullPreparation, type PreparedDelivery } from './pull-preparation.ts';
import { createMailWaiters } from './waiters.ts';

// Mail that its consumer pulls: /inbound/pull leases each delivery with the POST that would otherwise be sent.

interface PullingSettings {
  /** How long a delivery can be leased again after failures. */
  readonly retryHours: number;
  /** How long a delivery of a sequence may fail before the next one can be leased. */
  readonly orderHoldMs: number;
}

interface PullingDeps extends Tools {
  readonly spool: Pick<
    Spool,
    | 'due'
    | 'delivery'
    | 'endpoints'
    | 'envelopes'
    | 'lease'
    | 'endLease'
    | 'keepVerdicts'
    | 'message'
    | 'onChange'
    | 'onTurn'
    | 'redirect'
    | 'retry'
    | 'settle'
  >;
  readonly preparation: Preparation;
  readonly destinations: Pick<Destinations, 'of' | 'target'>;
  readonly dispatcher: Pick<Dispatcher, 'isHeld'>;
  readonly time: RunningTime;
}

/** The request of a consumer. */
export interface PullOptions {
  readonly limit: number;
  readonly leaseMs: number;
  /** How long to wait for mail if there is none. */
  readonly waitMs: number;
  /** Aborted when the consumer hangs up; then nothing more is leased to it. */
  readonly gone: AbortSignal;
}

/** A delivery that was leased, with its POST. */
export interface PulledMail extends PreparedDelivery {
  /** Names the lease. */
  readonly lease: string;
  /** When it ends, milliseconds since 1970. */
  readonly until: number;
}

/** Their bodies stay until `discard`, which may be called twice. */
interface PulledMails {
  readonly mails: readonly PulledMail[];
  discard(): void;
}

export type Pulling = ReturnType<typeof createPulling>;

/** Bytes of posts in one answer; a single one may be larger. */
const MAX_BYTES = 8 * 1024 * 1024;
/** Calls of an account for which mail is prepared concurrently; the others wait. */
const LOOKS = 4;
/** Bytes of posts that wait for their consumers to read them. */
const UNREAD = { all: 128 * 1024 * 1024, each: 32 * 1024 * 1024 };
/** The interval at which other changes (a pause, a scanner) are noticed. Milliseconds. */
const TICK = 5000;
/** The longest lease, and the longest delay of a delivery. Milliseconds. */
const LONGEST_LEASE = 12 * HOUR_MS;
/** The interval of checks for mail that is not pulled. */
const TEND_EVERY = 60_000;
/** Deliveries per check. */
const TENDED = 100;
/** The largest date. */
const EVER = 8.64e15;

const NOTHING: PulledMails = { mails: [], discard() {} };

/** The result of a read; if empty, when to read again at the latest (milliseconds since 1970). */
type Look = { readonly found: readonly PreparedDelivery[] } | { readonly next: number };

export function createPulling({ retryHours, orderHoldMs: patience }: PullingSettings, deps: PullingDeps) {
  const { spool, preparation, destinations, dispatcher, time, clock, ids, log } = deps;
  const limit = retryHours * HOUR_MS;
  const meters = createDeliveryMeters(deps.metrics);
  const slots = createAccountSlots();
  const unread = createShares(UNREAD);
  const waiters = createMailWaiters(clock);
  const pullPreparation = createPullPreparation({ ...deps, stopping: () => stopped });
  let stopped = false;

  const wake = (endpoints: readonly EndpointName[]) => {
    for (const { account, url } of endpoints) if (isPulled(url)) waiters.wake({ account, url });
  };
  spool.onChange((fresh) => (fresh.length === 0 ? waiters.wakeAll() : wake(fresh)));
  spool.onTurn(wake);

  /** Redirects the mail of routes whose URL was changed on another host. Returns the other deliveries. */
  async function stillHere(deliveries: readonly QueuedDelivery[]): Promise<readonly QueuedDelivery[]> {
    const moved = new Map<string, boolean>();
    for (const delivery of deliveries) {
      if (moved.has(delivery.routeId)) continue;
      const destination = await destinations.of(delivery);
      moved.set(delivery.routeId, destination.kind === 'there');
      if (destination.kind === 'there') await spool.redirect(delivery.routeId, destination.url);
    }
    return deliveries.filter(({ routeId }) => !moved.get(routeId));
  }

  /** Prepares due mail that no other call has reserved. */
  async function look(endpoint: EndpointName, wish: PullOptions): Promise<Look> {
    const { account, url } = endpoint;
    if (dispatcher.isHeld(endpoint)) return { next: clock.now() + TICK };
    const due = await spool.due(
      account,
      url,
      clock.now(),
      wish.limit + pullPreparation.spare,
      pullPreparation.taken(endpoint),
    );
    const { ready, later } = await pullPreparation.ready(await stillHere(due), { most: wish.limit, bytes: MAX_BYTES });
    if (ready.length > 0) return { found: ready };
    const [first] = await spool.due(
      account,
      url,
      EVER,
      1,
      due.map(({ id }) => id),
    );
    return { next: Math.min(later, first?.dueAt ?? EVER, clock.now() + TICK) };
  }

  /** Leases the result, unless the client has disconnected. */
  async function lease(
    endpoint: EndpointName,
    found: readonly PreparedDelivery[],
    wish: PullOptions,
  ): Promise<PulledMails | 'busy'> {
    const bytes = Math.min(
      UNREAD.each,
      found.reduce((sum, { post }) => sum + heldBy(post.body), 0),
    );
    const nobody = stopped || wish.gone.aborted;
    const isUnread = !nobody && unread.take(endpoint.account, bytes) === 'taken';
    const discard = createDiscard(preparation, found, () => {
      if (isUnread) unread.give(endpoint.account, bytes);
    });
    if (!isUnread) {
      discard();
      return nobody ? NOTHING : 'busy';
    }
    try {
      const now = clock.now();
      const until = now + wish.leaseMs;
      const leased = await spool.lease(
        endpoint,
        found.map(({ delivery }) => delivery.id),
        { now, until, patience },
      );
      const numbers = new Map(leased.map(({ id, n }) => [id, n]));
      const mails = found.flatMap(({ delivery, post }) => {
        const n = numbers.get(delivery.id);
        return n === undefined ? [] : [{ delivery, post, lease: `${delivery.id}.${n}`, until }];
      });
      if (mails.length === 0) discard();
      return { mails, discard };
    } catch (error) {
      discard();
      throw error;
    }
  }

  /** Handles mail that is not pulled here: its route changed on another host, or its due time is from a wrong clock. */
  async function tend(): Promise<void> {
    for (const { account, url, waiting } of await spool.endpoints()) {
      if (waiting === 0 || !isPulled(url)) continue;
      const here = await stillHere(await spool.due(account, url, EVER, TENDED, []));
      const wrong = here.filter(({ dueAt }) => dueAt > clock.now() + LONGEST_LEASE + MAX_CLOCK_SKEW_MS);
      if (wrong.length > 0) await spool.retry({ account, ids: wrong.map(({ id }) => id) }, clock.now());
    }
  }

  const loop = createLoop(clock, async () => {
    await tend().catch((error: unknown) => {
      if (!stopped) log.error('spool.fault', { error });
    });
    return TEND_EVERY;
  });

  /** Sends the DSN of a delivery that has ended, if its sender requested one. */
  async function tell(delivery: Delivery, outcome: 'delivered' | 'failed'): Promise<void> {
    const { messageId } = delivery;
    if (!(await spool.envelopes([messageId])).get(messageId)?.envelope.dsn) return;
    const found = await spool.message(messageId);
    if (found?.message.verdicts) await preparation.sendReport(found.message, found.message.verdicts, delivery, outcome);
  }

  function count(delivery: QueuedDelivery, outcome: 'delivered' | 'deferred' | 'failed', attempt: AttemptRecord): void {
    const { status, durationMs } = attempt;
    const error = attempt.error ?? '';
    const told = status === null ? { error } : { status };
    meters.attempt(
      delivery,
      status === null ? { kind: 'unanswered', error, durationMs } : { kind: 'answered', status, durationMs },
      { outcome },
      1,
    );
    if (outcome === 'failed') meters.dead(delivery.kind);
    const { id, kind, messageId: message, account, attempts } = delivery;
    const fields = { delivery: id, kind, message, account, ...told, ms: durationMs, attempt: attempts };
    if (outcome === 'delivered') log.info('delivery.delivered', fields);
    else if (outcome === 'deferred') log.warn('delivery.deferred', fields);
    else log.error('delivery.failed', fields);
  }

  return frozen({
    start: () => loop.startAfter(TEND_EVERY),
    /**
     * Leases due mail, as much as fits in one answer, and waits if there is none. `busy`: too many bytes of earlier
     * answers are still unread, of the account or in all.
     */
    async pull(endpoint: EndpointName, wish: PullOptions): Promise<PulledMails | 'busy'> {
      const lookInTurn = () =>
        slots.run(endpoint.account, async () => {
          if (stopped || wish.gone.aborted) return NOTHING;
          const looked = await look(endpoint, wish);
          if ('next' in looked) return looked;
          return lease(endpoint, looked.found, wish).finally(() => pullPreparation.release(looked.found));
        });
      const seen = await waiters.find(endpoint, wish, lookInTurn, (one) => {
        if (one === 'busy') return undefined;
        if ('next' in one) return Math.max(0, one.next - clock.now());
        return one.mails.length > 0 ? undefined : 0;
      });
      return seen !== 'busy' && 'next' in seen ? NOTHING : seen;
    },
    /** Ends a lease; false if it is unknown: of another account, or no longer the newest of a waiting delivery. */
    async end(account: string, lease: string, said: LeaseOutcome) {
      const [, id = '', number] = /^(.{1,200})\.(\d{1,9})$/.exec(lease) ?? [];
      const delivery = number === undefined ? undefined : await spool.delivery(id);
      if (!delivery || delivery.account !== account || delivery.state !== 'waiting') return false;
      const { outcome, end } = settleLease({
        delivery,
        n: Number(number),
        outcome: said,
        now: clock.now(),
        jitter: ids.jitter(),
        budget: { age: time.age(delivery.budgetFrom), limit, mayEnd: time.sure() },
        order: delivery.sequence === undefined ? undefined : { since: delivery.heldSince, patience },
        stop: FORMATS[destinations.target(delivery).format].stop ?? null,
      });
      const attempt = await spool.endLease(account, end);
      if (!attempt) return false;
      count(delivery, outcome, attempt);
      // Wakes waiters for the new due time.
      if (outcome === 'deferred') waiters.wake(delivery);
      else await tell(delivery, outcome);
      return true;
    },
    /** Ends the waits, so that their calls are answered. */
    async stop() {
      stopped = true;
      waiters.stop();
      await loop.stop();
    },
  });
}

/** Limits the concurrent preparations of each account. */
function createAccountSlots() {
  const all = new Map<string, { readonly slots: Semaphore; users: number }>();
  return {
    async run<T>(account: string, work: () => Promise<T>): Promise<T> {
      const own = all.get(account) ?? { slots: createSemaphore(LOOKS), users: 0 };
      all.set(account, own);
      own.users++;
      try {
        return await own.slots.run(work);
      } finally {
        own.users--;
        if (own.users === 0) all.delete(account);
      }
    },
  };
}
