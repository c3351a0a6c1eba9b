import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { type Batch, idsOf } from './changes.ts';
import type { AskJournal } from './history.ts';
import type { MailRecord, RefusalRecord } from './types.ts';

// The latest writes, for live views. Rows are read back only while somebody watches.

/** A row that was written or changed. */
type Found =
  | { readonly topic: 'mail'; readonly row: MailRecord }
  | { readonly topic: 'refused'; readonly row: RefusalRecord }
  /** More happened at once than is shown. */
  | { readonly topic: 'missed' };

/** A watcher can resume after the event with this `id`. */
export type FeedEvent = { readonly id: string } & Found;

export type Feed = ReturnType<typeof createFeed>;

/** Events kept for watchers that reconnect. */
const MAX_KEPT = 500;
/** Maximum rows of each kind that are read back at a time, and the interval. */
const MAX_ROWS = 100;
const EVERY_MS = 250;
/** After the last watcher has left, the feed continues for reconnections. */
const LINGER_MS = 60_000;

export function createFeed(ask: AskJournal, clock: Clock) {
  const listeners = new Set<(events: readonly FeedEvent[]) => void>();
  let kept: FeedEvent[] = [];
  /** The run of the feed, and its number of events. */
  let run = 0;
  let count = 0;
  let running = false;
  let cancelEnd: (() => void) | undefined;
  /** Deliveries that have changed; refusals are read by row number. */
  let changed = new Set<string>();
  let missed = false;
  let refused = false;
  /** The row number of the last known refusal; undefined until it was read. */
  let lastRefusal: number | undefined;
  let reading = false;

  function begin(): void {
    cancelEnd?.();
    cancelEnd = undefined;
    if (running) return;
    running = true;
    run = Math.max(run + 1, clock.now());
    count = 0;
    lastRefusal = undefined;
    refused = true;
    readSoon(0);
  }

  function end(): void {
    running = false;
    kept = [];
    changed = new Set();
  }

  function readSoon(ms = EVERY_MS): void {
    if (reading) return;
    reading = true;
    clock.after(ms, () => {
      void readBack()
        .catch(() => undefined) // the journal has logged it
        .then(() => {
          reading = false;
          if (running && (changed.size > 0 || refused)) readSoon();
        });
    });
  }

  async function readBack(): Promise<void> {
    const ids = [...changed];
    const [withMail, withRefusals, withMissed] = [ids.length > 0, refused, missed];
    changed = new Set();
    refused = false;
    missed = false;
    const mail = withMail ? await ask('each', ids) : [];
    const refusals = withRefusals ? await newRefusals() : [];
    if (!running) return;
    tell([
      ...(withMissed ? [{ topic: 'missed' as const }] : []),
      ...mail.map((row) => ({ topic: 'mail' as const, row })),
      ...refusals.map((row) => ({ topic: 'refused' as const, row })),
    ]);
  }

  /** Refusals since the last call, oldest first; the first call only finds the last row. */
  async function newRefusals(): Promise<readonly RefusalRecord[]> {
    const from = lastRefusal;
    if (from === undefined) {
      [, lastRefusal] = await ask('refusalBounds');
      return [];
    }
    const rows = await ask('refusals', {}, [from + 1, Number.MAX_SAFE_INTEGER], MAX_ROWS);
    lastRefusal = rows[0]?.n ?? from;
    if ((rows.at(-1)?.n ?? from + 1) > from + 1) missed = true;
    return rows.toReversed();
  }

  function tell(found: readonly Found[]): void {
    if (found.length === 0) return;
    const events = found.map((one) => ({ ...one, id: `${run}-${++count}` }));
    kept = [...kept, ...events].slice(-MAX_KEPT);
    for (const listener of listeners) listener(events);
  }

  /** The events after the one with this id. */
  function since(id: string): readonly FeedEvent[] | undefined {
    if (id === `${run}-${count}`) return [];
    const at = kept.findIndex((event) => event.id === id);
    return at < 0 ? undefined : kept.slice(at + 1);
  }

  return frozen({
    /**
     * Calls back with new events, oldest first. `from` is the id of the last event that was seen; `missed` has the
     * events since then, or is undefined if they are not known.
     */
    watch(
      listener: (events: readonly FeedEvent[]) => void,
      from?: string,
    ): { readonly missed: readonly FeedEvent[] | undefined; end(): void } {
      begin();
      listeners.add(listener);
      return {
        missed: from === undefined ? [] : since(from),
        end() {
          listeners.delete(listener);
          if (listeners.size > 0) return;
          cancelEnd?.();
          cancelEnd = clock.after(LINGER_MS, end);
        },
      };
    },
    /** After each write of the journal. */
    wrote(batch: Batch) {
      if (!running) return;
      for (const id of idsOf(batch)) {
        changed.delete(id);
        changed.add(id);
      }
      for (const id of changed) {
        if (changed.size <= MAX_ROWS) break;
        changed.delete(id);
        missed = true;
      }
      refused ||= batch.refusals.length > 0;
      if (changed.size > 0 || refused) readSoon();
    },
  });
}
