import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Gate } from './carry.ts';
import { type Change, learn } from './endpoint.ts';
import type { Lane } from './lane.ts';
import type { Settled } from './settle.ts';
import type { AttemptResult } from './types.ts';
import type { Waiting } from './waiting.ts';

export interface GateDeps {
  readonly clock: Clock;
  readonly ids: Ids;
  /** Posts at one time to one endpoint. */
  readonly most: number;
  readonly stopping: () => boolean;
}

/** The endpoint's side of one attempt: keeps the places among its posts and lets it learn from the result. */
export function createGate(
  lane: Lane, waiting: Waiting, deps: GateDeps, onResult: (change: Change | null, result: AttemptResult) => void,
): Gate & { close(): void } {
  const probe = lane.state.phase !== 'closed';
  const { failedAt } = waiting;
  let active = true;
  let posting = false;
  lane.active++;
  if (probe) lane.probing = true;

  const mayPost = (): boolean => !deps.stopping() && (probe || lane.state.phase === 'closed');

  function occupy(): boolean {
    posting = mayPost();
    if (posting) lane.posting++;
    return posting;
  }

  /** Gives the place back; what began with the attempt ends with it, however far it came. */
  function close(): void {
    if (posting) lane.posting--;
    posting = false;
    if (!active) return;
    active = false;
    lane.active--;
    if (probe) lane.probing = false;
    callNext(lane);
  }

  function absorb(settled: Settled): Change | null {
    const now = deps.clock.monotonic();
    const { state, change } = learn(lane.state, settled.lesson, { now, jitter: deps.ids.jitter(), probe, most: deps.most });
    lane.state = state;
    if (change === 'closed' || change === 'resumed') lane.pulling = lane.queue.pull(now);
    return change;
  }

  return {
    enter() {
      if (probe || lane.posting < lane.state.limit || !mayPost()) return occupy();
      return new Promise((resolve) => { lane.turns.push(() => resolve(occupy())); });
    },
    leave(result, settled) {
      const change = absorb(settled);
      close();
      onResult(change, result);
    },
    othersPass: () => lane.state.passedAt > failedAt,
    close,
  };
}

/** Lets in who waits for a place; when the endpoint was found to be away, all of them, to be turned back. */
function callNext(lane: Lane): void {
  while (lane.turns.length > 0 && (lane.state.phase !== 'closed' || lane.posting < lane.state.limit)) lane.turns.shift()?.();
}
