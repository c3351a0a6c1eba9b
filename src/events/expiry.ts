import type { Clock } from '../base/clock.ts';
import type { Task } from '../base/service.ts';
import { type Belief, createSteadiness } from '../queue/purge.ts';
import type { Collection, Filter, Row } from '../store/driver/port.ts';
import type { Span } from '../store/rows/counters.ts';
import type { Store } from '../store/store.ts';

export interface PurgeRowsSettings {
  /** Messages and their events are forgotten so many days later; the numbers stay. */
  readonly keepDays: number;
}

const DAY_MS = 86_400_000;
/** The longest window is 90 days and begins with a whole hour. Totals stay for ever. The number is in days. */
const KEEP_SPANS: readonly (readonly [Span, number])[] = [
  ['minute', 1],
  ['hour', 91],
  ['week', 91],
  ['month', 400],
];
/** A link has numbers as long as it is sent or clicked: every recipient may have links of his own. */
const KEEP_URL_DAYS = 91;
/** Rows of one step, which share a sync of the disk. */
const ROWS_A_STEP = 500;

/** Forgets rows that nothing shows any more, in small steps, so that nobody waits long for the store. */
export function purgeRowsTask(
  settings: PurgeRowsSettings,
  deps: {
    store: Pick<Store, 'counters' | 'messages' | 'messageTags' | 'messageEvents' | 'urls' | 'urlHours'>;
    clock: Clock;
    time?: Belief;
  },
): Task {
  const { store, clock } = deps;
  const isSteady = createSteadiness(clock, deps.time);
  return {
    async run(ending) {
      if (!isSteady()) return undefined;
      const before = (days: number) => ({ range: { lt: new Date(clock.now() - days * DAY_MS) } });
      const old = before(settings.keepDays);
      let counters = 0;
      for (const [span, days] of KEEP_SPANS)
        counters += await removeAll(store.counters, { span, start: before(days) }, ending);
      const urls = await removeAll(store.urls, { lastHour: before(KEEP_URL_DAYS) }, ending);
      counters += await removeAll(store.urlHours, { start: before(KEEP_URL_DAYS) }, ending);
      const events = await removeAll(store.messageEvents, { at: old }, ending);
      const tags = await removeAll(store.messageTags, { createdAt: old }, ending);
      const messages = await removeAll(store.messages, { createdAt: old }, ending);
      return counters + urls + events + tags + messages > 0 ? { counters, urls, events, tags, messages } : undefined;
    },
  };
}

async function removeAll<R extends Row>(
  rows: Collection<R>,
  filter: Filter<R>,
  ending: AbortSignal | undefined,
): Promise<number> {
  for (let done = 0; ; ) {
    const found = ending?.aborted ? [] : await rows.many(filter, { limit: ROWS_A_STEP });
    await Promise.all(found.map(({ id }) => rows.remove(byId<R>(id))));
    done += found.length;
    if (found.length < ROWS_A_STEP) return done;
  }
}

/** For a generic row TypeScript cannot see that this names a field of it. */
function byId<R extends Row>(id: string): Filter<R> {
  const filter: Filter<Row> = { id };
  return filter as Filter<R>;
}

/** Entries that are marked side by side; then the next so many. */
const REJECTS_A_STEP = 50;

/**
 * Marks entries of the rejection list whose time is over. Nobody waits for it: who reads the list looks at the clock too. The
 * mark keeps expired entries out of the index that the list reads.
 */
export function expireRejectsTask({
  store: { rejects },
  clock,
  time,
}: {
  store: Pick<Store, 'rejects'>;
  clock: Clock;
  time?: Belief;
}): Task {
  const isSteady = createSteadiness(clock, time);
  return {
    async run(ending) {
      // The mark stays when the clock is set right, and an address that bounced would be mailed again.
      if (!isSteady()) return undefined;
      let expired = 0;
      while (!ending?.aborted) {
        const now = new Date(clock.now());
        const due = await rejects.many(
          { expired: false, expiresAt: { range: { lte: now } } },
          { sort: 'expiresAt', limit: REJECTS_A_STEP },
        );
        // One that was renewed since it was read has another version, and is not due any more.
        const marked = await Promise.all(
          due.map(({ id, version }) =>
            rejects.change({ id, version, expired: false }, { expired: true, version: version + 1 }),
          ),
        );
        expired += marked.filter((row) => row !== undefined).length;
        if (due.length < REJECTS_A_STEP) break;
      }
      return expired > 0 ? { expired } : undefined;
    },
  };
}
