import type { Lane } from './lane.ts';

/** Takes the endpoints in turn: one delivery from each that may start one, as many at a time as the setting says. */
export interface Rounds {
  /** Something may start in this lane now. */
  add(lane: Lane): void;
  /** Something began that is in flight until `end`; `inDoubt` as `isInDoubt` said then. */
  begin(inDoubt: boolean): void;
  end(inDoubt: boolean): void;
  /** Something is in flight, or may start. */
  busy(): boolean;
  /** Starts nothing any more; resolves when nothing is in flight, or when `giveUp` calls back. */
  stop(giveUp: (expired: () => void) => () => void): Promise<void>;
}

/**
 * An endpoint that is away, or that did not answer last time: its attempts may take as long as they are allowed to. All such
 * endpoints together hold at most half of the places, so that fifty of them cannot stop the mail of all others.
 */
export function isInDoubt({ state }: Lane): boolean {
  return state.phase !== 'closed' || state.misses > 0;
}

/** `startOne` starts one delivery of the lane and says by `add` whether there are more. */
export function createRounds(concurrency: number, startOne: (lane: Lane) => void): Rounds {
  // Sets keep the order in which lanes came.
  const sound = new Set<Lane>();
  const doubtful = new Set<Lane>();
  const doubtfulMost = Math.max(1, Math.floor(concurrency / 2));
  let inFlight = 0;
  let doubtfulInFlight = 0;
  let doubtfulNext = false;
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
      const lane = next();
      if (!lane) return;
      sound.delete(lane);
      doubtful.delete(lane);
      startOne(lane);
    }
  }

  /** Sound and doubtful lanes take turns, so that neither waits for ever for the other. */
  function next(): Lane | undefined {
    const [firstSound] = sound;
    const [firstDoubtful] = doubtfulInFlight < doubtfulMost ? doubtful : [];
    doubtfulNext = !doubtfulNext;
    return doubtfulNext ? (firstDoubtful ?? firstSound) : (firstSound ?? firstDoubtful);
  }

  return Object.freeze({
    add(lane: Lane) {
      const inDoubt = isInDoubt(lane);
      (inDoubt ? sound : doubtful).delete(lane);
      (inDoubt ? doubtful : sound).add(lane);
      pumpSoon();
    },
    begin(inDoubt: boolean) {
      inFlight++;
      if (inDoubt) doubtfulInFlight++;
    },
    end(inDoubt: boolean) {
      inFlight--;
      if (inDoubt) doubtfulInFlight--;
      if (inFlight === 0) onEmpty();
      if (sound.size + doubtful.size > 0) pumpSoon();
    },
    busy: () => inFlight > 0 || sound.size + doubtful.size > 0 || pumping,
    async stop(giveUp: (expired: () => void) => () => void) {
      stopped = true;
      if (inFlight === 0) return;
      await new Promise<void>((resolve) => {
        const cancel = giveUp(resolve);
        onEmpty = () => {
          cancel();
          resolve();
        };
      });
    },
  });
}
