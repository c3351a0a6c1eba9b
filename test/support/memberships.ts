import { type Collection, type Row, StoreAway } from '../../src/store/driver/port.ts';
import { createLostHosts } from '../../src/store/lost-hosts.ts';
import { createMembership, type Membership } from '../../src/store/membership.ts';
import type { Store } from '../../src/store/store.ts';
import { createTestClock, createWatch, type TestClock } from './clock.ts';
import { createTestLog } from './log.ts';

/** More than a watch takes. */
export const WATCHED_MS = 10_000;

export interface Given {
  readonly id: string;
  readonly name?: string;
  readonly alone?: boolean;
  /** By how much its wall clock is wrong. */
  readonly wrongMs?: number;
  /** `hosts.adopt_after_s`, in milliseconds; without it, it watches no others. */
  readonly adoptAfterMs?: number;
  readonly features?: readonly string[];
}

/** A process that runs as a host. */
export interface Process extends Membership {
  readonly log: ReturnType<typeof createTestLog>;
  readonly gauges: ReadonlyMap<string, () => unknown>;
  /** As if it had been killed, or cut off the store; until `mend`. */
  cut(): void;
  mend(): void;
}

/** Memberships of processes that share a store, on one monotonic clock. */
export function createMemberships(store: Store) {
  const watch = createWatch();
  const clock: TestClock = createTestClock(undefined, watch.quiet);
  const opened: Process[] = [];
  let processes = 0;

  function open({
    id,
    name = `${id}.test`,
    alone = false,
    wrongMs = 0,
    adoptAfterMs,
    features = ['a'],
  }: Given): Process {
    let isCut = false;
    const reach = <R extends Row>(rows: Collection<R>): Collection<R> => {
      const through = <A extends unknown[], T>(call: (...args: A) => Promise<T>) => {
        return async (...args: A): Promise<T> => {
          if (isCut) throw new StoreAway('away');
          return call(...args);
        };
      };
      const entries = Object.entries(watch.over(rows)).map(([key, call]) => [key, through(call)] as const);
      return Object.assign(Object.create(null), Object.fromEntries(entries));
    };
    const reached = {
      hosts: reach(store.hosts),
      revisions: watch.over(store.revisions),
      copies: reach(store.copies),
      understands: ({ needs }: { readonly needs?: string | null }) =>
        !needs || needs.split(' ').every((need) => features.includes(need)),
    };
    const log = createTestLog();
    const gauges = new Map<string, () => unknown>();
    const own = { ...clock, now: () => clock.now() + wrongMs };
    const membership = createMembership(
      { name, url: '', queueDir: `/var/lib/${id}`, version: '1.2.3', features, alone },
      { store: reached, identify: () => id, incarnation: `process ${++processes}`, clock: own, log },
    );
    const lost =
      adoptAfterMs === undefined
        ? undefined
        : createLostHosts(
            { afterMs: adoptAfterMs, alone },
            {
              store: reached,
              member: membership,
              clock: own,
              log,
              metrics: {
                gauge: (key, read) => {
                  gauges.set(key, read);
                },
                counter: () => ({ add() {} }),
              },
            },
          );
    const process: Process = {
      ...membership,
      log,
      gauges,
      async start() {
        await membership.start();
        await lost?.start();
      },
      async stop() {
        await lost?.stop();
        await membership.stop();
      },
      cut() {
        isCut = true;
      },
      mend() {
        isCut = false;
      },
    };
    opened.push(process);
    return process;
  }

  /** The result of a start, however long it takes: `runs`, or why not. */
  async function started(membership: Membership): Promise<string> {
    let result: string | undefined;
    membership.start().then(
      () => {
        result = 'runs';
      },
      (error: Error) => {
        result = error.message;
      },
    );
    for (let ms = 0; result === undefined && ms < 3 * WATCHED_MS; ms += 250) await clock.advance(250);
    return result ?? 'still starting';
  }

  return {
    clock,
    open,
    started,
    /** The number of processes so far. */
    count: () => processes,
    start: async (given: Given) => started(open(given)),
    async running(given: Given): Promise<Process> {
      const one = open(given);
      const result = await started(one);
      if (result !== 'runs') throw new Error(`${given.id}: ${result}`);
      return one;
    },
    row: (id: string) => store.hosts.one({ id }),
    async stop(): Promise<void> {
      await Promise.all(opened.splice(0).map((one) => one.stop()));
    },
  };
}

export type Memberships = ReturnType<typeof createMemberships>;
