import type { Clock } from '../../base/clock.ts';
import type { Ids } from '../../base/ids.ts';
import type { Gate } from '../carry.ts';
import { type Change, learn } from '../endpoint.ts';
import type { Settled } from '../settle.ts';
import type { Told } from '../types.ts';
import { hasPlace, type Lane } from './lane.ts';
import { isInDoubt, type Rounds } from './rounds.ts';
import type { Waiting } from './waiting.ts';

export interface GateDeps {
  readonly clock: Clock;
  readonly ids: Ids;
  /** The posts of all endpoints. */
  readonly posts: Rounds;
  readonly stopping: () => boolean;
}

/** The endpoint's side of one attempt: keeps the places among the posts and lets the endpoint learn from the result. */
export function createGate(
  lane: Lane,
  waiting: Waiting,
  deps: GateDeps,
  onResult: (change: Change | null, result: Told, settled: Settled) => void,
): Gate & { close(): void } {
  const { posts } = deps;
  const probe = lane.state.phase !== 'closed';
  const { failedAt } = waiting;
  let place: 'preparing' | 'waiting' | 'posting' | 'left' = 'preparing';
  let inDoubt = false;
  lane.preparing++;
  if (probe) lane.probing = true;

  const mayPost = (): boolean => !deps.stopping() && (probe || lane.state.phase === 'closed');

  function takePlace(): boolean {
    if (!mayPost()) return false;
    place = 'posting';
    inDoubt = isInDoubt(lane);
    lane.posting++;
    posts.begin(inDoubt);
    return true;
  }

  /** Gives the place back; what began with the attempt ends with it, however far it came. */
  function close(): void {
    if (place === 'left') return;
    if (place === 'preparing') lane.preparing--;
    if (place === 'posting') {
      lane.posting--;
      posts.end(inDoubt);
    }
    place = 'left';
    if (probe) lane.probing = false;
    callNext(lane, posts);
  }

  function absorb(settled: Settled): Change | null {
    const now = deps.clock.monotonic();
    const { state, change } = learn(lane.state, settled.lesson, {
      now,
      jitter: deps.ids.jitter(),
      probe,
      most: lane.most,
    });
    lane.state = state;
    if (change === 'closed' || change === 'resumed') lane.pulling = lane.queue.pull(now);
    return change;
  }

  return {
    enter() {
      if (!mayPost()) return false;
      lane.preparing--;
      place = 'waiting';
      return new Promise((resolve) => {
        lane.turns.push(() => resolve(takePlace()));
        posts.add(lane);
      });
    },
    leave(result, settled) {
      const change = absorb(settled);
      close();
      onResult(change, result, settled);
    },
    othersPass: () => lane.state.passedAt > failedAt,
    close,
  };
}

/** Lets in who waits for a place; when the endpoint was found to be away, all of them, to be turned back. */
function callNext(lane: Lane, posts: Rounds): void {
  if (lane.state.phase !== 'closed') for (const turn of lane.turns.splice(0)) turn();
  else if (lane.turns.length > 0 && hasPlace(lane)) posts.add(lane);
}
