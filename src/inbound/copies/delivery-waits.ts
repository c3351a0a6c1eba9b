import { createBoundedCache } from '../../base/cache.ts';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { type Delivery, endpointKey, type Settlement } from '../../queue/delivery.ts';
import { STATES } from '../../queue/states.ts';
import { isPulled } from '../pulled.ts';

// How quickly each endpoint accepts deliveries, and the messages whose reply waits for one.

/** The last results of an endpoint, at most `SAMPLES`: milliseconds from acceptance to the end; Infinity: it failed. */
interface EndpointSpeed {
  readonly results: number[];
  /** The delivery that measures an endpoint that is not quick: replies to its mail do not wait. */
  probe: { readonly id: string; readonly at: number } | undefined;
}

interface Tracked {
  readonly speed: EndpointSpeed;
  readonly at: number;
  /** Undefined: a probe whose message has its reply. */
  held: WaitingReply | undefined;
}

interface WaitingReply {
  readonly left: Set<string>;
  allDelivered: boolean;
  readonly outcome: PromiseWithResolvers<Outcome>;
}

/** ended: it needs no copy · failed: an attempt failed, or the delivery is held. */
type Outcome = 'ended' | 'failed';

/** A message whose deliveries are watched, until `end`. */
export type DeliveryWait = ReturnType<DeliveryWaits['begin']>;

const SAMPLES = 10;
const QUANTILE = 0.9;
/** Endpoints whose pace is remembered. One that is forgotten counts as quick. */
const ENDPOINTS = 10_000;
/** Deliveries of forgotten endpoints may stay for long. */
const MAX_TRACKED = 2 * ENDPOINTS;
/** After this time another delivery is the probe. Milliseconds. */
const PROBE_MS = 10_000;

/** Creates the holds. An endpoint is quick if nine of ten deliveries end within `holdMs`, or if it is not known. */
export function createDeliveryWaits({ holdMs }: { readonly holdMs: number }, { clock }: { readonly clock: Clock }) {
  const speeds = createBoundedCache<EndpointSpeed>({ most: ENDPOINTS, keepUsed: true });
  const tracked = new Map<string, Tracked>();
  const waits = new Set<() => void>();
  let stopped = false;

  function speedOf(delivery: Delivery): EndpointSpeed {
    const key = endpointKey(delivery);
    const speed = speeds.get(key) ?? { results: [], probe: undefined };
    speeds.set(key, speed);
    return speed;
  }

  function isQuick({ results }: EndpointSpeed): boolean {
    const at = Math.ceil(results.length * QUANTILE) - 1;
    return (results.toSorted((a, b) => a - b)[at] ?? 0) < holdMs;
  }

  function note(speed: EndpointSpeed, result: number): void {
    speed.results.push(result);
    if (speed.results.length > SAMPLES) speed.results.shift();
  }

  function forget(id: string): void {
    const one = tracked.get(id);
    if (!one) return;
    tracked.delete(id);
    if (one.speed.probe?.id === id) one.speed.probe = undefined;
  }

  function probe(speed: EndpointSpeed, id: string, now: number): void {
    if (tracked.size > MAX_TRACKED || (speed.probe && now - speed.probe.at < PROBE_MS)) return;
    if (speed.probe) {
      note(speed, PROBE_MS);
      forget(speed.probe.id);
    }
    speed.probe = { id, at: now };
  }

  return frozen({
    /** Begins to watch deliveries that are about to be accepted. */
    begin(deliveries: readonly Delivery[]) {
      const now = clock.monotonic();
      const held: WaitingReply = {
        left: new Set(deliveries.map(({ id }) => id)),
        allDelivered: true,
        outcome: Promise.withResolvers(),
      };
      const ours = deliveries.map((delivery) => ({ delivery, speed: speedOf(delivery) }));
      const quick = ours.every(({ delivery: { fate, url }, speed }) => !fate && !isPulled(url) && isQuick(speed));
      for (const { delivery, speed } of ours) {
        tracked.set(delivery.id, { speed, at: now, held });
        if (!quick && !delivery.fate && !isPulled(delivery.url)) probe(speed, delivery.id, now);
      }
      let isLate = false;
      return {
        /** Whether every endpoint is up and quick, as far as is known. */
        isQuick: quick,
        /** Waits until all deliveries have ended, one failed, or the time is over. */
        async until(ms: number): Promise<Outcome | 'late'> {
          const time = Promise.withResolvers<'late'>();
          const over = () => time.resolve('late');
          const cancel = clock.after(stopped ? 0 : ms, over);
          waits.add(over);
          const outcome = await Promise.race([held.outcome.promise, time.promise]);
          waits.delete(over);
          cancel();
          if (outcome === 'late' && quick && !isLate && !stopped) {
            isLate = true;
            for (const { delivery, speed } of ours) if (held.left.has(delivery.id)) note(speed, Math.max(ms, holdMs));
          }
          return outcome;
        },
        /** Whether a POST may be in progress. */
        mayBePosting: () =>
          ours.some(
            ({ delivery: { id, fate, url }, speed }) =>
              held.left.has(id) && !fate && !isPulled(url) && speed.results.at(-1) !== Number.POSITIVE_INFINITY,
          ),
        /** Whether every delivery was delivered. */
        isDelivered: () => held.left.size === 0 && held.allDelivered,
        end() {
          for (const { delivery, speed } of ours) {
            const one = tracked.get(delivery.id);
            if (one && speed.probe?.id === delivery.id) one.held = undefined;
            else tracked.delete(delivery.id);
          }
        },
      };
    },
    /** Records the result of a delivery. */
    settled({ deliveryId: id, state, attempt }: Pick<Settlement, 'deliveryId' | 'state' | 'attempt'>): void {
      const one = tracked.get(id);
      // Put off without an attempt: nothing is known yet.
      if (!one || (state === 'waiting' && !attempt)) return;
      const { speed, at, held } = one;
      const isOver = !STATES[state].open;
      note(speed, isOver ? clock.monotonic() - at : Number.POSITIVE_INFINITY);
      if (speed.probe?.id === id) speed.probe = undefined;
      if (!held) tracked.delete(id);
      if (!held?.left.has(id)) return;
      if (!isOver) return held.outcome.resolve('failed');
      held.left.delete(id);
      held.allDelivered &&= state === 'delivered';
      if (held.left.size === 0) held.outcome.resolve('ended');
    },
    /** Ends all waits: the messages are copied at once. */
    stop() {
      stopped = true;
      for (const over of waits) over();
    },
  });
}

export type DeliveryWaits = ReturnType<typeof createDeliveryWaits>;
