import { frozen } from '../../base/frozen.ts';
import type { ShareRule } from '../road.ts';
import { mayBeEarly, type Waiting } from './waiting.ts';

/** The maximum of due deliveries of one endpoint held in memory, and of later ones. The rest stays on the spool. */
export const HELD = 256;
/** Below this many due deliveries more are loaded from the spool, so that the endpoint never waits for the disk. */
const LOW = 64;
/** Milliseconds until a failed load is retried. */
const LOAD_AGAIN = 5000;

/**
 * The waiting deliveries of one endpoint: due ones in order, later ones by time, and whether there are more on the
 * spool only ("outside"). New mail is held in memory directly, unless older due mail is outside; then it stays outside
 * too, so that it cannot overtake the older mail forever. Times are milliseconds of the monotonic clock.
 */
export type EndpointQueue = ReturnType<typeof createEndpointQueue>;

type Test = (waiting: Waiting) => boolean;

export function createEndpointQueue() {
  const due = createFifo<Waiting>();
  const later = createHeap<Waiting>((waiting) => waiting.due);
  /** In memory or in flight. */
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

  /** Takes the first due delivery. */
  function take(now: number): Waiting | undefined {
    ripen(now);
    return due.take();
  }

  /** Any number of later deliveries can stay outside. */
  function addLater(waiting: Waiting): void {
    if (loading || later.size() >= HELD) {
      outside = Math.min(outside, waiting.due);
      return;
    }
    held.add(waiting.delivery.id);
    later.add(waiting);
  }

  return frozen({
    /** Adds a new delivery, due or not, or leaves it outside. */
    addFresh(waiting: Waiting, now: number) {
      if (held.has(waiting.delivery.id)) return;
      if (waiting.due > now) return addLater(waiting);
      if (loading || outside <= now || due.size() >= HELD) {
        outside = Math.min(outside, now);
        return;
      }
      held.add(waiting.delivery.id);
      due.add(waiting);
    },
    /** Returns a taken delivery to the queue, to be retried at its due time. */
    defer(waiting: Waiting) {
      if (later.size() < HELD) return later.add(waiting);
      held.delete(waiting.delivery.id);
      outside = Math.min(outside, waiting.due);
    },
    /** Returns a taken but unattempted delivery to the front. */
    putBack(waiting: Waiting) {
      due.putBack(waiting);
    },
    /** Marks a taken delivery as finished. */
    done(id: string) {
      held.delete(id);
    },
    /** Leaves a taken delivery to the spool; it may be due there already. */
    leaveOutside(id: string, now: number) {
      held.delete(id);
      outside = Math.min(outside, now);
    },
    take,
    /** Takes the due deliveries that `company` selects, in order; the others keep their order. */
    takeWith({ most, accepts }: ShareRule, now: number): readonly Waiting[] {
      ripen(now);
      return due.takeWhich(most, accepts);
    },
    /**
     * Takes a delivery for a probe: a due one with the fewest attempts, else the next later one that is not parked or
     * timed. Suspects (`isSuspect`) come after all others, and parked ones last, when due. `position` selects among
     * equal ones: 0 the first, close to 1 the last.
     */
    takeProbe(now: number, isSuspect?: Test, position = 0) {
      ripen(now);
      const soon = later
        .items()
        .filter(mayBeEarly)
        .toSorted((a, b) => a.due - b.due);
      const innocent = isInnocent(isSuspect);
      const chosen =
        leastTried(due.items().filter(innocent), position) ??
        soon.find(innocent) ??
        leastTried(due.items().filter(isInnocent()), position) ??
        soon[0] ??
        due.items()[0];
      return chosen && (due.remove(chosen) ?? later.remove(chosen));
    },
    /** Whether `takeProbe` would find one that is neither a suspect nor parked. */
    hasInnocent(now: number, isSuspect: Test) {
      ripen(now);
      const innocent = isInnocent(isSuspect);
      return due.items().some(innocent) || later.items().some((waiting) => mayBeEarly(waiting) && innocent(waiting));
    },
    /** When `take` will find a delivery in memory; Infinity for never. */
    nextDue: () => (due.size() > 0 ? Number.NEGATIVE_INFINITY : (later.peek()?.due ?? Number.POSITIVE_INFINITY)),
    /** When `takeProbe` will find a delivery in memory. */
    nextProbe() {
      const first = later.peek();
      if (due.size() > 0 || (first && (mayBeEarly(first) || later.items().some(mayBeEarly))))
        return Number.NEGATIVE_INFINITY;
      return first?.due ?? Number.POSITIVE_INFINITY;
    },
    /** When a delivery outside is due; Infinity for never. */
    outsideAt: () => (loading ? Number.POSITIVE_INFINITY : outside),
    /** Whether nothing waits, in memory or outside. */
    isEmpty: () => due.size() + later.size() === 0 && !loading && outside === Number.POSITIVE_INFINITY,
    /** The deliveries in memory, in no order. */
    waiting: (): readonly Waiting[] => [...due.items(), ...later.items()],
    /** Whether to load from the spool now. */
    wantsLoad: (now: number) => !loading && outside <= now && due.size() < LOW,
    /** Marks the load as begun. Returns the ids not to be read: those in memory, and those taken and not finished. */
    beginLoad(): readonly string[] {
      loading = true;
      stale = false;
      outside = Number.POSITIVE_INFINITY;
      return [...held];
    },
    /** Adds the loaded deliveries in order; `full`: there may be more. Undefined: the load failed, and is retried. */
    endLoad(found: readonly Waiting[] | undefined, full: boolean, now: number) {
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
    /** Drops all that is not in flight, after an outside change; the next load is due from `at` on. */
    forget(at: number) {
      for (const waiting of [...due.drain(), ...later.drain()]) held.delete(waiting.delivery.id);
      outside = at;
      stale = loading;
    },
    /**
     * The endpoint is available again: its deliveries are due now, except parked and timed ones, and those for which
     * `waits` is true. Returns whether there are more outside.
     */
    makeAllDue(now: number, waits?: Test) {
      for (const waiting of later.drain())
        later.add(mayBeEarly(waiting) && !waits?.(waiting) ? { ...waiting, due: Math.min(waiting.due, now) } : waiting);
      const more = loading || outside < Number.POSITIVE_INFINITY;
      if (outside < Number.POSITIVE_INFINITY) outside = now;
      return more;
    },
    /** Takes the due deliveries for which `isOver` is true. */
    takeExpired(now: number, isOver: (waiting: Waiting) => boolean) {
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

/** Whether a delivery is neither parked nor suspected. */
const isInnocent =
  (isSuspect?: Test): Test =>
  (waiting) =>
    !waiting.parked && !isSuspect?.(waiting);

/** One of those with the fewest attempts. */
function leastTried(all: readonly Waiting[], position: number): Waiting | undefined {
  const fewest = Math.min(...all.map(({ attempts }) => attempts));
  const least = all.filter(({ attempts }) => attempts === fewest);
  return least[Math.floor(position * least.length)];
}

/** A first-in-first-out queue with constant costs. */
export function createFifo<T>() {
  let items: (T | undefined)[] = [];
  let first = 0;
  return {
    size: (): number => items.length - first,
    add(item: T) {
      items.push(item);
    },
    /** Returns an item to the front. */
    putBack(item: T) {
      if (first > 0) items[--first] = item;
      else items.unshift(item);
    },
    take(): T | undefined {
      if (first === items.length) return undefined;
      const item = items[first];
      items[first++] = undefined;
      if (first > 1024 || first === items.length) {
        items = items.slice(first);
        first = 0;
      }
      return item;
    },
    /** Takes up to `most` chosen items, in order; the others keep their order. */
    takeWhich(most: number, chosen: (item: T) => boolean): T[] {
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
    /** Returns all items in order. */
    items: (): T[] => items.filter((item) => item !== undefined),
    /** Removes and returns one item; undefined if it is not here. */
    remove(item: T): T | undefined {
      const at = items.indexOf(item, first);
      return at < 0 ? undefined : items.splice(at, 1)[0];
    },
    /** Removes and returns all items in order. */
    drain(): T[] {
      const all: T[] = [];
      for (let item = this.take(); item !== undefined; item = this.take()) all.push(item);
      return all;
    },
  };
}

/** A binary heap, smallest first, ordered by `keyOf`, which must not change for an item in the heap. */
export function createHeap<T>(keyOf: (item: T) => number) {
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

  /** Inserts an entry at the top and moves it down to its position. */
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
    /** Returns all items, in no order. */
    items: () => items.map(({ item }) => item),
    /** Removes and returns one item; undefined if it is not here. Costs as much as all of them. */
    remove(item: T) {
      const kept = items.filter((entry) => entry.item !== item);
      if (kept.length === items.length) return undefined;
      items = [];
      for (const entry of kept) add(entry.item);
      return item;
    },
    /** Removes and returns all items, in no order. */
    drain() {
      const all = items.map(({ item }) => item);
      items = [];
      return all;
    },
  };
}
