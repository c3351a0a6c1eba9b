import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { tableOf } from '../base/tables.ts';
import { type DeliveryName, type EndpointName, endpointKey, type Selection, type Spool } from './delivery.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES, type DeliveryState, sumOfStates } from './states.ts';

// The one way to change many deliveries: counts, then changes in steps; for the API, the console and the commands.

/** Which deliveries are meant. The states in which the action is possible need not be given. */
export interface BulkSelection {
  /** Those of any of these, which must not overlap. */
  readonly selections: readonly Selection[];
  /** Only those whose ids it yields: what the history finds, and the queue cannot. */
  readonly found?: (() => AsyncIterable<readonly string[]>) | undefined;
}

/** The deliveries that a change would affect: it changes no others. */
export interface BulkCount {
  readonly matched: number;
  readonly byState: Readonly<Record<DeliveryState, number>>;
  /** Ids that were found, and are not in the queue any more. */
  readonly forgotten: number;
}

/** How far a change goes, and who follows it. */
export interface BulkCourse {
  /** It changes no more than this: what comes meanwhile may match as well. */
  readonly most?: number | undefined;
  /** Called after each step with the number changed so far. */
  readonly progress?: ((done: number) => void) | undefined;
  /** Asked before each step; true ends it. */
  readonly stopping?: (() => boolean) | undefined;
  /** Called at the end, also when it failed, with the number changed of each account. */
  readonly ended?: ((byAccount: ReadonlyMap<string, number>) => void) | undefined;
}

interface BulkDeps {
  readonly spool: Pick<Spool, 'names' | 'count' | BulkAction>;
  /** Undefined where no dispatcher runs. */
  readonly probe?: ((endpoint: EndpointName) => void) | undefined;
  readonly clock: Pick<Clock, 'now'>;
}

/** Deliveries changed in one step, which shares a commit with new mail. */
const STEP = 500;
/** Endpoints that are probed after a change. */
const MOST_PROBED = 10_000;

export function createBulkChanges({ spool, probe, clock }: BulkDeps) {
  return frozen({
    async count(action: BulkAction, which: BulkSelection): Promise<BulkCount> {
      const byState = tableOf(DELIVERY_STATES, () => 0);
      let forgotten = 0;
      for await (const { selection, found } of parts(which)) {
        const counts = await spool.count({ ...selection, changeable: action });
        for (const state of DELIVERY_STATES) byState[state] += counts[state];
        if (found > 0) forgotten += found - sumOfStates(await spool.count({ ...selection, states: undefined }));
      }
      return { matched: sumOfStates(byState), byState, forgotten };
    },
    /** Returns how many it changed. A step is durable before the next begins, and what was done is not done again. */
    async change(
      action: BulkAction,
      which: BulkSelection,
      { most = Number.POSITIVE_INFINITY, progress, stopping, ended }: BulkCourse = {},
    ) {
      const counts = new Map<string, number>();
      const endpoints = new Map<string, EndpointName>();
      let done = 0;
      try {
        for await (const slice of slices(spool, action, which)) {
          if (done >= most || stopping?.()) break;
          const rows = slice.slice(0, most - done);
          if (BULK_ACTIONS[action].probes)
            for (const { account, url } of rows)
              if (endpoints.size < MOST_PROBED) endpoints.set(endpointKey({ account, url }), { account, url });
          const ids = rows.map(({ id }) => id);
          done += await spool[action]({ ids, changeable: action }, clock.now(), (account, count) =>
            counts.set(account, (counts.get(account) ?? 0) + count),
          );
          progress?.(done);
        }
        return done;
      } finally {
        ended?.(counts);
        // An endpoint that is down gets no attempts but probes.
        for (const endpoint of endpoints.values()) probe?.(endpoint);
      }
    },
  });
}

/** The selections of a change; those of ids that were found have some of them each. */
async function* parts({ selections, found }: BulkSelection): AsyncGenerator<{ selection: Selection; found: number }> {
  for (const selection of selections) {
    if (!found) yield { selection, found: 0 };
    else
      for await (const page of found())
        for (let at = 0; at < page.length; at += STEP) {
          const ids = page.slice(at, at + STEP);
          yield { selection: { ...selection, ids }, found: ids.length };
        }
  }
}

/** The deliveries that an action would change, some at a time. What changes meanwhile may be in or not. */
async function* slices(
  spool: BulkDeps['spool'],
  action: BulkAction,
  which: BulkSelection,
): AsyncGenerator<readonly DeliveryName[]> {
  for await (const { selection } of parts(which))
    for await (const page of spool.names({ ...selection, changeable: action }))
      for (let at = 0; at < page.length; at += STEP) yield page.slice(at, at + STEP);
}
