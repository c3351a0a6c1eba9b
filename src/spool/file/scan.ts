import type { Reading } from '../reading.ts';
import type { DeliveryState, Progress, QueuedDelivery, Selection } from '../types.ts';

/** Looking through the whole queue in windows, so that short questions get their turn in between. */
export interface Scan {
  list(selection: Selection, limit: number): Promise<QueuedDelivery[]>;
  count(selection: Selection): Promise<Record<DeliveryState, number>>;
  /** Runs `change` on the numbers of what is selected, some at a time, and adds up its answers. */
  change(
    selection: Selection,
    change: (keys: readonly number[]) => Promise<number>,
    progress?: Progress,
  ): Promise<number>;
}

/** Numbers looked at in one question: some 10 ms. */
const WINDOW = 20_000;
/** Rows changed in one step, which shares a commit with new mail. */
const STEP = 500;

/** Scans over the reader. */
export function createScan({ read }: Reading): Scan {
  /** Named ids are found by their index; one question is enough then. */
  const widthFor = (selection: Selection) => (selection.ids ? Number.MAX_SAFE_INTEGER : WINDOW);

  return Object.freeze({
    async list(selection: Selection, limit: number) {
      const [first, last] = await read('span');
      const width = widthFor(selection);
      const found: QueuedDelivery[] = [];
      for (let to = last; to >= first && found.length < limit; to -= width) {
        found.push(...(await read('list', selection, limit - found.length, Math.max(first, to - width + 1), to)));
      }
      return found;
    },
    async count(selection: Selection) {
      const [first, last] = await read('span');
      const width = widthFor(selection);
      const sum = { waiting: 0, delivered: 0, dead: 0, dropped: 0 };
      for (let from = first; from <= last; from += width) {
        const counts = await read('count', selection, from, Math.min(last, from + width - 1));
        for (const state of ['waiting', 'delivered', 'dead', 'dropped'] as const) sum[state] += counts[state];
      }
      return sum;
    },
    async change(selection: Selection, change: (keys: readonly number[]) => Promise<number>, progress?: Progress) {
      const [first, last] = await read('span');
      const width = widthFor(selection);
      let count = 0;
      for (let from = first; from <= last; from += width) {
        const keys = await read('keys', selection, from, Math.min(last, from + width - 1));
        for (let at = 0; at < keys.length; at += STEP) {
          count += await change(keys.slice(at, at + STEP));
          progress?.(count);
        }
      }
      return count;
    },
  });
}
