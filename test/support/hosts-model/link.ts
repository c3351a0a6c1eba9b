import type { Clock } from '../../../src/base/clock.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Row,
  StoreAway,
} from '../../../src/store/driver/port.ts';

/** The way of one process to the store. */
export interface Link {
  isCut: boolean;
  /** The longest that an operation takes, each way. Milliseconds. */
  slowMs: number;
  /** Beats are lost, and all else arrives: of a host that has too much to do, but accepts. */
  isMute: boolean;
  /** How likely the answer of an operation is lost. */
  loses: number;
  /** The process was killed: nothing comes back, but what is under way may still arrive. */
  isDead: boolean;
}

/** As the settings have it. */
const TIMEOUT_MS = 5000;
/** An operation that was cut off on its way arrives nevertheless, one time in so many. */
const ARRIVES = 0.5;

export const never = <T>(): Promise<T> => new Promise<T>(() => {});

/** The database as one process reaches it: late, not at all, or without an answer. */
export function linkTo(database: Database, link: Link, clock: Clock, random: () => number): Database {
  const pause = (ms: number) =>
    new Promise<void>((resolve) => {
      clock.after(ms, resolve);
    });
  const fail = async (): Promise<never> => {
    if (link.isDead) return never();
    throw new StoreAway('cut');
  };

  async function reach<T>(work: () => Promise<T>): Promise<T> {
    if (link.isDead) return never();
    const [there, back] = [1 + random() * link.slowMs, 1 + random() * link.slowMs];
    const [arrives, isLost] = [random() < ARRIVES, random() < link.loses];
    if (link.isCut) {
      await pause(there);
      return fail();
    }
    async function go(): Promise<T> {
      await pause(there);
      if ((link.isCut || link.isDead) && !arrives) return fail();
      const result = await work();
      await pause(back);
      if (link.isCut || link.isDead || isLost) return fail();
      return result;
    }
    const going = go();
    if (there + back <= TIMEOUT_MS) return going;
    going.catch(() => {});
    await pause(TIMEOUT_MS);
    return fail();
  }

  return {
    async collection<R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>> {
      const rows = await database.collection(spec);
      const isBeat = spec.name === 'hosts';
      return {
        one: (filter) => reach(() => rows.one(filter)),
        many: (filter, page) => reach(() => rows.many(filter, page)),
        insert: (row) => reach(() => rows.insert(row)),
        insertAll: (all) => reach(() => rows.insertAll(all)),
        change: (filter, patch) => (isBeat && link.isMute ? fail() : reach(() => rows.change(filter, patch))),
        add: (id, amounts, fresh) => reach(() => rows.add(id, amounts, fresh)),
        remove: (filter) => reach(() => rows.remove(filter)),
        removeAll: (filter) => reach(() => rows.removeAll(filter)),
      };
    },
    left: () => Number.POSITIVE_INFINITY,
    ping: () => reach(() => database.ping()),
    close: async () => {},
  };
}

/**
 * The queue of a process: its file outlives the process, but nothing comes back to one that was killed. Answers come at
 * a time of the seed, in whatever order the threads of the queues had them.
 */
export function mortal<Part extends object>(
  part: Part,
  link: Pick<Link, 'isDead'>,
  clock: Clock,
  random: () => number,
): Part {
  const alive =
    (listener: (...all: unknown[]) => unknown) =>
    (...all: unknown[]) =>
      link.isDead ? undefined : listener(...all);
  async function later(answer: Promise<unknown>): Promise<unknown> {
    const pause = new Promise<void>((resolve) => {
      clock.after(random(), resolve);
    });
    const [result] = await Promise.allSettled([answer, pause]);
    if (link.isDead) return never();
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  }
  const wrap = (value: unknown): unknown => {
    if (typeof value === 'function')
      return (...args: unknown[]) => {
        const given = args.map((arg) =>
          typeof arg === 'function' ? alive(arg as (...all: unknown[]) => unknown) : arg,
        );
        const answer: unknown = value(...given);
        if (answer instanceof Promise) return link.isDead ? never() : later(answer);
        return typeof answer === 'object' && answer !== null && 'write' in answer ? wrapAll(answer) : answer;
      };
    return typeof value === 'object' && value !== null ? wrapAll(value) : value;
  };
  const wrapAll = <P extends object>(all: P): P =>
    Object.fromEntries(Object.entries(all).map(([name, value]) => [name, wrap(value)])) as P;
  return wrapAll(part);
}
