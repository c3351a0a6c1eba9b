import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Delivery, Spool } from '../../spool/types.ts';
import { askNow } from '../endpoint.ts';
import type { Lane } from './lane.ts';
import type { Lanes } from './lanes.ts';
import { toFresh } from './waiting.ts';

/** How long an endpoint's deliveries are left unread at most, whatever due time a wrong clock wrote. */
const LONGEST_SLEEP = 1_800_000;
const AGAIN = 5000;

export interface IntakeDeps {
  readonly spool: Pick<Spool, 'endpoints' | 'onChange'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly lanes: Lanes;
  readonly poke: (lane: Lane) => void;
}

/** Hears of what comes onto the spool and of what is changed there by hand, and tells the lanes. */
export interface Intake {
  /** Learns of every endpoint that has something on the spool, and listens from then on. */
  open(): Promise<void>;
  close(): void;
  /** Whether it is learning of a change. */
  busy(): boolean;
}

export function createIntake({ spool, clock, log, lanes, poke }: IntakeDeps): Intake {
  let phase: 'opening' | 'open' | 'closed' = 'opening';
  let early: Delivery[] = [];
  let again = false;
  let learning = false;

  function hear(fresh: readonly Delivery[]): void {
    if (phase === 'opening') early.push(...fresh);
    if (phase !== 'open') return;
    if (fresh.length === 0) return relearn();
    const now = { wall: clock.now(), steady: clock.monotonic() };
    for (const delivery of fresh) {
      const lane = lanes.of(delivery.account, delivery.url, null);
      lane.queue.addFresh(toFresh(delivery, now), now.steady);
      poke(lane);
    }
  }

  /** Somebody changed the queue by hand: what is held may be wrong, and what was thought of the endpoints too. */
  function relearn(): void {
    for (const lane of lanes.all()) {
      lane.queue.forget(clock.monotonic());
      lane.state = askNow(lane.state, clock.monotonic());
    }
    again = true;
    if (!learning) void learnAll();
  }

  async function learnAll(): Promise<void> {
    learning = true;
    while (again && phase === 'open') {
      again = false;
      await learn().catch((error: unknown) => {
        if (phase !== 'open') return;
        log.error('spool.fault', { error });
        clock.after(AGAIN, () => hear([]));
      });
    }
    learning = false;
    for (const lane of lanes.all()) poke(lane);
  }

  async function learn(): Promise<void> {
    for (const { account, url, waiting, nextDue, memory } of await spool.endpoints()) {
      if ((waiting === 0 && memory === null) || lanes.has(account, url)) continue;
      const { queue } = lanes.of(account, url, memory);
      const sleep = Math.min(Math.max(nextDue - clock.now(), 0), LONGEST_SLEEP);
      if (waiting > 0) queue.forget(clock.monotonic() + sleep);
    }
  }

  return Object.freeze({
    async open() {
      spool.onChange(hear);
      await learn();
      phase = 'open';
      for (const lane of lanes.all()) poke(lane);
      const missed = early;
      early = [];
      if (missed.length > 0) hear(missed);
    },
    close() {
      phase = 'closed';
    },
    busy: () => learning,
  });
}
