import { systemClock, toTimestamp } from '../base/clock.ts';
import { hasOwnStore } from '../config.ts';
import type { Settings } from '../settings.ts';
import { watchBeats } from '../store/membership.ts';
import { type HostRow, isSilent } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { commandPauses, countCopies } from './adoption.ts';
import { type Command, toTable, UsageError } from './command.ts';
import { runWithStore, withStore } from './open.ts';
import { findHost } from './other-hosts.ts';

/** The ids of running hosts; undefined if unknown, because a host with a store of its own has no beat. */
async function findRunning(
  store: Store,
  rows: readonly HostRow[],
  settings: Settings,
): Promise<ReadonlySet<string> | undefined> {
  if (hasOwnStore(settings)) return undefined;
  const { wait: pause } = commandPauses();
  const watched = rows.filter(({ incarnation }) => incarnation !== null);
  const isEnough = (running: ReadonlySet<string>) => running.size === watched.length;
  return watchBeats(store, watched, { clock: systemClock, pause, isEnough });
}

async function toShown(store: Store, row: HostRow, others: readonly HostRow[], running?: ReadonlySet<string>) {
  const { id, name, version, features, startedAt, seenAt, adopter = null, adoptedAt } = row;
  const state = stateOf(row, running?.has(id));
  const times = { started_at: toTimestamp(startedAt), seen_at: toTimestamp(seenAt) };
  const adopted_at = adoptedAt ? toTimestamp(adoptedAt) : null;
  const known = new Set(features);
  const lacks = [...new Set(others.flatMap((other) => other.features))].filter((feature) => !known.has(feature)).sort();
  return { id, name, state, version, ...times, copies: await countCopies(store, { id }), adopter, adopted_at, lacks };
}

/** Null: unknown. */
function stateOf(row: HostRow, isRunning: boolean | undefined) {
  if (row.incarnation === null) return isSilent(row) ? 'silent' : 'stopped';
  if (isRunning === undefined) return null;
  return isRunning ? 'running' : 'silent';
}

export const hostList: Command = {
  notes:
    'silent: the host was not stopped, but does not run or cannot reach the store. Hosts that do not answer at once ' +
    'are watched for some seconds.\n' +
    'copies: its deliveries with a copy in the store. Another host takes them over after hosts.adopt_after_s seconds ' +
    'of silence, or by hand (postern host adopt).\n' +
    'adopted by, adopted: which host takes them over, and since when; empty again once the lost host runs.\n' +
    'lacks: features that another host of the store has. The host ignores rows that need them until it is upgraded.\n' +
    'Times are those of the clock of each host. A host is removed from the list 90 days after it was last seen.',
  run: runWithStore(async ({ call, settings, store }) => {
    const rows = await store.hosts.many({}, { sort: 'id' });
    const running = await findRunning(store, rows, settings);
    const listed = await Promise.all(rows.map((row) => toShown(store, row, rows, running)));
    const shown = listed.toSorted((a, b) => a.name.localeCompare(b.name));
    const none = 'No hosts. A host is listed once its daemon has started.\n';
    call.print(shown, () =>
      shown.length === 0
        ? none
        : toTable(
            ['id', 'hostname', 'state', 'version', 'started', 'last seen', 'copies', 'adopted by', 'adopted', 'lacks'],
            shown.map(({ lacks, ...row }) => {
              const adopter = rows.find(({ id }) => id === row.adopter)?.name ?? row.adopter;
              return [...Object.values({ ...row, adopter }), lacks.join(' ') || null];
            }),
          ),
    );
  }),
};

export const hostForget: Command = {
  args: 'HOSTNAME | ID',
  notes: 'Deletes no mail. A host that comes back is listed again.',
  async run(call) {
    const word = call.word('HOSTNAME or ID (see: postern host list)');
    const { settings } = call.settings();
    return withStore(settings, async (store) => {
      const row = findHost(await store.hosts.many({}, { sort: 'id' }), word);
      const { id } = row;
      if ((await findRunning(store, [row], settings))?.has(id))
        throw new UsageError(`${row.name} is running; stop it first: systemctl stop postern`);
      if (await store.copies.one({ host: id }))
        throw new UsageError(
          `the store still has mail or events of ${row.name}. Have another host send them: postern host adopt ` +
            `${row.name}`,
        );
      await store.hosts.remove({ id, incarnation: row.incarnation });
      call.print([{ id, forgotten: true }], () => `Removed ${row.name} (${id}) from the list of hosts\n`);
    });
  },
};
