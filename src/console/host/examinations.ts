import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';

/** A finding of one check, in the words of `postern doctor`. */
export interface HostFinding {
  readonly check: string;
  readonly verdict: 'ok' | 'warning' | 'fault' | 'skipped';
  readonly seen: string;
  readonly advice?: string;
}

/** One run over all checks. */
interface Examination {
  readonly id: string;
  readonly startedAt: number;
  /** Undefined while it runs. */
  readonly endedAt: number | undefined;
  /** The findings so far, in order: some 2,000 at most, because no check reads more than 500 domains. */
  readonly found: readonly HostFinding[];
}

/** The minimum interval between the starts of two examinations. */
const REST_MS = 5000;

interface Deps {
  readonly examine: () => AsyncIterable<HostFinding>;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly ids: Pick<Ids, 'message'>;
  readonly log: Log;
}

/** The examinations of this host: one at a time, shared by all callers. */
export function createExaminations({ examine, clock, ids, log }: Deps) {
  let last: Examination | undefined;
  let restsUntil = Number.NEGATIVE_INFINITY;
  let stopped = false;

  async function run(began: Examination): Promise<void> {
    let now = began;
    const keep = (change: Partial<Examination>) => {
      now = { ...now, ...change };
      last = now;
    };
    const found: HostFinding[] = [];
    try {
      for await (const finding of examine()) {
        if (stopped) break;
        found.push(finding);
        keep({ found: [...found] });
      }
    } catch (error) {
      log.error('api.fault', { part: 'examination', error });
      keep({ found: [...found, BROKEN_OFF] });
    }
    keep({ endedAt: clock.now() });
  }

  return frozen({
    /** Returns the examination that runs or began within the last seconds, else starts a new one. */
    start(): Examination {
      if (last && (last.endedAt === undefined || clock.monotonic() < restsUntil)) return last;
      restsUntil = clock.monotonic() + REST_MS;
      const began = { id: ids.message(), startedAt: clock.now(), endedAt: undefined, found: [] };
      last = began;
      void run(began);
      return began;
    },
    /** The examination with this id, if it is the last one. */
    find: (id: string): Examination | undefined => (last?.id === id ? last : undefined),
    /** Ends the running examination after its current check. */
    stop(): void {
      stopped = true;
    },
  });
}

const BROKEN_OFF: HostFinding = {
  check: 'examination',
  verdict: 'fault',
  seen: 'the checks failed',
  advice: 'The log of the daemon says why (api.fault).',
};
