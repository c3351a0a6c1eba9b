import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { tableOf } from '../base/tables.ts';
import { type DeliveryName, type EndpointName, endpointKey, type Selection, type Spool } from './delivery.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES, type DeliveryState, sumOfStates } from './states.ts';

// Bulk changes of deliveries, for the API, the console and the commands: counted first, then made in steps.

/** Selects deliveries. The states in which the action is possible are implied. */
export interface BulkSelection {
  /** The union of these selections, which must not overlap. */
  readonly selections: readonly Selection[];
  /** If set, only the deliveries whose ids it yields: results of a search in the history. */
  readonly found?: (() => AsyncIterable<readonly string[]>) | undefined;
}

/** The deliveries that a change would affect. */
export interface BulkCount {
  readonly matched: number;
  readonly byState: Readonly<Record<DeliveryState, number>>;
  /** Found ids that are no longer in the queue. */
  readonly forgotten: number;
}

/** The limit and the callbacks of a change. */
export interface BulkOptions {
  /** Maximum number of changes, because deliveries that arrive meanwhile may match too. */
  readonly most?: number | undefined;
  /** Called after each step with the number changed so far. */
  readonly progress?: ((done: number) => void) | undefined;
  /** Checked before each step; true ends the change. */
  readonly stopping?: (() => boolean) | undefined;
  /** Called at the end, even after a failure, with the number changed per account. */
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
/** Maximum number of endpoints that are probed after a change. */
const MAX_PROBED = 10_000;

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
    /** Returns the number changed. Each step is durable before the next begins, and is not repeated. */
    async change(
      action: BulkAction,
      which: BulkSelection,
      { most = Number.POSITIVE_INFINITY, progress, stopping, ended }: BulkOptions = {},
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
              if (endpoints.size < MAX_PROBED) endpoints.set(endpointKey({ account, url }), { account, url });
          const ids = rows.map(({ id }) => id);
          done += await spool[action]({ ids, changeable: action }, clock.now(), (account, count) =>
            counts.set(account, (counts.get(account) ?? 0) + count),
          );
          progress?.(done);
        }
        return done;
      } finally {
        ended?.(counts);
        // An endpoint that is down gets only probes.
        for (const endpoint of endpoints.values()) probe?.(endpoint);
      }
    },
  });
}

/** The selections of a change, split by pages of found ids. */
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

/** The deliveries that an action would change, in slices. Those that change meanwhile may be missing. */
async function* slices(
  spool: BulkDeps['spool'],
  action: BulkAction,
  which: BulkSelection,
): AsyncGenerator<readonly DeliveryName[]> {
  for await (const { selection } of parts(which))
    for await (const page of spool.names({ ...selection, changeable: action }))
      for (let at = 0; at < page.length; at += STEP) yield page.slice(at, at + STEP);
}
