import { systemClock } from '../base/clock.ts';
import type { DeliveryState, Progress, Selection, Spool } from '../spool/types.ts';
import { type Command, EXIT, type Invocation, type Io } from './command.ts';
import { withSpool } from './open.ts';
import { requireChoice, selecting, toSelection } from './selection.ts';

/** How often a change of many deliveries says how far it is. */
const TELL_EVERY_MS = 1000;

interface Change {
  readonly name: string;
  readonly summary: string;
  readonly notes?: string;
  readonly options?: NonNullable<Command['options']>;
  /** Stands before the count in the answer. */
  readonly done: string;
  /** The same for what a dry run would have done. */
  readonly wouldDo: string;
  /** What is changed: the selections of the command line, narrowed to what the change may touch. */
  narrow(selection: Selection, call: Invocation): readonly Selection[];
  change(spool: Spool, selection: Selection, now: number, progress: Progress): Promise<number>;
}

/** A command that changes the deliveries its words and options name; exit 1 when ids were given and none was there to change. */
function changing({ name, summary, notes, options, done, wouldDo, narrow, change }: Change): Command {
  return {
    name,
    summary,
    ...(notes === undefined ? {} : { notes }),
    args: '[ID…]',
    options: {
      ...selecting,
      ...options,
      all: { type: 'boolean', help: 'all of them' },
      'dry-run': { type: 'boolean', help: 'only say how many deliveries would be changed' },
    },
    async run(call, io) {
      const selection = toSelection(call);
      requireChoice(call, selection);
      const selections = narrow(selection, call);
      const dryRun = call.flag('dry-run');
      return withSpool(call.settings().settings, async (spool) => {
        const total = await countAll(spool, selections);
        const progress = createProgress(io, name, total);
        let count = dryRun ? total : 0;
        for (const each of dryRun ? [] : selections) {
          const before = count;
          count += await change(spool, each, systemClock.now(), (so) => progress(before + so));
        }
        call.print(
          [{ count, dry_run: dryRun }],
          () => `${dryRun ? wouldDo : done} ${count} ${count === 1 ? 'delivery' : 'deliveries'}.\n`,
        );
        return count > 0 || call.words.length === 0 ? EXIT.ok : EXIT.failed;
      });
    },
  };
}

async function countAll(spool: Spool, selections: readonly Selection[]): Promise<number> {
  let sum = 0;
  for (const selection of selections) {
    const counts = await spool.count(selection);
    sum += counts.waiting + counts.dead + counts.delivered + counts.dropped;
  }
  return sum;
}

/** Says on standard error how far it is; a change that is over with its first step says nothing. */
function createProgress(io: Io, name: string, total: number): Progress {
  let toldAt = -Infinity;
  return (count) => {
    const now = systemClock.monotonic();
    if (count >= total || now - toldAt < TELL_EVERY_MS) return;
    toldAt = now;
    io.err(`${name}: ${count} of ${total}\n`);
  };
}

const inStates =
  (...states: readonly DeliveryState[]) =>
  (selection: Selection): readonly Selection[] => [{ ...selection, states }];

export const queueRetry = changing({
  name: 'queue retry',
  summary: 'Makes waiting deliveries due now.',
  done: 'Made due:',
  wouldDo: 'Would make due:',
  narrow: inStates('waiting'),
  change: (spool, selection, now, progress) => spool.retry(selection, now, progress),
});

export const queueDrop = changing({
  name: 'queue drop',
  summary: 'Ends waiting or dead deliveries without delivering them.',
  done: 'Dropped',
  wouldDo: 'Would drop',
  narrow: inStates('waiting', 'dead'),
  change: (spool, selection, now, progress) => spool.drop(selection, now, progress),
});

export const queueFlush: Command = {
  ...queueRetry,
  name: 'queue flush',
  summary: 'Makes everything that waits due now.',
  args: '',
  options: { 'dry-run': { type: 'boolean', help: 'only say how many deliveries would be changed' } },
  run: (call, io) => queueRetry.run({ ...call, words: [], flag: (name) => name === 'all' || call.flag(name) }, io),
};

export const replay = changing({
  name: 'replay',
  summary:
    'Delivers again what ended: dead letters, and with --delivered (or by id) also what was delivered and is still kept. Ids stay the same.',
  options: { delivered: { type: 'boolean', help: 'also what was delivered' } },
  notes:
    'Mail that an account sent goes out again only by id or with --kind outgoing.\n\nA day again, for a consumer that lost it:\n  postern replay --delivered --url https://app.example.com/hook --from 2026-01-05 --to 2026-01-06',
  done: 'Waiting again:',
  wouldDo: 'Would wait again:',
  narrow(selection, call) {
    const withDelivered = call.flag('delivered') || call.words.length > 0;
    const all = {
      ...selection,
      states: withDelivered ? (['dead', 'dropped', 'delivered'] as const) : (['dead', 'dropped'] as const),
    };
    if (selection.ids || selection.kind) return [all];
    // Mail that an account sent has bounced or was cancelled: it goes out again only when somebody says so.
    return [
      { ...all, kind: 'mail' },
      { ...all, kind: 'batch' },
    ];
  },
  change: (spool, selection, now, progress) => spool.replay(selection, now, progress),
});
