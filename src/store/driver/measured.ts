import type { Clock } from '../../base/clock.ts';
import type { Metrics } from '../../base/metrics.ts';
import { tableOf } from '../../base/tables.ts';
import { type Around, type Database, DuplicateRow, StoreAway, StoreFull, wrapped } from './port.ts';

const OPERATIONS = ['one', 'many', 'insert', 'insertAll', 'change', 'add', 'remove', 'removeAll', 'ping'] as const;

/** Wraps a database so that every operation is timed and counted. */
export function measured(
  database: Database,
  { clock, metrics }: { readonly clock: Clock; readonly metrics: Metrics },
): Database {
  const meters = tableOf(OPERATIONS, (operation) => ({
    seconds: metrics.histogram('postern_store_operation_seconds', { operation }),
    away: metrics.counter('postern_store_errors_total', { operation, reason: 'away' }),
    fault: metrics.counter('postern_store_errors_total', { operation, reason: 'fault' }),
  }));
  let away = false;
  metrics.gauge('postern_store_away', () => Number(away));
  const around: Around = async (operation, work) => {
    const meter = meters[operation];
    const began = clock.monotonic();
    try {
      const answer = await work();
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
  return wrapped(database, around);
}
