import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createMemory } from '../../base/memory.ts';
import { type Delivery, endpointKey, type Settlement } from '../../queue/delivery.ts';
import { STATES } from '../../queue/states.ts';
import { isPulled } from '../pulled.ts';

// How quickly each endpoint accepts deliveries, and the messages whose reply waits for one.

/** The last results of an endpoint, at most `SAMPLES`: milliseconds from acceptance to the end; Infinity: it failed. */
interface Pace {
  readonly results: number[];
  /** The delivery that measures an endpoint that is not quick: replies to its mail do not wait. */
  probe: { readonly id: string; readonly at: number } | undefined;
}

interface Tracked {
  readonly pace: Pace;
  readonly at: number;
  /** Undefined: a probe whose message has its reply. */
  held: Held | undefined;
}

interface Held {
  readonly left: Set<string>;
  allDelivered: boolean;
  readonly outcome: PromiseWithResolvers<Outcome>;
}

/** ended: it needs no copy · failed: an attempt failed, or the delivery is held. */
type Outcome = 'ended' | 'failed';

/** A message whose deliveries are watched, until `end`. */
export type Hold = ReturnType<Holds['begin']>;

const SAMPLES = 10;
const QUANTILE = 0.9;
/** Endpoints whose pace is remembered. One that is forgotten counts as quick. */
const ENDPOINTS = 10_000;
/** Deliveries of forgotten endpoints may stay for long. */
const MOST_TRACKED = 2 * ENDPOINTS;
/** After this time another delivery is the probe. Milliseconds. */
const PROBE_MS = 10_000;

/** Creates the holds. An endpoint is quick if nine of ten deliveries end within `holdMs`, or if it is not known. */
export function createHolds({ holdMs }: { readonly holdMs: number }, { clock }: { readonly clock: Clock }) {
  const paces = createMemory<Pace>({ most: ENDPOINTS, keepUsed: true });
  const tracked = new Map<string, Tracked>();
  const waits = new Set<() => void>();
  let stopped = false;

  function paceOf(delivery: Delivery): Pace {
    const key = endpointKey(delivery);
    const pace = paces.get(key) ?? { results: [], probe: undefined };
    paces.set(key, pace);
    return pace;
  }

  function isQuick({ results }: Pace): boolean {
    const at = Math.ceil(results.length * QUANTILE) - 1;
    return (results.toSorted((a, b) => a - b)[at] ?? 0) < holdMs;
  }

  function note(pace: Pace, result: number): void {
    pace.results.push(result);
    if (pace.results.length > SAMPLES) pace.results.shift();
  }

  function forget(id: string): void {
    const one = tracked.get(id);
    if (!one) return;
    tracked.delete(id);
    if (one.pace.probe?.id === id) one.pace.probe = undefined;
  }

  function probe(pace: Pace, id: string, now: number): void {
    if (tracked.size > MOST_TRACKED || (pace.probe && now - pace.probe.at < PROBE_MS)) return;
    if (pace.probe) {
      note(pace, PROBE_MS);
      forget(pace.probe.id);
    }
    pace.probe = { id, at: now };
  }

  return frozen({
    /** Begins to watch deliveries that are about to be accepted. */
    begin(deliveries: readonly Delivery[]) {
      const now = clock.monotonic();
      const held: Held = {
        left: new Set(deliveries.map(({ id }) => id)),
        allDelivered: true,
        outcome: Promise.withResolvers(),
      };
      const ours = deliveries.map((delivery) => ({ delivery, pace: paceOf(delivery) }));
      const quick = ours.every(({ delivery: { fate, url }, pace }) => !fate && !isPulled(url) && isQuick(pace));
      for (const { delivery, pace } of ours) {
        tracked.set(delivery.id, { pace, at: now, held });
        if (!quick && !delivery.fate && !isPulled(delivery.url)) probe(pace, delivery.id, now);
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
            for (const { delivery, pace } of ours) if (held.left.has(delivery.id)) note(pace, Math.max(ms, holdMs));
          }
          return outcome;
        },
        /** Whether a POST may be in progress. */
        mayBePosting: () =>
          ours.some(
            ({ delivery: { id, fate, url }, pace }) =>
              held.left.has(id) && !fate && !isPulled(url) && pace.results.at(-1) !== Number.POSITIVE_INFINITY,
          ),
        /** Whether every delivery was delivered. */
        isDelivered: () => held.left.size === 0 && held.allDelivered,
        end() {
          for (const { delivery, pace } of ours) {
            const one = tracked.get(delivery.id);
            if (one && pace.probe?.id === delivery.id) one.held = undefined;
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
      const { pace, at, held } = one;
      const isOver = !STATES[state].open;
      note(pace, isOver ? clock.monotonic() - at : Number.POSITIVE_INFINITY);
      if (pace.probe?.id === id) pace.probe = undefined;
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

export type Holds = ReturnType<typeof createHolds>;
