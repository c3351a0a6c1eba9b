import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog, printable } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { dnsSettings } from '../composition/slices.ts';
import { createResolver } from '../dns/resolver.ts';
import type { Settings } from '../settings.ts';
import { type Command, EXIT } from './command.ts';
import { type Check, type Finding, fault, type Verdict, type World } from './doctor/finding.ts';
import { certificate, listening, outgoing } from './doctor/listening.ts';
import { clockCheck, disk, nameServers, readiness, secrets, storeCheck } from './doctor/machine.ts';
import {
  hostName,
  inboundDomains,
  postmaster,
  publicUrl,
  reservedDomains,
  senderDomains,
  sending,
} from './doctor/names.ts';
import { withStore } from './open.ts';

/** All checks; a check that others depend on comes before them. */
const CHECKS: readonly Check[] = [
  clockCheck,
  disk,
  secrets,
  nameServers,
  storeCheck,
  readiness,
  listening,
  certificate,
  hostName,
  publicUrl,
  postmaster,
  sending,
  inboundDomains,
  reservedDomains,
  senderDomains,
  outgoing,
];

export const doctor: Command = {
  name: 'doctor',
  summary: 'Checks everything that a mail host needs and explains how to fix problems. Exits 1 if it finds a fault.',
  options: {
    reach: {
      type: 'string',
      value: 'DOMAIN',
      help: 'also connect to the mail server of this domain, to check that outbound port 25 is open',
    },
  },
  notes:
    'Changes nothing and sends no mail. Run it as the user of the daemon, with its settings:\n' +
    '  sudo -u postern postern doctor --config /etc/postern/postern.yaml',
  async run(call, io) {
    const { settings } = call.settings();
    const found: Finding[] = [];
    const report = (findings: readonly Finding[]) => {
      found.push(...findings);
      if (call.format === 'text') io.out(findings.map(toLines).join(''));
    };
    await examine(
      settings,
      { settingsFile: call.text('config') ?? (io.env.POSTERN_CONFIG || undefined), reach: call.text('reach') },
      report,
    );
    const faults = found.filter(({ verdict }) => verdict === 'fault').length;
    const warnings = found.filter(({ verdict }) => verdict === 'warning').length;
    call.print(
      found,
      () =>
        `\n${faults === 0 && warnings === 0 ? 'No problems found.' : `${count(faults, 'fault')}, ${count(warnings, 'warning')}.`}\n`,
    );
    return faults === 0 ? EXIT.ok : EXIT.failed;
  },
};

async function examine(
  settings: Settings,
  given: Pick<World, 'settingsFile' | 'reach'>,
  report: (findings: readonly Finding[]) => void,
): Promise<void> {
  const resolver = createResolver(dnsSettings(settings), {
    clock: systemClock,
    log: createLog('silent'),
    ids: createIds(systemClock),
    metrics: NO_METRICS,
    cacheEntries: 0,
  });
  const runAll = async (world: World, checks: readonly Check[]) => {
    for (const check of checks) report(await check.run(world).catch((error: unknown) => [failed(check, error)]));
  };
  const world: World = {
    settings,
    resolver,
    store: undefined,
    noStore: 'the daemon has not run here yet',
    clock: systemClock,
    root: '/',
    ...given,
  };
  // DNS queries do not keep the process alive, which is right in the daemon but not here.
  const alive = setInterval(() => {}, 1000);
  // Without the store, that is one finding; the other checks still run.
  let rest = CHECKS;
  try {
    if (!hasStore(settings)) return await runAll(world, CHECKS);
    await withStore(settings, async (store) => {
      await store.ping();
      rest = [];
      await runAll({ ...world, store }, CHECKS);
    });
  } catch (error) {
    report([failed(storeCheck, error)]);
    await runAll(
      { ...world, noStore: 'the store is unavailable' },
      rest.filter((check) => check !== storeCheck),
    );
  } finally {
    await resolver.stop();
    clearInterval(alive);
  }
}

/** Whether there is a store: opening the embedded one would create it. */
function hasStore({ store, data_dir: dir }: Settings): boolean {
  return store.url !== '' || store.url_file !== '' || existsSync(join(dir, 'store.db'));
}

function failed(check: Check, error: unknown): Finding {
  return fault(
    check.name,
    error instanceof Error ? error.message : String(error),
    check === storeCheck
      ? 'Without it, mail is accepted for known routes only and the API answers 503. Check that it runs and that store.url is correct.'
      : 'Find out why this could not be checked.',
  );
}

const MARKS: Readonly<Record<Verdict, string>> = {
  ok: 'ok     ',
  warning: 'WARNING',
  fault: 'FAULT  ',
  skipped: '-      ',
};

function toLines({ check, verdict, seen, advice }: Finding): string {
  const line = `${MARKS[verdict]}  ${check}: ${printable(seen)}\n`;
  return advice === undefined ? line : `${line}         ${advice}\n`;
}

function count(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? '' : 's'}`;
}
