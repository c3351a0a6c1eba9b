import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Endpoint, EndpointName } from './delivery.ts';
import type { Roads, Steps } from './road.ts';
import { toWholeSecond } from './schedule/breaker.ts';
import type { LaneGate } from './schedule/gate.ts';
import type { Lane } from './schedule/lane.ts';
import type { Waiting } from './schedule/waiting.ts';

// Views of the dispatcher's memory. All times are milliseconds since 1970.

/** The breaker's phases as shown. up: deliveries flow · down: failing, one probe at a time · gone: 410, one a day. */
export const BREAKER_WORDS = { closed: 'up', open: 'down', paused: 'gone' } as const;

/** The state of a lane. */
export type LaneView = Readonly<ReturnType<typeof viewLane>>;

export function viewLane(lane: Lane, clock: Pick<Clock, 'now' | 'monotonic'>) {
  const now = clock.monotonic();
  const toWall = (steady: number) => Math.round(steady + clock.now() - now);
  const { account, url, kind, state, pendingAttempts, posting, concurrency, maxConcurrency, last } = lane;
  const { phase, since, probeAt, hold } = state;
  const away = phase !== 'closed';
  const held =
    hold && lane.isHeld(now) ? { ...hold, since: toWall(hold.since), until: toWholeSecond(toWall(hold.until)) } : null;
  const waiting = lane.queue.waiting();
  return {
    account,
    url,
    kind,
    breaker: BREAKER_WORDS[phase],
    /** When it went down; null while it is up. */
    since: away ? toWall(since) : null,
    /** When the next probe may be sent; null while it is up or held. */
    nextProbeAt: away && !held ? toWall(Math.max(probeAt, now)) : null,
    /** Set while it is held. */
    hold: held,
    /** The number of deliveries waiting in memory, and of the parked ones among them. */
    waiting: waiting.length,
    parked: waiting.filter(({ parked }) => parked).length,
    /** The number of attempts that are being prepared, that wait for a slot (`ready`), and that are in flight. */
    ...pendingAttempts,
    inFlight: posting,
    /** The current limit of attempts in flight, and its maximum. */
    concurrency,
    maxConcurrency,
    /** The last attempt that ended; null if unknown, as for an endpoint that is up and had none since the start. */
    last,
  };
}

/**
 * A delivery that is being prepared. preparing: being read from the disk, signed or composed, or waiting for a thread ·
 * verdicts: waiting for DNS answers · parsing · connection: ready, but the limit of the endpoint is reached.
 */
export interface PreparingDelivery extends Endpoint {
  readonly id: string;
  readonly since: number;
  readonly waitsFor: 'preparing' | 'verdicts' | 'parsing' | 'connection';
  /** The open DNS question, as `TXT example.org`. */
  readonly question: string | null;
}

interface Attempt {
  readonly lane: Lane;
  readonly deliveries: readonly Waiting[];
  readonly gate: LaneGate;
  /** Milliseconds of the monotonic clock. */
  readonly since: number;
}

const NO_STEPS: Steps = new Map();

/** The attempts that are being prepared. */
export function createPreparations({ roads, clock }: { readonly roads: Roads; readonly clock: Clock }) {
  const attempts = new Set<Attempt>();

  /** Asks the roads of these attempts for their progress. */
  async function stepsOf(chosen: readonly Attempt[]): Promise<readonly Steps[]> {
    const preparing = chosen.filter(({ gate }) => gate.waitsFor() === 'ready');
    const asked = new Set(preparing.map(({ lane }) => roads[lane.kind]));
    return Promise.all([...asked].map((road) => road.steps?.() ?? NO_STEPS));
  }

  function toPreparing({ lane, deliveries, gate, since }: Attempt, steps: readonly Steps[]): PreparingDelivery[] {
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
        waitsFor: waitsFor === 'connection' ? 'connection' : (step?.at ?? 'preparing'),
        question: step?.question ?? null,
      };
    });
  }

  return frozen({
    /** Adds an attempt. Returns a function that removes it. */
    begin(lane: Lane, deliveries: readonly Waiting[], gate: LaneGate): () => void {
      const attempt = { lane, deliveries, gate, since: clock.monotonic() };
      attempts.add(attempt);
      return () => attempts.delete(attempt);
    },
    /** Returns the deliveries of an endpoint, or all, oldest first. */
    async list(of?: EndpointName): Promise<readonly PreparingDelivery[]> {
      const chosen = [...attempts].filter(
        ({ lane }) => of === undefined || (lane.account === of.account && lane.url === of.url),
      );
      const steps = await stepsOf(chosen);
      return chosen.flatMap((attempt) => (attempts.has(attempt) ? toPreparing(attempt, steps) : []));
    },
  });
}
