import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { StoreAway } from '../store/collection.ts';
import type { AccountOf } from './account-numbers.ts';
import type { MessageEvent, Recorder } from './types.ts';

export interface VisitQueueDeps {
  readonly accountOf: AccountOf;
  readonly recorder: Pick<Recorder, 'record'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** An open or a click before it is recorded: its account is known by number. */
export interface Visit extends Omit<MessageEvent, 'account'> {
  readonly number: number;
}

/** Visits that wait in memory, in all and of one message: for a store that is away for a while, not for one that is gone. */
const MOST_WAITING = 10_000;
const MOST_OF_ONE = 100;
const AT_A_TIME = 8;
const AGAIN_MS = 5000;

/** Records visits behind the back of whoever made them. What does not fit, or still waits when the process ends, is lost and counted in the log. */
export interface VisitQueue {
  add(visit: Visit): void;
  /** Records what waits, if the store takes it at once. */
  stop(): Promise<void>;
}

export function createVisitQueue({ accountOf, recorder, clock, log }: VisitQueueDeps): VisitQueue {
  const waiting = new Map<string, Visit>();
  const perMessage = new Map<string, number>();
  let working: Promise<void> | undefined;
  let wake = () => {};
  let stopping = false;
  let lost = 0;

  function leave({ id, message }: Visit): void {
    waiting.delete(id);
    const rest = (perMessage.get(message) ?? 1) - 1;
    if (rest === 0) perMessage.delete(message);
    else perMessage.set(message, rest);
  }

  async function work(): Promise<void> {
    while (waiting.size > 0) {
      const away = (await Promise.all([...waiting.values()].slice(0, AT_A_TIME).map(recordOne))).includes('away');
      if (away && stopping) break;
      if (away) await pause();
    }
    lost += waiting.size;
    waiting.clear();
    perMessage.clear();
    if (lost > 0) log.warn('visit.lost', { visits: lost });
    lost = 0;
    working = undefined;
  }

  async function recordOne(visit: Visit): Promise<'done' | 'away'> {
    try {
      const { number, ...event } = visit;
      const account = await accountOf(number);
      if (account !== undefined) await recorder.record({ ...event, account });
    } catch (error) {
      if (error instanceof StoreAway) return 'away';
      log.error('event.fault', { kind: visit.kind, error });
    }
    leave(visit);
    return 'done';
  }

  function pause(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(AGAIN_MS, resolve);
      wake = () => {
        cancel();
        resolve();
      };
    });
  }

  return Object.freeze({
    add(visit: Visit) {
      if (waiting.has(visit.id)) return;
      const ofOne = perMessage.get(visit.message) ?? 0;
      if (stopping || waiting.size >= MOST_WAITING || ofOne >= MOST_OF_ONE) {
        lost++;
        return;
      }
      perMessage.set(visit.message, ofOne + 1);
      waiting.set(visit.id, visit);
      working ??= work();
    },
    async stop() {
      stopping = true;
      wake();
      await working;
    },
  });
}
