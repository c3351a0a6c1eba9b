import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Endpoint, EndpointName } from './delivery.ts';
import type { Roads, Steps } from './road.ts';
import type { LaneGate } from './schedule/gate.ts';
import type { Lane, LastAttempt, Waiting } from './schedule/lane.ts';

// What the dispatcher has in memory, as people look at it. All times are milliseconds since 1970.

/** up: deliveries flow · down: it fails, one probe at a time · gone: it said 410, one probe a day. */
export type BreakerWord = 'up' | 'down' | 'gone';

/** The states of the breaker in words. */
export const BREAKER_WORDS = { closed: 'up', open: 'down', paused: 'gone' } as const;

/** A lane as it is now. */
export interface LaneView extends Endpoint {
  readonly breaker: BreakerWord;
  /** Since when it is down or gone; null while it is up. */
  readonly since: number | null;
  /** When a probe may go out next; null while it is up, or held. */
  readonly nextProbeAt: number | null;
  /** Since when and until when its account holds it. */
  readonly hold: { readonly since: number; readonly until: number } | null;
  /** Deliveries that wait in memory, and how many of them are parked. */
  readonly waiting: number;
  readonly parked: number;
  /** Attempts that are being made ready, those that are ready and wait for a place, and those on their way. */
  readonly preparing: number;
  readonly ready: number;
  readonly inFlight: number;
  /** How many may be on their way now, and how many ever. */
  readonly places: number;
  readonly mostPlaces: number;
  /** The attempt that came back last; null when none did since the start. */
  readonly last: LastAttempt | null;
}

export function viewLane(lane: Lane, clock: Pick<Clock, 'now' | 'monotonic'>): LaneView {
  const now = clock.monotonic();
  const toWall = (steady: number) => Math.round(steady + clock.now() - now);
  const { account, url, kind, state, making, posting, places, mostPlaces, last } = lane;
  const { phase, since, probeAt, hold } = state;
  const away = phase !== 'closed';
  const held = hold && lane.isHeld(now) ? { since: toWall(hold.since), until: toWall(hold.until) } : null;
  const waiting = lane.queue.waiting();
  return {
    account,
    url,
    kind,
    breaker: BREAKER_WORDS[phase],
    since: away ? toWall(since) : null,
    nextProbeAt: away && !held ? toWall(Math.max(probeAt, now)) : null,
    hold: held,
    waiting: waiting.length,
    parked: waiting.filter(({ parked }) => parked).length,
    ...making,
    inFlight: posting,
    places,
    mostPlaces,
    last,
  };
}

/**
 * A delivery that was taken up and has not set out. preparing: it is read from the disk, signed or composed, or waits
 * for a thread · verdicts: it waits for the DNS · parsing · place: it is ready, and waits for a place at its endpoint.
 */
export interface Making extends Endpoint {
  readonly id: string;
  readonly since: number;
  readonly waitsFor: 'preparing' | 'verdicts' | 'parsing' | 'place';
  /** What the DNS is asked, as `TXT example.org`. */
  readonly question: string | null;
}

/** Attempts from when their deliveries are taken up until they have set out. */
export interface Makings {
  /** Deliveries were taken up for one attempt; the answer is called when that is over. */
  begin(lane: Lane, deliveries: readonly Waiting[], gate: LaneGate): () => void;
  /** Those of an endpoint, or all: the oldest first. */
  list(endpoint?: EndpointName): Promise<readonly Making[]>;
}

interface Attempt {
  readonly lane: Lane;
  readonly deliveries: readonly Waiting[];
  readonly gate: LaneGate;
  /** Milliseconds that only grow. */
  readonly since: number;
}

const NO_STEPS: Steps = new Map();

export function createMakings({ roads, clock }: { readonly roads: Roads; readonly clock: Clock }): Makings {
  const attempts = new Set<Attempt>();

  /** What the roads of these can tell. */
  async function stepsOf(chosen: readonly Attempt[]): Promise<readonly Steps[]> {
    const preparing = chosen.filter(({ gate }) => gate.waitsFor() === 'ready');
    const asked = new Set(preparing.map(({ lane }) => roads[lane.kind]));
    return Promise.all([...asked].map((road) => road.steps?.() ?? NO_STEPS));
  }

  function toMaking({ lane, deliveries, gate, since }: Attempt, steps: readonly Steps[]): Making[] {
    const waitsFor = gate.waitsFor();
    if (waitsFor === undefined) return [];
    const { account, url } = lane;
    const from = Math.round(since + clock.now() - clock.monotonic());
    return deliveries.map(({ delivery: { id, kind } }) => {
      const step = waitsFor === 'ready' ? steps.find((known) => known.has(id))?.get(id) : undefined;
      return {
        id,
        account,
        url,
        kind,
        since: from,
        waitsFor: waitsFor === 'place' ? 'place' : (step?.at ?? 'preparing'),
        question: step?.question ?? null,
      };
    });
  }

  return frozen({
    begin(lane, deliveries, gate) {
      const attempt = { lane, deliveries, gate, since: clock.monotonic() };
      attempts.add(attempt);
      return () => attempts.delete(attempt);
    },
    async list(of) {
      const chosen = [...attempts].filter(
        ({ lane }) => of === undefined || (lane.account === of.account && lane.url === of.url),
      );
      const steps = await stepsOf(chosen);
      return chosen.flatMap((attempt) => (attempts.has(attempt) ? toMaking(attempt, steps) : []));
    },
  });
}
