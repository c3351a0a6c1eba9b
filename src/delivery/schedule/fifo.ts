/** First in, first out, at the same cost whatever its length. */
export interface Fifo<T> {
  size(): number;
  add(item: T): void;
  /** Puts an item back to where it was taken from. */
  putBack(item: T): void;
  take(): T | undefined;
  /** Everything in order; empties it. */
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
    drain() {
      const all: T[] = [];
      for (let item = this.take(); item !== undefined; item = this.take()) all.push(item);
      return all;
    },
  };
}
