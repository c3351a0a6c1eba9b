import { frozen } from '../../base/frozen.ts';
import type { Step } from '../../queue/road.ts';

/** How far a thread is with the messages that it renders, for whoever asks. */
export interface Progress {
  /** A delivery came, and its verdicts are taken. The answer takes each DNS question while it is open. */
  begin(delivery: string): Set<string>;
  /** It has its verdicts. Nothing when it has ended: a shared POST leaves those behind that wait for long. */
  parse(delivery: string): void;
  end(delivery: string): void;
  steps(): readonly (readonly [delivery: string, step: Step])[];
}

/** As long as the longest name in the DNS, and its type. */
const LONGEST_QUESTION = 260;

export function createProgress(): Progress {
  /** The open questions of each; undefined for one that is parsed, or waits for that. */
  const known = new Map<string, ReadonlySet<string> | undefined>();

  return frozen({
    begin(delivery) {
      const open = new Set<string>();
      known.set(delivery, open);
      return open;
    },
    parse(delivery) {
      if (known.has(delivery)) known.set(delivery, undefined);
    },
    end(delivery) {
      known.delete(delivery);
    },
    steps: () => [...known].map(([delivery, open]) => [delivery, toStep(open)] as const),
  });
}

function toStep(open: ReadonlySet<string> | undefined): Step {
  if (!open) return { at: 'parsing', question: null };
  const [oldest = null] = open;
  return { at: 'verdicts', question: oldest?.slice(0, LONGEST_QUESTION) ?? null };
}

/** Milliseconds that a thread has to say how far it is. */
const PATIENCE = 200;

/** How far all threads are, as far as they say so in time. Those who ask at the same time share the answer. */
export function createSteps(
  each: (ms: number) => Promise<readonly ReturnType<Progress['steps']>[]>,
): () => Promise<ReadonlyMap<string, Step>> {
  let asked: Promise<ReadonlyMap<string, Step>> | undefined;
  return () =>
    (asked ??= each(PATIENCE)
      .then((answers) => new Map(answers.flat()))
      .finally(() => {
        asked = undefined;
      }));
}
