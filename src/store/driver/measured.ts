import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Metrics } from '../../base/metrics.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  DuplicateRow,
  type Row,
  StoreAway,
  StoreFull,
} from './port.ts';

type Operation = 'one' | 'many' | 'insert' | 'insertAll' | 'change' | 'add' | 'remove' | 'removeAll' | 'ping';
type Run = <T>(operation: Operation, work: Promise<T>) => Promise<T>;

/** Wraps a database so that every operation is timed and counted. */
export function measured(
  database: Database,
  { clock, metrics }: { readonly clock: Clock; readonly metrics: Metrics },
): Database {
  const run = createRun(clock, metrics);
  return frozen({
    collection: async <R extends Row>(spec: CollectionSpec<R>) =>
      measuredCollection(await database.collection(spec), run),
    left: () => database.left(),
    ping: () => run('ping', database.ping()),
    close: () => database.close(),
  });
}

function measuredCollection<R extends Row>(rows: Collection<R>, run: Run): Collection<R> {
  return frozen<Collection<R>>({
    one: (filter) => run('one', rows.one(filter)),
    many: (filter, page) => run('many', rows.many(filter, page)),
    insert: (row) => run('insert', rows.insert(row)),
    insertAll: (all) => run('insertAll', rows.insertAll(all)),
    change: (filter, patch) => run('change', rows.change(filter, patch)),
    add: (id, amounts, fresh) => run('add', rows.add(id, amounts, fresh)),
    remove: (filter) => run('remove', rows.remove(filter)),
    removeAll: (filter) => run('removeAll', rows.removeAll(filter)),
  });
}

function createRun(clock: Clock, metrics: Metrics): Run {
  const of = (operation: Operation) => ({
    seconds: metrics.histogram('postern_store_operation_seconds', { operation }),
    away: metrics.counter('postern_store_errors_total', { operation, reason: 'away' }),
    fault: metrics.counter('postern_store_errors_total', { operation, reason: 'fault' }),
  });
  const meters = {
    one: of('one'),
    many: of('many'),
    insert: of('insert'),
    insertAll: of('insertAll'),
    change: of('change'),
    add: of('add'),
    remove: of('remove'),
    removeAll: of('removeAll'),
    ping: of('ping'),
  };
  let away = false;
  metrics.gauge('postern_store_away', () => Number(away));
  return async (operation, work) => {
    const meter = meters[operation];
    const began = clock.monotonic();
    try {
      const answer = await work;
      away = false;
      return answer;
    } catch (error) {
      if (error instanceof StoreAway && !(error instanceof StoreFull)) away = true;
      // A unique index violation is a result, not an error.
      if (!(error instanceof DuplicateRow)) (error instanceof StoreAway ? meter.away : meter.fault).add();
      throw error;
    } finally {
      meter.seconds.observe((clock.monotonic() - began) / 1000);
    }
  };
}
