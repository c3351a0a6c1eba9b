import { printable } from '../base/log.ts';
import { hasOwnStore } from '../config.ts';
import { ownId } from './adoption.ts';
import type { Invocation, Io } from './command.ts';
import { withStore } from './open.ts';

/** The queue can be read while the store is away. Milliseconds. */
const PATIENCE_MS = 2000;
const MOST_NAMED = 10;

/** Says on standard error that the store has other hosts, whose queues a command about this one does not see. */
export async function sayOtherHosts(call: Invocation, io: Io): Promise<void> {
  const { settings } = call.settings();
  if (hasOwnStore(settings) || call.format !== 'text') return;
  const id = ownId(settings);
  const { store } = settings;
  const patient = { ...settings, store: { ...store, timeout_ms: Math.min(store.timeout_ms, PATIENCE_MS) } };
  const rows = await withStore(patient, ({ hosts }) => hosts.many({}, { sort: 'id' })).catch(() => []);
  const own = rows.find((row) => row.id === id)?.name ?? settings.hostname;
  const others = rows.filter((row) => row.id !== id).map(({ name }) => name);
  if (others.length === 0) return;
  const more = others.length > MOST_NAMED ? ` and ${others.length - MOST_NAMED} more` : '';
  const names = others.toSorted().slice(0, MOST_NAMED).map(printable).join(', ');
  io.err(
    `This is the queue of ${printable(own)} only. Other hosts of the store: ${names}${more} (postern host list).\n`,
  );
}
