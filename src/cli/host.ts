import { createPauses, systemClock, toTimestamp } from '../base/clock.ts';
import { hasOwnStore } from '../composition/slices.ts';
import type { Settings } from '../settings.ts';
import { watchBeats } from '../store/membership.ts';
import type { HostRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { type Command, EXIT, toTable, UsageError } from './command.ts';
import { withStore } from './open.ts';

/** The hosts that run, by id; undefined if unknown: a host with a store of its own shows no beat. */
async function findRunning(
  store: Store,
  rows: readonly HostRow[],
  settings: Settings,
): Promise<ReadonlySet<string> | undefined> {
  if (hasOwnStore(settings)) return undefined;
  const { wait: pause } = createPauses({ ...systemClock, after: keepAlive });
  const watched = rows.filter(({ incarnation }) => incarnation !== null);
  const isEnough = (running: ReadonlySet<string>) => running.size === watched.length;
  return watchBeats(store, watched, { clock: systemClock, pause, isEnough });
}

/** Unlike timers of the daemon, these keep the command running. */
function keepAlive(ms: number, work: () => void): () => void {
  const timer = setTimeout(work, ms);
  return () => clearTimeout(timer);
}

function toShown({ id, name, incarnation, version, startedAt, seenAt }: HostRow, running?: ReadonlySet<string>) {
  const state = incarnation === null ? 'stopped' : !running ? null : running.has(id) ? 'running' : 'silent';
  return { id, name, state, version, started_at: toTimestamp(startedAt), seen_at: toTimestamp(seenAt) };
}

export const hostList: Command = {
  name: 'host list',
  summary: 'Lists the hosts that share the store, with their versions.',
  notes:
    'Hosts that do not answer at once are watched for some seconds. silent: it was not stopped, but does not run or has lost the store. ' +
    'Times are by the clock of each host. A row is deleted 90 days after its host was last seen.',
  async run(call) {
    const { settings } = call.settings();
    return withStore(settings, async (store) => {
      const rows = await store.hosts.many({}, { sort: 'id' });
      const running = await findRunning(store, rows, settings);
      const shown = rows.map((row) => toShown(row, running)).toSorted((a, b) => a.name.localeCompare(b.name));
      call.print(shown, () =>
        toTable(
          ['id', 'hostname', 'state', 'version', 'started', 'last seen'],
          shown.map((row) => Object.values(row)),
        ),
      );
      return EXIT.ok;
    });
  },
};

export const hostForget: Command = {
  name: 'host forget',
  args: 'ID',
  summary: 'Deletes the row of a host that does not run and will not come back.',
  notes: 'It deletes no mail. A host that comes back is listed again.',
  async run(call) {
    const [id] = call.words;
    if (id === undefined) throw new UsageError('missing argument: ID (see: postern host list)');
    const { settings } = call.settings();
    return withStore(settings, async (store) => {
      const row = await store.hosts.one({ id });
      if (!row) throw new UsageError(`there is no host ${id} (see: postern host list)`);
      if ((await findRunning(store, [row], settings))?.has(id))
        throw new UsageError(`${row.name} runs: stop it first (systemctl stop postern)`);
      await store.hosts.remove({ id, incarnation: row.incarnation });
      call.print([{ id, forgotten: true }], () => `Forgot ${row.name} (${id})\n`);
      return EXIT.ok;
    });
  },
};
