import { systemClock } from '../base/clock.ts';
import type { DeliveryState, Selection, Spool } from '../spool/types.ts';
import { EXIT, type Command, type Invocation } from './command.ts';
import { withSpool } from './open.ts';
import { requireChoice, selecting, toSelection } from './selection.ts';

interface Change {
  readonly name: string;
  readonly summary: string;
  readonly notes?: string;
  readonly options?: NonNullable<Command['options']>;
  /** Stands before the count in the answer. */
  readonly done: string;
  states(call: Invocation): readonly DeliveryState[];
  change(spool: Spool, selection: Selection, now: number): Promise<number>;
}

/** A command that changes the deliveries its words and options name; exit 1 when ids were given and none was there to change. */
function changing({ name, summary, notes, options, done, states, change }: Change): Command {
  return {
    name, summary, ...(notes === undefined ? {} : { notes }),
    args: '[ID…]',
    options: { ...selecting, ...options, all: { type: 'boolean', help: 'all of them' } },
    async run(call, io) {
      const selection = toSelection(call, states(call));
      requireChoice(call, selection);
      return withSpool(call.settings().settings, async (spool) => {
        const count = await change(spool, selection, systemClock.now());
        io.out(call.json ? JSON.stringify({ count }) + '\n' : `${done} ${count} ${count === 1 ? 'delivery' : 'deliveries'}.\n`);
        return count > 0 || call.words.length === 0 ? EXIT.ok : EXIT.failed;
      });
    },
  };
}

export const queueRetry = changing({
  name: 'queue retry',
  summary: 'Makes waiting deliveries due now.',
  done: 'Made due:',
  states: () => ['waiting'],
  change: (spool, selection, now) => spool.retry(selection, now),
});

export const queueDrop = changing({
  name: 'queue drop',
  summary: 'Ends waiting or dead deliveries without delivering them.',
  done: 'Dropped',
  states: () => ['waiting', 'dead'],
  change: (spool, selection, now) => spool.drop(selection, now),
});

export const queueFlush: Command = {
  ...queueRetry,
  name: 'queue flush',
  summary: 'Makes everything that waits due now.',
  args: '',
  options: {},
  run: (call, io) => queueRetry.run({ ...call, words: [], flag: (name) => name === 'all' || call.flag(name) }, io),
};

export const replay = changing({
  name: 'replay',
  summary: 'Delivers again what ended: dead letters, and with --delivered (or by id) also what was delivered and is still kept. Ids stay the same.',
  options: { delivered: { type: 'boolean', help: 'also what was delivered' } },
  notes: 'Mail that an account sent goes out again only by id or with --kind outgoing.\n\nA day again, for a consumer that lost it:\n  postern replay --delivered --url https://app.example.com/hook --from 2026-01-05 --to 2026-01-06',
  done: 'Waiting again:',
  states: (call) => call.flag('delivered') || call.words.length > 0 ? ['dead', 'dropped', 'delivered'] : ['dead', 'dropped'],
  async change(spool, selection, now) {
    if (selection.ids || selection.kind) return spool.replay(selection, now);
    // Mail that an account sent has bounced or was cancelled: it goes out again only when somebody says so.
    return await spool.replay({ ...selection, kind: 'mail' }, now) + await spool.replay({ ...selection, kind: 'batch' }, now);
  },
});
