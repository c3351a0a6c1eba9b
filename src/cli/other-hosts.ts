import { type OtherHost, otherHost } from '../api/host-questions.ts';
import { createPeerWire } from '../api/peer-wire.ts';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog, printable } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { hasOwnStore } from '../config.ts';
import type { Settings } from '../settings.ts';
import { createTokenSecret, type HostRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { ownId } from './adoption.ts';
import { type Invocation, type Io, UsageError } from './command.ts';
import { withStore } from './open.ts';

// The other hosts of the store: commands about the queue ask them too, or say that they do not.

/** The queue can be read while the store is away. Milliseconds. */
const PATIENCE_MS = 2000;
const MOST_NAMED = 10;

/** Says on standard error that the store has other hosts, whose queues a command about this one does not see. */
export async function sayOtherHosts(call: Invocation, io: Io): Promise<void> {
  const { settings } = call.settings();
  if (hasOwnStore(settings) || call.format !== 'text') return;
  const { own, others } = await withStore(patient(settings), (store) => readHosts(store, settings)).catch(() => ({
    own: settings.hostname,
    others: [],
  }));
  if (others.length === 0) return;
  const more = others.length > MOST_NAMED ? ` and ${others.length - MOST_NAMED} more` : '';
  const names = others.map(({ name }) => name).toSorted();
  io.err(
    `This is the queue of ${printable(own)} only. Other hosts of the store: ` +
      `${names.slice(0, MOST_NAMED).map(printable).join(', ')}${more} (postern host list).\n`,
  );
}

const patient = (settings: Settings): Settings => {
  const { store } = settings;
  return { ...settings, store: { ...store, timeout_ms: Math.min(store.timeout_ms, PATIENCE_MS) } };
};

async function readHosts(store: Pick<Store, 'hosts'>, settings: Settings) {
  const id = ownId(settings);
  const rows = await store.hosts.many({}, { sort: 'id' });
  const own = rows.find((row) => row.id === id)?.name ?? settings.hostname;
  return { own, others: rows.filter((row) => row.id !== id) };
}

/** The option of commands that change all hosts. */
export const hostOption = {
  type: 'string',
  value: 'HOSTNAME',
  help: 'only on this host of the store (default: on all of them)',
} as const;

/** The hosts that a command means. */
interface MeantHosts {
  /** The name of this host. */
  readonly own: string;
  /** Whether this host is meant. */
  readonly isHere: boolean;
  readonly others: readonly OtherHost[];
  /** Why the other hosts are not known. */
  readonly fault: string | undefined;
}

/** Calls `use` with the host of --host, or with all hosts of the store. */
export async function withHosts<T>(call: Invocation, use: (hosts: MeantHosts) => Promise<T>): Promise<T> {
  const { settings } = call.settings();
  const wanted = call.text('host');
  const isOwn = wanted === settings.hostname || (wanted !== undefined && wanted === ownId(settings));
  const alone = { own: settings.hostname, isHere: true, others: [], fault: undefined };
  if (isOwn || (hasOwnStore(settings) && wanted === undefined)) return use(alone);
  if (hasOwnStore(settings)) throw unknownHost(wanted ?? '');
  let isRead = false;
  try {
    return await withStore(patient(settings), async (store) => {
      const { own, others } = await readHosts(store, settings);
      isRead = true;
      const isHere = wanted === undefined || wanted === own;
      const meant = wanted === undefined ? others : isHere ? [] : [named(others, wanted)];
      const wire = createCommandWire(store, settings);
      return use({ own, isHere, others: meant.map((row) => otherHost(row, wire)), fault: undefined });
    });
  } catch (error) {
    if (isRead || wanted !== undefined || !(error instanceof Error)) throw error;
    return use({ ...alone, fault: error.message });
  }
}

function named(rows: readonly HostRow[], word: string): HostRow {
  const [found, ...more] = rows.filter(({ id, name }) => id === word || name === word);
  if (!found) throw unknownHost(word);
  if (more.length > 0) throw new UsageError(`several hosts are named ${word}; give an id (postern host list)`);
  return found;
}

const unknownHost = (word: string) => new UsageError(`there is no host ${word} (see: postern host list)`);

/** Who calls: commands of any host, which number their calls in the store. */
const COMMANDS = 'commands';

function createCommandWire(store: Store, settings: Settings) {
  return createPeerWire({
    store,
    tokenSecret: createTokenSecret(store, createIds(systemClock)),
    member: { id: () => ownId(settings) ?? '', incarnation: COMMANDS },
    nextCall: async () => (await store.revisions.add(COMMANDS, { count: 1 }, { count: 0 })).count,
    clock: systemClock,
    log: createLog('silent'),
    metrics: NO_METRICS,
  });
}
