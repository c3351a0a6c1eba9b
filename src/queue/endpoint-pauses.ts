import { createLoop } from '../base/clock.ts';
import { createSerialQueue } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from '../store/driver/port.ts';
import { type PauseRow, pauseId } from '../store/rows/pauses.ts';
import type { Store } from '../store/store.ts';
import { DELIVERY_KINDS, type Endpoint, type EndpointName, endpointKey } from './delivery.ts';
import type { Dispatcher, HeldEndpoint } from './dispatcher.ts';
import type { HeldBy } from './schedule/breaker.ts';

interface PausesSettings {
  /** Whether the store is a file of this host, which no other host changes. */
  readonly alone: boolean;
}

interface PausesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'pauses' | 'revisions'>;
  readonly dispatcher: Pick<Dispatcher, 'lanes' | 'hold' | 'release'>;
}

/** The intervals at which a host checks the counter of changes, and reads the pauses regardless. Milliseconds. */
const LOOK_MS = 1000;
const ANYWAY_MS = 60_000;
/** The counter of changes. */
const REVISION = { id: 'pauses' };

/**
 * Pauses of endpoints: rows of the store that every host applies. Each host also keeps the pauses of its endpoints in
 * its queue, for outages of the store. A pause that is only in a queue was made by an older version, and becomes a row.
 *
 * A row is changed first and the change is counted after it; a host that dies in between delays the change on the
 * others until they read anyway.
 */
export type EndpointPauses = ReturnType<typeof createEndpointPauses>;

export function createEndpointPauses({ alone }: PausesSettings, { store, dispatcher, clock, log }: PausesDeps) {
  const { pauses, revisions } = store;
  // Changes and reads run one at a time, so that applying rows read earlier cannot undo a later change.
  const inTurn = createSerialQueue();
  let seen: number | undefined;
  let readAt = Number.NEGATIVE_INFINITY;

  const rows = () => pauses.many({ until: { range: { gt: new Date(clock.now()) } } });
  const counted = () => revisions.add(REVISION.id, { count: 1 }, { count: 0 });

  /** Writes a row. Returns that of the operator instead if an account wants to change it. */
  async function write({ account, url, kind, until, by }: HeldEndpoint): Promise<PauseRow | undefined> {
    const id = pauseId(account, url);
    const row = { of: account, url, kind, by, until: new Date(until) };
    const mine = by === 'account' ? { id, by } : { id };
    await pauses.remove({ id, until: { range: { lte: new Date(clock.now()) } } });
    for (;;) {
      if (await pauses.change(mine, row)) return undefined;
      if ((await pauses.insert({ id, ...row })) === 'inserted') return undefined;
      const other = await pauses.one({ id });
      if (other && by === 'account' && other.by === 'operator') return other;
    }
  }

  /** Applies the rows to the endpoints of this host. */
  async function follow(): Promise<void> {
    const { count } = (await revisions.one(REVISION)) ?? { count: 0 };
    const now = clock.monotonic();
    if (count === seen && now - readAt < ANYWAY_MS) return;
    const wanted = new Map((await rows()).flatMap(toHeld).map((held) => [endpointKey(held), held]));
    for (const { account, url, kind, hold } of dispatcher.lanes()) {
      const row = wanted.get(endpointKey({ account, url }));
      if (row && hold && !hold.local && hold.until === row.until && hold.by === row.by) wanted.delete(endpointKey(row));
      if (!hold || row) continue;
      if (!hold.local) await dispatcher.release({ account, url });
      else if (!(await write({ account, url, kind, until: hold.until, by: hold.by }))) {
        await counted();
        await dispatcher.hold({ account, url, kind }, hold.until, hold.by);
      }
    }
    for (const { until, by, ...endpoint } of wanted.values()) await dispatcher.hold(endpoint, until, by);
    await pauses.removeAll({ until: { range: { lte: new Date(clock.now()) } } });
    [seen, readAt] = [count, now];
  }

  const loop = createLoop(clock, async () => {
    try {
      await inTurn(follow);
    } catch (error) {
      // The store logs its own outage; known pauses stay in force.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'pauses', error });
    }
    return alone ? undefined : LOOK_MS;
  });

  return frozen({
    /** The pauses in the store; none while it is away. */
    async known(): Promise<readonly HeldEndpoint[]> {
      return (await rows().catch(nothingIfAway)).flatMap(toHeld);
    },
    start: loop.start,
    stop: loop.stop,
    /** The number of paused endpoints of an account, up to `most`. */
    count: async (account: string, most: number): Promise<number> =>
      (await pauses.many({ of: account, until: { range: { gt: new Date(clock.now()) } } }, { limit: most })).length,
    /**
     * Pauses an endpoint on every host until that time (milliseconds since 1970). If the operator has paused it, its
     * account cannot change that: returns when that pause ends. Throws `StoreAway`.
     */
    pause: (endpoint: Endpoint, until: number, by: HeldBy): Promise<Date | undefined> =>
      inTurn(async () => {
        const end = Math.floor(until / 1000) * 1000;
        const other = await write({ ...endpoint, until: end, by });
        if (other) return other.until;
        await counted();
        await dispatcher.hold(endpoint, end, by);
        return undefined;
      }),
    /** Ends a pause on every host; returns and throws as `pause`. */
    resume: ({ account, url }: EndpointName, by: HeldBy): Promise<Date | undefined> =>
      inTurn(async () => {
        const id = pauseId(account, url);
        const row = await pauses.one({ id });
        if (row?.by === 'operator' && by === 'account' && row.until.getTime() > clock.now()) return row.until;
        if (row && (await pauses.remove({ id, by: row.by }))) await counted();
        await dispatcher.release({ account, url });
        return undefined;
      }),
  });
}

/** Converts a row for the dispatcher; none if only a newer version knows its kind. */
function toHeld({ of: account, url, kind: name, by, until }: PauseRow): readonly HeldEndpoint[] {
  const kind = DELIVERY_KINDS.find((one) => one === name);
  return kind ? [{ account, url, kind, by, until: until.getTime() }] : [];
}

function nothingIfAway(error: unknown): readonly PauseRow[] {
  if (error instanceof StoreAway) return [];
  throw error;
}
