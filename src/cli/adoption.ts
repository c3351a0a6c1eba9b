import { existsSync, readFileSync } from 'node:fs';
import { createPauses, systemClock } from '../base/clock.ts';
import { mapConcurrently } from '../base/concurrency.ts';
import { spoolDir } from '../composition/slices.ts';
import { hasOwnStore } from '../config.ts';
import { folderOf } from '../queue/disk/folder.ts';
import type { Settings } from '../settings.ts';
import { StoreAway } from '../store/driver/port.ts';
import { nameAdopter, SILENCE_MS, watchBeats } from '../store/membership.ts';
import type { HostRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { eventCopyId } from '../webhooks/event-copies.ts';
import { type Command, EXIT, type Invocation, Unavailable, UsageError } from './command.ts';
import { withSpool, withStore } from './open.ts';

/** Maximum copies that are counted, because counting reads them. */
const MAX_COUNTED = 1000;
/** How long a takeover may make no progress before the command ends. Milliseconds. */
const PATIENCE_MS = 60_000;
/** The interval between counts of the remaining copies. Milliseconds. */
const COUNT_EVERY_MS = 10_000;

/** Unlike timers of the daemon, these keep the command running. */
export const commandPauses = () =>
  createPauses({
    ...systemClock,
    after(ms, work) {
      const timer = setTimeout(work, ms);
      return () => clearTimeout(timer);
    },
  });

/** The number of copies of a host in the store, as text: `1000+` beyond the maximum. */
export async function countCopies(store: Store, { id }: Pick<HostRow, 'id'>, below?: number): Promise<string> {
  const epoch = below === undefined ? {} : { epoch: { range: { lt: below } } };
  const rows = await store.copies.many({ host: id, ...epoch }, { limit: MAX_COUNTED + 1 });
  return rows.length > MAX_COUNTED ? `${MAX_COUNTED}+` : String(rows.length);
}

/** The host with a name or id. One that is no longer listed may still have copies. */
async function findHost(store: Store, word: string): Promise<HostRow> {
  const rows = (await store.hosts.many({}, { sort: 'id' })).filter(({ id, name }) => id === word || name === word);
  const [found, ...others] = rows;
  if (found && others.length === 0) return found;
  if (found)
    throw new UsageError(`several hosts are named ${word}; pass an id: ${rows.map(({ id }) => id).join(', ')}`);
  const [last] = await store.copies.many({ host: word }, { sort: '-epoch', limit: 1 });
  if (!last) throw new UsageError(`no such host: ${word} (see: postern host list)`);
  const now = new Date();
  const host = { incarnation: null, beat: 0, version: '', features: [], startedAt: now, seenAt: now };
  const row = { id: word, name: word, ...host, epoch: last.epoch };
  await store.hosts.insert(row);
  return row;
}

/** The id of the host whose queue is here; undefined if there is none. */
export function ownId(settings: Settings): string | undefined {
  const { hostId } = folderOf(spoolDir(settings));
  return (existsSync(hostId) && readFileSync(hostId, 'utf8').trim()) || undefined;
}

/** The host that takes over: the named one, or this host. It must run. */
async function findAdopter(store: Store, word: string | undefined, settings: Settings): Promise<HostRow> {
  const here = word ?? ownId(settings);
  if (here === undefined)
    throw new UsageError('this machine has no queue: name the host that takes over (--by HOSTNAME)');
  const adopter = await findHost(store, here);
  if (!(await isRunning(store, adopter)))
    throw new Unavailable(`${adopter.name} does not run. Start it, or name another host (--by HOSTNAME)`);
  return adopter;
}

async function isRunning(store: Store, row: HostRow): Promise<boolean> {
  if (row.incarnation === null) return false;
  const isEnough = (running: ReadonlySet<string>) => running.size > 0;
  const parts = { clock: systemClock, pause: commandPauses().wait, isEnough, ms: SILENCE_MS };
  return (await watchBeats(store, [row], parts)).size > 0;
}

/** Names the adopter of a host, unless the host has shown itself meanwhile. */
async function handOver(store: Store, lost: HostRow, adopter: HostRow): Promise<HostRow> {
  const { id, name, epoch = 0 } = lost;
  if (id === adopter.id)
    throw new UsageError(`${name} cannot take over its own mail; name another host (--by HOSTNAME)`);
  const row = await nameAdopter(store, lost, adopter.id, new Date());
  if (row) return row;
  const now = await store.hosts.one({ id });
  const by = now?.adopter && (await store.hosts.one({ id: now.adopter }));
  throw new Unavailable(
    by && now?.epoch !== epoch
      ? `${by.name} already takes over the mail of ${name}`
      : `${name} is running again, and keeps its mail`,
  );
}

/** Repeats a query while the store is away: the takeover continues when it is back. */
async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  const end = systemClock.monotonic() + PATIENCE_MS;
  for (;;)
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof StoreAway) || systemClock.monotonic() > end) throw error;
      await commandPauses().wait(1000);
    }
}

/** Waits until no copy of the host's earlier epochs is left. */
async function untilTaken(call: Invocation, store: Store, lost: HostRow, adopter: HostRow): Promise<number> {
  const { wait } = commandPauses();
  const { id, epoch = 0 } = lost;
  let [counts, since, countedAt] = ['', systemClock.monotonic(), 0];
  while (await patiently(() => store.copies.one({ host: id, epoch: { range: { lt: epoch } } }))) {
    // Counting reads the copies, which must not slow down the takeover.
    if (systemClock.monotonic() - countedAt >= COUNT_EVERY_MS) {
      const now = await patiently(() => countTakeovers(store, adopter));
      if (now !== counts || now.includes('+')) since = systemClock.monotonic();
      [counts, countedAt] = [now, systemClock.monotonic()];
    }
    if (systemClock.monotonic() - since > PATIENCE_MS) {
      const left = await patiently(() => countCopies(store, lost, epoch));
      call.print([{ id, adopter: adopter.id, left }], () => stuck(left, lost, adopter));
      return EXIT.failed;
    }
    await wait(500);
  }
  const waits = await patiently(() => countCopies(store, lost));
  call.print(
    [{ id, adopter: adopter.id, left: waits }],
    () => `${adopter.name} has taken over the mail of ${lost.name}\n`,
  );
  return EXIT.ok;
}

/** The number of copies left of each host that the adopter takes over, one after the other. */
async function countTakeovers(store: Store, adopter: HostRow): Promise<string> {
  const lost = await store.hosts.many({ adopter: adopter.id }, { sort: 'id' });
  return (await mapConcurrently(lost, (row) => countCopies(store, row, row.epoch ?? 0))).join();
}

const stuck = (left: string, lost: HostRow, adopter: HostRow): string =>
  `${adopter.name} makes no progress; ${left} deliveries of ${lost.name} are left. See its log (journalctl -u ` +
  `postern). Another host can continue: postern host adopt ${lost.name} --by HOSTNAME\n`;

const by = {
  value: 'HOSTNAME',
  help: 'the host that takes over (default: this host)',
} as const;

function mustBeShared(settings: Settings): void {
  if (hasOwnStore(settings))
    throw new UsageError(
      'the store is a file on this host, so no other host can take over its mail. Several hosts need a MongoDB: ' +
        'see store.url',
    );
}

export const hostAdopt: Command = {
  args: 'HOSTNAME',
  notes:
    'Takes over the mail and the events of which the store has copies (queue.copies: store). The lost host must be ' +
    'stopped, or silent for 16 seconds; the command waits for that. Mail that it was sending when it died may be ' +
    'sent twice. Inbound mail and events may be posted twice, with the same webhook-id and _id. If the host comes ' +
    'back, it keeps only mail that was not taken over. If the command or the host that takes over dies, run the ' +
    'command again, there or on another host.',
  options: { by },
  async run(call) {
    const word = call.word('HOSTNAME (see: postern host list)');
    const { settings } = call.settings();
    mustBeShared(settings);
    return withStore(settings, async (store) => {
      const lost = await findHost(store, word);
      const adopter = await findAdopter(store, call.text('by'), settings);
      if (lost.adopter === adopter.id) return untilTaken(call, store, lost, adopter);
      if (await isRunning(store, lost))
        throw new UsageError(
          `${lost.name} is running. To decommission it, stop it (systemctl stop postern), then run there: postern ` +
            'host drain',
        );
      return untilTaken(call, store, await handOver(store, lost, adopter), adopter);
    });
  },
};

/** The named host, or the only other host that runs. */
async function findTarget(store: Store, own: string, word: string | undefined, settings: Settings): Promise<HostRow> {
  if (word !== undefined) return findAdopter(store, word, settings);
  const others = (await store.hosts.many({}, { sort: 'id' })).filter(
    (row) => row.id !== own && row.incarnation !== null,
  );
  const [only, ...more] = others;
  if (!only || more.length > 0)
    throw new UsageError(
      `name the host that takes over: --by ${others.map(({ name }) => name).join(' or ') || 'HOSTNAME'}`,
    );
  return findAdopter(store, only.id, settings);
}

/** The number of waiting deliveries in this queue that have no copy. */
function countUncopied(settings: Settings, { copies }: Store): Promise<number> {
  return withSpool(settings, async (spool) => {
    async function isCopied(id: string): Promise<boolean> {
      // The id of a copy of inbound mail is that of its message, with which the id of a delivery begins.
      for (const copy of [id, id.slice(0, -13)]) if (await copies.one({ id: copy })) return true;
      const batch = (await spool.delivery(id))?.batch;
      if (!batch) return false;
      const events = await spool.events.inBatch(id);
      for (const event of events) if (!(await copies.one({ id: eventCopyId(batch.webhook, event) }))) return false;
      return events.length > 0;
    }
    let count = 0;
    for await (const page of spool.names({ states: ['waiting'] }))
      for (const { id } of page) if (!(await isCopied(id))) count++;
    return count;
  });
}

export const hostDrain: Command = {
  notes:
    'Run it on the host that you decommission, after systemctl stop postern, so that nothing is sent twice. It hands ' +
    'over the deliveries of which the store has copies (queue.copies: store), and prints how many others wait in the ' +
    'queue here. Only this host can send those: remove it from the MX records, start it again, and wait until ' +
    'postern queue list --state waiting is empty.',
  options: { by },
  async run(call) {
    const { settings } = call.settings();
    mustBeShared(settings);
    const own = ownId(settings);
    if (own === undefined)
      throw new UsageError(`this machine has no queue (${spoolDir(settings)}): run this on the host that you drain`);
    return withStore(settings, async (store) => {
      const here = await findHost(store, own);
      if (await isRunning(store, here))
        throw new UsageError('this host is running; stop it first: systemctl stop postern');
      const target = await findTarget(store, own, call.text('by'), settings);
      // Counted before, because the other host removes the copies of sent mail.
      const stays = await countUncopied(settings, store);
      const code = await untilTaken(call, store, await handOver(store, here, target), target);
      if (stays === 0 || code !== EXIT.ok) return code;
      call.print(
        [{ id: own, stays }],
        () => `${stays} deliveries stay in the queue here. Keep this host until they have ended\n`,
      );
      return EXIT.failed;
    });
  },
};
