import { frozen } from '../../base/frozen.ts';
import type { Company } from '../road.ts';
import { mayBeEarly, type Waiting } from './lane.ts';

/**
 * Deliveries of one endpoint that are held in memory: due ones, and as many again that are due later. The rest stays on
 * the spool.
 */
export const HELD = 256;
/** Below this many due ones the next are read from the spool, so that the endpoint need not wait for the disk. */
const LOW = 64;
/** How long after a read that failed the next one is made. */
const LOAD_AGAIN = 5000;

/**
 * What waits for one endpoint: due ones in order, later ones by time, and the knowledge of whether there is more on the
 * spool (outside). Mail that arrives goes straight in; once there is due mail outside it goes there too, so that it
 * cannot overtake for ever what came before it. Times are milliseconds that only grow.
 */
export interface EndpointQueue {
  /** Takes a fresh delivery, whenever it is due, or leaves it outside. */
  addFresh(waiting: Waiting, now: number): void;
  /** Takes back one that was taken, to be tried again at its due time. */
  defer(waiting: Waiting): void;
  /** Takes back one that was taken and not attempted; it is the first again. */
  putBack(waiting: Waiting): void;
  /** A taken one is finished. */
  done(id: string): void;
  /** The first that is due. */
  take(now: number): Waiting | undefined;
  /** Those due ones that go along with one that was taken, in their order; the others keep theirs. */
  takeWith(company: Company, now: number): readonly Waiting[];
  /** For a probe: the first, due or not, unless the first that waits for its time is parked or timed. */
  takeProbe(now: number): Waiting | undefined;
  /** When `take` will find one in memory; Infinity for never. */
  nextDue(): number;
  /** When `takeProbe` will find one in memory. */
  nextProbe(): number;
  /** When there is something due outside; Infinity for never. */
  outsideAt(): number;
  /** Nothing waits, here or outside. */
  isEmpty(): boolean;
  /** All that waits here, in no order. */
  waiting(): readonly Waiting[];
  /** Whether it is time to read from the spool. */
  wantsLoad(now: number): boolean;
  /**
   * Ids of all that need not be read: what is held here and what was taken and is not finished. Marks the load as
   * begun.
   */
  beginLoad(): readonly string[];
  /**
   * What was read, in the order of its due times; `full`: there may be more. Undefined: it could not be read, to be
   * tried again later.
   */
  endLoad(found: readonly Waiting[] | undefined, full: boolean, now: number): void;
  /** Forgets all that is not in flight, because something outside changed; there is something to read from `at` on. */
  forget(at: number): void;
  /**
   * The endpoint is back: those that waited for it are due now; parked and timed ones keep their time. Whether there
   * are more outside.
   */
  pull(now: number): boolean;
  /** Takes out due ones that `isOver` says are over; they count as taken. */
  takeOver(now: number, isOver: (waiting: Waiting) => boolean): Waiting[];
}

export function createEndpointQueue(): EndpointQueue {
  const due = createFifo<Waiting>();
  const later = createHeap<Waiting>((waiting) => waiting.due);
  /** Here or in flight. */
  const held = new Set<string>();
  let outside = Number.POSITIVE_INFINITY;
  let loading = false;
  let stale = false;

  function ripen(now: number): void {
    for (let next = later.peek(); next && next.due <= now; next = later.peek()) {
      later.take();
      due.add(next);
    }
  }

  function take(now: number): Waiting | undefined {
    ripen(now);
    return due.take();
  }

  /** Outside there is room for all that is due one day. */
  function addLater(waiting: Waiting): void {
    if (loading || later.size() >= HELD) {
      outside = Math.min(outside, waiting.due);
      return;
    }
    held.add(waiting.delivery.id);
    later.add(waiting);
  }

  return frozen({
    addFresh(waiting, now) {
      if (held.has(waiting.delivery.id)) return;
      if (waiting.due > now) return addLater(waiting);
      if (loading || outside <= now || due.size() >= HELD) {
        outside = Math.min(outside, now);
        return;
      }
      held.add(waiting.delivery.id);
      due.add(waiting);
    },
    defer(waiting) {
      if (later.size() < HELD) return later.add(waiting);
      held.delete(waiting.delivery.id);
      outside = Math.min(outside, waiting.due);
    },
    putBack(waiting) {
      due.putBack(waiting);
    },
    done(id) {
      held.delete(id);
    },
    take,
    takeWith({ most, takes }, now) {
      ripen(now);
      return due.takeWhich(most, takes);
    },
    takeProbe(now) {
      const first = take(now);
      if (first) return first;
      const next = later.peek();
      return next && mayBeEarly(next) ? later.take() : undefined;
    },
    nextDue: () => (due.size() > 0 ? Number.NEGATIVE_INFINITY : (later.peek()?.due ?? Number.POSITIVE_INFINITY)),
    nextProbe() {
      const first = later.peek();
      if (due.size() > 0 || (first && mayBeEarly(first))) return Number.NEGATIVE_INFINITY;
      return first?.due ?? Number.POSITIVE_INFINITY;
    },
    outsideAt: () => (loading ? Number.POSITIVE_INFINITY : outside),
    isEmpty: () => due.size() + later.size() === 0 && !loading && outside === Number.POSITIVE_INFINITY,
    waiting: () => [...due.items(), ...later.items()],
    wantsLoad: (now) => !loading && outside <= now && due.size() < LOW,
    beginLoad() {
      loading = true;
      stale = false;
      outside = Number.POSITIVE_INFINITY;
      return [...held];
    },
    endLoad(found, full, now) {
      loading = false;
      if (!found || stale) {
        outside = found ? now : now + LOAD_AGAIN;
        return;
      }
      ripen(now);
      for (const waiting of found) {
        if (held.has(waiting.delivery.id)) continue;
        held.add(waiting.delivery.id);
        if (waiting.due <= now) due.add(waiting);
        else later.add(waiting);
      }
      const last = found.at(-1);
      if (full && last) outside = Math.min(outside, last.due);
    },
    forget(at) {
      for (const waiting of [...due.drain(), ...later.drain()]) held.delete(waiting.delivery.id);
      outside = at;
      stale = loading;
    },
    pull(now) {
      for (const waiting of later.drain())
        later.add(mayBeEarly(waiting) ? { ...waiting, due: Math.min(waiting.due, now) } : waiting);
      const more = loading || outside < Number.POSITIVE_INFINITY;
      if (outside < Number.POSITIVE_INFINITY) outside = now;
      return more;
    },
    takeOver(now, isOver) {
      ripen(now);
      const over: Waiting[] = [];
      for (const waiting of due.drain()) {
        if (isOver(waiting)) over.push(waiting);
        else due.add(waiting);
      }
      return over;
    },
  });
}

/** First in, first out, at the same cost whatever its length. */
interface Fifo<T> {
  size(): number;
  add(item: T): void;
  /** Puts an item back to where it was taken from. */
  putBack(item: T): void;
  take(): T | undefined;
  /** At most so many of those that are chosen, in their order; the others keep theirs. */
  takeWhich(most: number, chosen: (item: T) => boolean): T[];
  /** Everything in order. */
  items(): T[];
  /** The same; empties it. */
  drain(): T[];
}

export function createFifo<T>(): Fifo<T> {
  let items: (T | undefined)[] = [];
  let first = 0;
  return {
    size: () => items.length - first,
    add(item) {
      items.push(item);
    },
    putBack(item) {
      if (first > 0) items[--first] = item;
      else items.unshift(item);
    },
    take() {
      if (first === items.length) return undefined;
      const item = items[first];
      items[first++] = undefined;
      if (first > 1024 || first === items.length) {
        items = items.slice(first);
        first = 0;
      }
      return item;
    },
    takeWhich(most, chosen) {
      const taken: T[] = [];
      const passed: T[] = [];
      while (taken.length < most) {
        const item = this.take();
        if (item === undefined) break;
        (chosen(item) ? taken : passed).push(item);
      }
      for (const item of passed.reverse()) this.putBack(item);
      return taken;
    },
    items: () => items.filter((item) => item !== undefined),
    drain() {
      const all: T[] = [];
      for (let item = this.take(); item !== undefined; item = this.take()) all.push(item);
      return all;
    },
  };
}

/** The smallest first; adding and taking cost the logarithm of its size. */
interface Heap<T> {
  size(): number;
  peek(): T | undefined;
  add(item: T): void;
  take(): T | undefined;
  /** Everything, in no order. */
  items(): T[];
  /** The same; empties it. */
  drain(): T[];
}

/** A binary heap ordered by `keyOf`, which must not change while an item is in it. */
export function createHeap<T>(keyOf: (item: T) => number): Heap<T> {
  let items: { readonly key: number; readonly item: T }[] = [];

  function add(item: T): void {
    const entry = { key: keyOf(item), item };
    let at = items.length;
    items.push(entry);
    while (at > 0) {
      const up = (at - 1) >> 1;
      const parent = items[up];
      if (!parent || parent.key <= entry.key) break;
      items[at] = parent;
      at = up;
    }
    items[at] = entry;
  }

  function take(): T | undefined {
    const first = items[0];
    const last = items.pop();
    if (first && last && items.length > 0) sink(last);
    return first?.item;
  }

  /** Puts an entry in at the top and lets it down to its place. */
  function sink(entry: { readonly key: number; readonly item: T }): void {
    let at = 0;
    for (;;) {
      const left = items[2 * at + 1];
      const right = items[2 * at + 2];
      const child = left && right && right.key < left.key ? right : left;
      if (!child || child.key >= entry.key) break;
      items[at] = child;
      at = child === left ? 2 * at + 1 : 2 * at + 2;
    }
    items[at] = entry;
  }

  return {
    size: () => items.length,
    peek: () => items[0]?.item,
    add,
    take,
    items: () => items.map(({ item }) => item),
    drain() {
      const all = items.map(({ item }) => item);
      items = [];
      return all;
    },
  };
}
