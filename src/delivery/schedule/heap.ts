/** The smallest first; adding and taking cost the logarithm of its size. */
export interface Heap<T> {
  size(): number;
  peek(): T | undefined;
  add(item: T): void;
  take(): T | undefined;
  /** Everything, in no order; empties it. */
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
    drain() {
      const all = items.map(({ item }) => item);
      items = [];
      return all;
    },
  };
}
