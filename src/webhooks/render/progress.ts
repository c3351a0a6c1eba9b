import { createSingleFlight } from '../../base/cache.ts';
import { frozen } from '../../base/frozen.ts';
import type { Step } from '../../queue/road.ts';

export type RenderProgress = ReturnType<typeof createProgress>;

/** The longest DNS name, with its type. */
const LONGEST_QUESTION = 260;

export function createProgress() {
  /** The open DNS questions of each delivery; undefined once it has its verdicts. */
  const known = new Map<string, ReadonlySet<string> | undefined>();

  return frozen({
    /** Starts a delivery with its verdicts. Returns the set for its open DNS questions. */
    begin(delivery: string) {
      const open = new Set<string>();
      known.set(delivery, open);
      return open;
    },
    /**
     * Its verdicts are computed. Ignored after `end`: a shared POST goes without messages whose verdicts take long.
     */
    parse(delivery: string) {
      if (known.has(delivery)) known.set(delivery, undefined);
    },
    end(delivery: string) {
      known.delete(delivery);
    },
    steps: (): readonly (readonly [delivery: string, step: Step])[] =>
      [...known].map(([delivery, open]) => [delivery, toStep(open)] as const),
  });
}

function toStep(open: ReadonlySet<string> | undefined): Step {
  if (!open) return { at: 'parsing', question: null };
  const [oldest = null] = open;
  return { at: 'verdicts', question: oldest?.slice(0, LONGEST_QUESTION) ?? null };
}

/** How long to wait for the threads, in milliseconds. */
const PATIENCE = 200;

/** Creates a function that collects the progress of all threads. Concurrent calls share one result. */
export function createSteps(
  each: (ms: number) => Promise<readonly ReturnType<RenderProgress['steps']>[]>,
): () => Promise<ReadonlyMap<string, Step>> {
  const shared = createSingleFlight<ReadonlyMap<string, Step>>();
  return () => shared('steps', async () => new Map((await each(PATIENCE)).flat()));
}
