import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog, printable } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { dnsSettings } from '../composition/slices.ts';
import { createResolver } from '../dns/resolver.ts';
import { type CheckVerdict, type Finding, placesOf, type World } from '../examination/finding.ts';
import type { Settings } from '../settings.ts';
import { type Command, EXIT } from './command.ts';
import { withSpool, withStore } from './open.ts';

export const doctor: Command = {
  name: 'doctor',
  summary: 'Checks everything that a mail host needs, and explains how to fix problems. Exits 1 if it finds a fault.',
  options: {
    reach: {
      type: 'string',
      value: 'DOMAIN',
      help: 'check outbound port 25 with the mail server of this domain (default: one of a known domain)',
    },
  },
  notes:
    'Changes nothing and sends no mail. Run it as the user of the daemon, with its settings:\n' +
    '  sudo -u postern postern doctor --config /etc/postern/postern.yaml',
  async run(call, io) {
    const { settings } = call.settings();
    const found: Finding[] = [];
    await lookAt(
      settings,
      { settingsFile: call.text('config') ?? (io.env.POSTERN_CONFIG || undefined), reach: call.text('reach') },
      (finding) => {
        found.push(finding);
        if (call.format === 'text') io.out(toLines(finding));
      },
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

/** Examines the host, with the store if it can be opened. */
async function lookAt(
  settings: Settings,
  given: Pick<World, 'settingsFile' | 'reach'>,
  report: (finding: Finding) => void,
): Promise<void> {
  const resolver = createResolver(dnsSettings(settings), {
    clock: systemClock,
    log: createLog('silent'),
    ids: createIds(systemClock),
    metrics: NO_METRICS,
    cacheEntries: 0,
  });
  const world: World = {
    settings,
    resolver,
    store: undefined,
    noStore: NOT_RUN,
    queue: undefined,
    noQueue: NOT_RUN,
    places: placesOf(settings),
    clock: systemClock,
    root: '/',
    ...given,
  };
  const { examine } = await import('../examination/examine.ts');
  const look = async (from: Parameters<typeof examine>[0]) => {
    for await (const finding of examine(from)) report(finding);
  };
  // DNS queries do not keep the process alive, which is right in the daemon but not here.
  const alive = setInterval(() => {}, 1000);
  try {
    await withQueue(settings, async (queue) => {
      let looked = false;
      try {
        if (!hasStore(settings)) return await look({ world: { ...world, ...queue } });
        await withStore(settings, async (store) => {
          looked = true;
          await look({ world: { ...world, ...queue, store } });
        });
      } catch (error) {
        await look({ world: { ...world, ...queue }, storeFault: error, ...(looked ? { checks: [] } : {}) });
      }
    });
  } finally {
    await resolver.stop();
    clearInterval(alive);
  }
}

const NOT_RUN = 'the daemon has not run here yet';

/** Calls `use` with the queue of this host, or with the reason why there is none. */
async function withQueue(
  settings: Settings,
  use: (queue: Pick<World, 'queue' | 'noQueue'>) => Promise<void>,
): Promise<void> {
  if (!existsSync(join(settings.data_dir, 'spool'))) return use({ queue: undefined, noQueue: NOT_RUN });
  let used = false;
  try {
    await withSpool(settings, (queue) => {
      used = true;
      return use({ queue, noQueue: '' });
    });
  } catch (error) {
    if (used) throw error;
    await use({ queue: undefined, noQueue: error instanceof Error ? error.message : String(error) });
  }
}

/** Whether there is a store: opening the embedded one would create it. */
function hasStore({ store, data_dir: dir }: Settings): boolean {
  return store.url !== '' || store.url_file !== '' || existsSync(join(dir, 'store.db'));
}

const MARKS: Readonly<Record<CheckVerdict, string>> = {
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
