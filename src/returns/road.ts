import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Settlement, Spool } from '../queue/delivery.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { settle, settleUnattempted } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Carried, Gate } from '../webhooks/carry.ts';
import type { AttemptResult } from '../webhooks/types.ts';
import type { Handled, Returns } from './returns.ts';

export interface ReturningDeps {
  readonly spool: Pick<Spool, 'message'>;
  readonly returns: Returns;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly time: RunningTime;
  /** After how many milliseconds it is given up: a mail that we cannot read through a fault of ours. */
  readonly limit: number;
  /** Writes a settlement, however long the spool takes to be able to. */
  note(settlement: Settlement): Promise<void>;
}

/** A report that is faster than the row of its message is so by a moment, or by as long as the store was away. */
const SHORTEST_GAP_MS = 1000;
const LONGEST_GAP_MS = 60_000;
const gapFor = (ageMs: number) => Math.min(Math.max(ageMs, SHORTEST_GAP_MS), LONGEST_GAP_MS);

/** The way of mail that came back: it goes no further than here. */
export interface Returning {
  attempt(waiting: Waiting, gate: Gate): Promise<Carried>;
}

export function createReturning(deps: ReturningDeps): Returning {
  const { spool, returns, clock, log, time } = deps;

  /** Undefined: not now, because the store is away. */
  async function read(
    waiting: Waiting,
    found: NonNullable<Awaited<ReturnType<Spool['message']>>>,
  ): Promise<Handled | 'fault' | undefined> {
    try {
      return await returns.handle(waiting.delivery, found.message, found.body, clock.now());
    } catch (error) {
      if (error instanceof StoreAway) return undefined;
      log.error('delivery.fault', { delivery: waiting.delivery.id, message: waiting.delivery.messageId, error });
      return 'fault';
    }
  }

  /** Written into the history as what a receiver would have answered; tried again as any delivery when the fault is ours. */
  async function end(
    { delivery, attempts, parked, budgetFrom }: Waiting,
    gate: Gate,
    handled: Handled | 'fault',
    durationMs: number,
  ): Promise<Carried> {
    const done = handled !== 'fault' && handled.kind === 'done';
    const result: AttemptResult = {
      kind: 'answered',
      status: done ? 200 : 500,
      retryAfter: null,
      answer: done ? handled.words : 'fault on our side',
      durationMs,
    };
    const settled = settle({
      delivery: { id: delivery.id, attempts, parked },
      result,
      now: clock.now(),
      jitter: deps.ids.jitter(),
      budget: { age: time.age(budgetFrom), limit: deps.limit, mayEnd: time.sure() },
      othersPass: gate.othersPass(),
    });
    gate.leave(result, settled);
    await deps.note(settled.settlement);
    // What became of it stands in the log already, in its own words.
    return done ? { kind: 'gone' } : { kind: 'settled', settled, result };
  }

  return frozen({
    async attempt(waiting, gate): Promise<Carried> {
      const { delivery } = waiting;
      const found = await spool.message(delivery.messageId, delivery.id);
      if (!found) {
        await deps.note(settleUnattempted(delivery.id, 'dropped', waiting.parked, clock.now()));
        return { kind: 'gone' };
      }
      if (!(await gate.enter())) return { kind: 'turned back' };
      const began = clock.monotonic();
      const handled = await read(waiting, found);
      if (handled === undefined) return { kind: 'put off' };
      if (handled !== 'fault' && handled.kind === 'later')
        return { kind: 'put off', at: clock.now() + gapFor(clock.now() - found.message.receivedAt) };
      return end(waiting, gate, handled, Math.round(clock.monotonic() - began));
    },
  });
}
