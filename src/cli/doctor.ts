import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { printable } from '../base/log.ts';
import { type CheckContext, type CheckVerdict, contextWithout, type Finding } from '../examination/finding.ts';
import type { Settings } from '../settings.ts';
import { type Command, EXIT } from './command.ts';
import { hasStore, withResolver, withSpool, withStore } from './open.ts';

export const doctor: Command = {
  options: {
    reach: {
      value: 'DOMAIN',
      help: 'check outbound port 25 with the mail server of this domain (default: one of a known domain)',
    },
  },
  notes:
    'Changes nothing and sends no mail. Run it with the settings of the daemon, as its user or as root:\n\n' +
    '  sudo postern doctor',
  async run(call, io) {
    const { settings } = call.settings();
    const found: Finding[] = [];
    await lookAt(
      settings,
      { settingsFile: call.text('config') ?? (io.env.POSTERN_CONFIG || undefined), reach: call.text('reach') },
      (finding) => {
        found.push(finding);
        if (call.format === 'text') io.out(findingLines(finding));
      },
    );
    const faults = found.filter(({ verdict }) => verdict === 'fault').length;
    const warnings = found.filter(({ verdict }) => verdict === 'warning').length;
    const sum = `${count(faults, 'fault')}, ${count(warnings, 'warning')}.`;
    const isGood = faults === 0 && warnings === 0;
    call.print(found, () => `\n${isGood ? 'No problems found.' : sum}\n${nextStep(found)}`);
    return faults === 0 ? EXIT.ok : EXIT.failed;
  },
};

/** The steps that set up a new host, in order: the finding that shows that one is missing, and its command. */
const STEPS: readonly (readonly [check: string, command: string])[] = [
  ['inbound domains', 'postern domain add in.example.com'],
  ['sender domains', 'postern sender add example.com, if you send mail'],
];

/** The next step in one line: the worst finding first, then the steps of a new host. Empty if nothing is left. */
function nextStep(found: readonly Finding[]): string {
  const worst = found.find(({ verdict }) => verdict === 'fault') ?? found.find(({ verdict }) => verdict === 'warning');
  if (worst) return `next: ${worst.check}: ${worst.advice ?? worst.seen}\n`;
  const step = STEPS.find(([check]) => found.some((one) => one.check === check && one.seen.startsWith('none yet')));
  return step ? `next: ${step[1]}\n` : '';
}

/** Examines the host, with the store if it can be opened. */
async function lookAt(
  settings: Settings,
  given: Pick<CheckContext, 'settingsFile' | 'reach'>,
  report: (finding: Finding) => void,
): Promise<void> {
  const { examine } = await import('../examination/examine.ts');
  const look = async (from: Parameters<typeof examine>[0]) => {
    for await (const finding of examine(from)) report(finding);
  };
  await withResolver(settings, async (resolver) => {
    const world = { ...contextWithout(NOT_RUN, { settings, resolver, clock: systemClock, root: '/' }), ...given };
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
  });
}

const NOT_RUN = 'the daemon has not run here yet';

/** Calls `use` with the queue of this host, or with the reason why there is none. */
async function withQueue(
  settings: Settings,
  use: (queue: Pick<CheckContext, 'queue' | 'noQueue'>) => Promise<void>,
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
    await use({ queue: undefined, noQueue: errorText(error) });
  }
}

const MARKS: Readonly<Record<CheckVerdict, string>> = {
  ok: 'ok     ',
  warning: 'WARNING',
  fault: 'FAULT  ',
  skipped: '-      ',
};

/** A finding as lines of text, with its advice. */
export function findingLines({ check, verdict, seen, advice }: Finding): string {
  const line = `${MARKS[verdict]}  ${check}: ${printable(seen)}\n`;
  return advice === undefined ? line : `${line}         ${advice}\n`;
}

function count(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? '' : 's'}`;
}
