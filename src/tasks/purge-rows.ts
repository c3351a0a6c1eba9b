import type { Clock } from '../base/clock.ts';
import type { Collection, Filter, Row } from '../store/collection.ts';
import type { Span } from '../store/counters.ts';
import type { Store } from '../store/store.ts';
import { type Belief, createSteadiness } from './purge.ts';
import type { Task } from './task.ts';

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
const STEP = 500;

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
    name: 'purge-rows',
    schedule: '23 * * * *',
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
    const found = ending?.aborted ? [] : await rows.many(filter, { limit: STEP });
    await Promise.all(found.map(({ id }) => rows.remove(byId<R>(id))));
    done += found.length;
    if (found.length < STEP) return done;
  }
}

/** For a generic row TypeScript cannot see that this names a field of it. */
function byId<R extends Row>(id: string): Filter<R> {
  const filter: Filter<Row> = { id };
  return filter as Filter<R>;
}
