import { createLoop } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Service } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from './driver/port.ts';
import { BEAT_MS, type Membership, nameAdopter } from './membership.ts';
import { type HostRow, isSilent } from './rows/hosts.ts';
import type { Store } from './store.ts';

interface LostHostsSettings {
  /** The silence after which a host is adopted, in milliseconds; 0: only by hand. */
  readonly afterMs: number;
  /** Whether the store is a file of this host: there are no others. */
  readonly alone: boolean;
}

interface LostHostsDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'hosts' | 'copies' | 'understands'>;
  readonly member: Pick<Membership, 'id' | 'beats'>;
  readonly metrics: Pick<Metrics, 'gauge' | 'counter'>;
}

/** The silence after which a host is shown as lost, if adoption is only by hand. Milliseconds. */
const SHOWN_MS = 60_000;
/** Beats between two reads of the rows, because each host reads those of all. */
const LOOK_BEATS = 3;
const COPIES = 'copies=';

/** The signs of a host, and the count of our own beats when they were first seen. */
interface Sight {
  readonly signs: string;
  readonly since: number;
}

/**
 * Watches the other hosts, and makes this one the adopter of those that are lost. Time is counted in our own beats that
 * reached the store while that of the other host stood still. So outages of the store, pauses of this process and
 * clocks of other machines do not make a host count as lost.
 */
export function createLostHosts({ afterMs, alone }: LostHostsSettings, deps: LostHostsDeps) {
  const { store, member, clock, log, metrics } = deps;
  // The first of our beats may follow at once.
  const enough = Math.ceil((afterMs || SHOWN_MS) / BEAT_MS) + 1;
  const adopted = metrics.counter('postern_hosts_adopted_total');
  let sights: ReadonlyMap<string, Sight> = new Map();
  let lastLook = 0;
  let lost = 0;
  metrics.gauge('postern_hosts_lost', () => lost);

  /** Notes the signs of life in a row. Returns whether there was none for long enough. */
  function isStill(row: HostRow, signs: string, now: Map<string, Sight>): boolean {
    const before = sights.get(row.id);
    const sight = before?.signs === signs ? before : { signs, since: member.beats() };
    now.set(row.id, sight);
    return member.beats() - sight.since >= enough;
  }

  /** Makes this host the adopter, if there is anything to take over. */
  async function adopt(row: HostRow, before: HostRow | undefined): Promise<void> {
    const { id, name, features } = row;
    if (!(await store.copies.one({ host: id }))) return;
    // Kinds of copies that this version does not know are left to a host that does, or until an upgrade.
    const needs = features.filter((feature) => feature.startsWith(COPIES)).join(' ');
    if (!store.understands({ id, needs })) return;
    if (!(await nameAdopter(store, row, member.id(), new Date(clock.now())))) return;
    adopted.add();
    log.warn('host.lost', { id, name, ...(before && { instead: before.name }), note: 'this host takes over its mail' });
  }

  async function look(): Promise<void> {
    lastLook = member.beats();
    const others = (await store.hosts.many({})).filter(({ id }) => id !== member.id());
    const now = new Map<string, Sight>();
    const adopterOf = (row: HostRow) => others.find(({ id }) => id === row.adopter);
    const silent = others.filter((row) => {
      if (row.adopter) return false;
      if (row.incarnation !== null) return isStill(row, `${row.incarnation} ${row.beat}`, now);
      // It was stopped and will continue with its mail, or was silent when another process took its name.
      return isSilent(row) && isStill(row, 'silent', now);
    });
    // Mail that an adopter has not taken over yet must not wait for it if it is lost or stopped.
    const stuck = others.filter((row) => {
      if (!row.adopter || row.adopter === member.id()) return false;
      return isStill(row, `${row.adopter} ${adopterOf(row)?.beat}`, now);
    });
    sights = now;
    lost = silent.length + others.filter((row) => isSilent(row) && row.adopter).length;
    if (afterMs === 0) return;
    for (const row of silent) await adopt(row, undefined);
    for (const row of stuck) await adopt(row, adopterOf(row));
  }

  const loop = createLoop(clock, async () => {
    if (member.beats() - lastLook >= LOOK_BEATS)
      await look().catch((error: unknown) => {
        if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'hosts', error });
      });
    return BEAT_MS;
  });

  return frozen<Service>({
    async start() {
      if (!alone) void loop.start();
    },
    stop: loop.stop,
  });
}
