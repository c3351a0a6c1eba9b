import { systemClock } from '../../base/clock.ts';
import type { Resolver } from '../../dns/types.ts';
import { blockedAddresses, hostAddresses } from '../../examination/addresses.ts';
import { examine } from '../../examination/examine.ts';
import {
  type Check,
  type CheckContext,
  contextWithout,
  type Finding,
  skipped,
  warning,
} from '../../examination/finding.ts';
import { outgoing } from '../../examination/listening.ts';
import { clockCheck, disk, memory, nameServers, readiness } from '../../examination/machine.ts';
import type { Settings } from '../../settings.ts';
import { withResolver } from '../open.ts';
import type { Machine } from './machine.ts';
import type { Report } from './report.ts';
import { ports, type SocketUnit } from './units.ts';

// Examines a machine before setup changes it, by the checks of `postern doctor`.

interface Looked {
  readonly machine: Machine;
  /** The settings after setup. */
  readonly settings: Settings;
}

interface LookOptions extends Looked {
  readonly report: Report;
  /** The sockets that the service will have. */
  readonly sockets: readonly SocketUnit[];
  readonly addresses: readonly string[];
}

/** Examines the machine and reports the findings. False if a port is in use, so that setup is impossible. */
export async function runPreflightChecks({
  machine,
  settings,
  report,
  sockets,
  addresses,
}: LookOptions): Promise<boolean> {
  const isRunning = (await readinessOf({ machine, settings })).verdict === 'ok';
  return withResolver(settings, async (resolver) => {
    const world = worldOf({ machine, settings }, resolver);
    const portCheck: Check = { name: 'ports', run: () => ports(machine, sockets, isRunning) };
    const addressCheck: Check = { name: 'addresses', run: () => hostAddresses(addresses, world) };
    const lists: Check = { name: 'block lists', run: () => blockedAddresses(addresses, resolver) };
    const others = [addressCheck, nameServers, clockCheck, disk, memory, outgoing, lists];
    const [taken = [], ...found] = await Promise.all([portCheck, ...others].map((check) => findingsOf(check, world)));
    for (const finding of taken) report.finding(finding);
    // Most are fixed by the records that are published next, and none prevents the service from starting.
    for (const finding of found.flat()) report.finding(asWarning(finding));
    return taken.every(({ verdict }) => verdict !== 'fault');
  });
}

/** Whether the daemon runs and is ready. */
export async function readinessOf(looked: Looked): Promise<Finding> {
  const [found] = await withResolver(looked.settings, (resolver) => findingsOf(readiness, worldOf(looked, resolver)));
  return found ?? skipped('daemon', NO_DAEMON);
}

const asWarning = ({ check, verdict, seen, advice }: Finding): Finding =>
  verdict === 'fault' ? warning(check, seen, advice ?? '') : { check, verdict, seen, ...(advice && { advice }) };

const NO_DAEMON = 'the daemon has not run here yet';

const worldOf = ({ settings, machine: { root } }: Looked, resolver: Resolver): CheckContext =>
  contextWithout(NO_DAEMON, { settings, resolver, clock: systemClock, root });

const findingsOf = (check: Check, world: CheckContext): Promise<Finding[]> =>
  Array.fromAsync(examine({ world, checks: [check] }));
