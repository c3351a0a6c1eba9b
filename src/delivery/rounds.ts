import type { Lane } from './lane.ts';

/** Takes the endpoints in turn: one delivery from each that may start one, as many at a time as the setting says. */
export interface Rounds {
  /** Something may start in this lane now. */
  add(lane: Lane): void;
  /** Something began that is in flight until `end`. */
  begin(): void;
  end(): void;
  /** Something is in flight, or may start. */
  busy(): boolean;
  /** Starts nothing any more; resolves when nothing is in flight, or when `giveUp` calls back. */
  stop(giveUp: (expired: () => void) => () => void): Promise<void>;
}

/** `startOne` starts one delivery of the lane and says by `add` whether there are more. */
export function createRounds(concurrency: number, startOne: (lane: Lane) => void): Rounds {
  // A Set keeps the order in which they came.
  const ready = new Set<Lane>();
  let inFlight = 0;
  let pumping = false;
  let stopped = false;
  let onEmpty = (): void => {};

  function pumpSoon(): void {
    if (pumping || stopped) return;
    pumping = true;
    queueMicrotask(pump);
  }

  function pump(): void {
    pumping = false;
    while (inFlight < concurrency && !stopped) {
      const [lane] = ready;
      if (!lane) return;
      ready.delete(lane);
      startOne(lane);
    }
  }

  return Object.freeze({
    add(lane: Lane) {
      ready.add(lane);
      pumpSoon();
    },
    begin() { inFlight++; },
    end() {
      inFlight--;
      if (inFlight === 0) onEmpty();
      if (ready.size > 0) pumpSoon();
    },
    busy: () => inFlight > 0 || ready.size > 0 || pumping,
    async stop(giveUp: (expired: () => void) => () => void) {
      stopped = true;
      if (inFlight === 0) return;
      await new Promise<void>((resolve) => {
        const cancel = giveUp(resolve);
        onEmpty = () => { cancel(); resolve(); };
      });
    },
  });
}
