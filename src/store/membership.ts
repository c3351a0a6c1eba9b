import { type Clock, createLoop, createPauses, toTimestamp } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from './driver/port.ts';
import { HostRefused, type HostRow, raiseFormat } from './rows/hosts.ts';
import type { Store } from './store.ts';

/**
 * How long after a beat a host may start to send copied mail. A takeover waits longer, so that two hosts do not send
 * the same mail. Milliseconds.
 */
const LEASE_MS = 15_000;
/** How long a host must be silent before another takes over its mail. Milliseconds. */
export const SILENCE_MS = LEASE_MS + 1000;
/** The interval of beats, by which a host shows that it runs. Milliseconds. */
export const BEAT_MS = 2000;
const BEAT_ALONE_MS = 3_600_000;
/** A host without a beat for this long, by the clock of the watching host, is down. Milliseconds. */
const WATCH_MS = 3 * BEAT_MS + 1000;
const LOOK_MS = 250;

interface MembershipSettings {
  readonly name: string;
  /** Where the other hosts reach its API; empty: nowhere. */
  readonly url: string;
  /** The folder of the queue, for messages. */
  readonly queueDir: string;
  readonly version: string;
  readonly features: readonly string[];
  /** Whether the store is a file of this host. */
  readonly alone: boolean;
}

interface MembershipDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'hosts' | 'revisions'>;
  /** Returns the id of this host. */
  readonly identify: () => string;
  /** Identifies this process. */
  readonly incarnation: string;
}

/** The row of this host: shows others that it runs, and ensures that only one process runs as this host. */
export type Membership = ReturnType<typeof createMembership>;

export function createMembership(settings: MembershipSettings, deps: MembershipDeps) {
  const { name, url, version, features, alone, queueDir } = settings;
  const { store, identify, incarnation, clock, log } = deps;
  const { hosts } = store;
  const pauses = createPauses(clock);
  const refusing = Promise.withResolvers<HostRefused>();
  const startedAt = new Date(clock.now());
  let id = '';
  let beat = 0;
  let joined = false;

  /** When the last beat that reached the store was sent, on the monotonic clock. */
  let lastBeat = Number.NEGATIVE_INFINITY;
  /** Until then, an earlier process of this host, whose row was freed, may still send claimed mail. */
  let liveFrom = Number.NEGATIVE_INFINITY;
  let beats = 0;
  let epoch = 0;

  async function beatOnce(): Promise<HostRow | undefined> {
    const at = clock.monotonic();
    const row = await hosts.change({ id, incarnation }, { beat: ++beat, seenAt: new Date(clock.now()) });
    if (row) {
      lastBeat = at;
      epoch = row.epoch ?? 0;
    }
    return row;
  }

  /**
   * Takes the row for this process. No other process may run as this host or with its name: a row that names one is
   * watched, and freed if its beat stands still. That process, if it still runs, notices with its next beat and joins
   * again. Throws `HostRefused`.
   */
  async function join(): Promise<void> {
    for (;;) {
      await raiseFormat(store);
      const rows = await hosts.many({});
      const mine = rows.find((row) => row.id === id);
      const others = rows.filter(
        (row) => row.incarnation !== null && row.incarnation !== incarnation && (row.id === id || row.name === name),
      );
      if (others.length === 0) {
        // Read again after writing, so that two hosts that start at the same time see each other.
        if (mine?.incarnation === incarnation) return;
        await take(mine);
        continue;
      }
      const isOurs = mine?.incarnation === incarnation;
      const since = clock.monotonic();
      const running = alone ? undefined : await watch(others, isOurs ? beatOnce : undefined);
      if (running) throw new HostRefused(running.id === id ? twice(running, queueDir) : namesake(running));
      if (loop.isStopped()) return;
      if (!alone && others.some((row) => row.id === id)) liveFrom = since + SILENCE_MS;
      for (const row of others) await hosts.change(asSeen(row), { incarnation: null, silentAt: row.beat });
    }
  }

  async function take(mine: HostRow | undefined): Promise<void> {
    const row = {
      name,
      url,
      incarnation,
      beat,
      version,
      features,
      startedAt,
      seenAt: new Date(clock.now()),
      adopter: null,
      adoptedAt: null,
      silentAt: null,
    };
    if (mine) await hosts.change({ id, incarnation: null }, row);
    else await hosts.insert({ id, ...row });
  }

  /** The first row whose process is seen to run; undefined if none is, or the watch was ended. */
  async function watch(rows: readonly HostRow[], meanwhile?: () => Promise<unknown>): Promise<HostRow | undefined> {
    const seen = await watchBeats(store, rows, {
      clock,
      pause: pauses.wait,
      meanwhile,
      isEnough: (ids) => loop.isStopped() || ids.size > 0,
    });
    return rows.find((row) => seen.has(row.id));
  }

  async function keep(): Promise<void> {
    await raiseFormat(store);
    if (joined && (await beatOnce())) {
      beats++;
      return;
    }
    joined = false;
    await join();
    // Also reads the epoch, which a takeover has raised.
    if (!(await beatOnce())) return;
    joined = true;
    if (!loop.isStopped()) log.info('host.joined', { id, name });
  }

  async function leave(): Promise<void> {
    await hosts.change({ id, incarnation }, { incarnation: null, seenAt: new Date(clock.now()) });
  }

  const loop = createLoop(clock, async () => {
    try {
      await keep();
    } catch (error) {
      if (error instanceof HostRefused) await refuse(error);
      // The store logs its own outage; mail is accepted without it.
      else if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'hosts', error });
    }
    return alone ? BEAT_ALONE_MS : BEAT_MS;
  });

  async function refuse(error: HostRefused): Promise<void> {
    void loop.stop();
    log.error('host.refused', { id, name, reason: error.message });
    await leave().catch(() => undefined);
    refusing.resolve(error);
  }

  return frozen({
    /** Resolves if this process must end: another one took over, or the store is too new. */
    refused: refusing.promise,
    /** The id of this host, for rows of `copies`. */
    id: () => id,
    incarnation,
    epoch: () => epoch,
    /** Whether no other host can have taken over the mail of this one. False while the store is away. */
    isLive: () => joined && (alone || (clock.monotonic() - lastBeat < LEASE_MS && clock.monotonic() >= liveFrom)),
    /**
     * The number of beats of this process that reached the store, one every 2 s. A measure of the time in which it
     * could write: it stands still while the store is away, and while this process is suspended.
     */
    beats: () => beats,
    /** Joins the hosts of the store, or later if it is away. Throws `HostRefused`. */
    async start() {
      id = identify();
      await loop.start();
      if (loop.isStopped()) throw await refusing.promise;
    },
    /** Frees the row, so that the next start needs no watch. Never throws. */
    async stop() {
      const ended = loop.stop();
      pauses.end();
      await ended;
      if (joined) await leave().catch(() => undefined);
    },
  });
}

/** A filter for a host in the observed state; it no longer matches after another beat. */
const asSeen = ({ id, incarnation, beat }: HostRow) => ({ id, incarnation, beat });

/** Names the adopter of a host, in one atomic step. Undefined if the host is back, or another was named. */
export function nameAdopter(
  { hosts }: Pick<Store, 'hosts'>,
  lost: HostRow,
  adopter: string,
  adoptedAt: Date,
): Promise<HostRow | undefined> {
  const silentAt = lost.incarnation === null ? (lost.silentAt ?? null) : lost.beat;
  return hosts.change(
    { ...asSeen(lost), epoch: lost.epoch ?? null },
    { epoch: (lost.epoch ?? 0) + 1, adopter, adoptedAt, silentAt, incarnation: null },
  );
}

/**
 * Returns the ids of hosts whose beat moved, or whose process changed, while it was watched: these run. Takes
 * `ms`, or until it `isEnough`. Compares no clocks: only the caller's own counts.
 */
export async function watchBeats(
  { hosts }: Pick<Store, 'hosts'>,
  rows: readonly HostRow[],
  {
    clock,
    pause,
    meanwhile,
    isEnough,
    ms = WATCH_MS,
  }: {
    readonly clock: Pick<Clock, 'monotonic'>;
    readonly pause: (ms: number) => Promise<void>;
    readonly meanwhile?: (() => Promise<unknown>) | undefined;
    readonly isEnough: (running: ReadonlySet<string>) => boolean;
    readonly ms?: number;
  },
): Promise<ReadonlySet<string>> {
  const running = new Set<string>();
  const until = clock.monotonic() + ms;
  while (rows.length > 0 && !isEnough(running) && clock.monotonic() < until) {
    await meanwhile?.();
    await pause(LOOK_MS);
    for (const { id, incarnation, beat } of rows) {
      if (running.has(id)) continue;
      const now = await hosts.one({ id });
      if (now && now.incarnation !== null && (now.beat !== beat || now.incarnation !== incarnation)) running.add(id);
    }
  }
  return running;
}

const known = ({ id, version, startedAt }: HostRow): string =>
  `id ${id}, Postern ${version}, running since ${toTimestamp(startedAt)} UTC by its clock`;

const namesake = (other: HostRow): string =>
  `another host with the hostname ${other.name} runs on this store (${known(other)}): set another hostname here, or ` +
  'stop that host first';

const twice = (other: HostRow, queueDir: string): string =>
  `another process runs as this host (${known(other)}): ${queueDir} is a copy of its queue, or both use one folder. ` +
  `Stop that process first; if this machine is a copy, remove ${queueDir} here, because the other host has its mail`;
