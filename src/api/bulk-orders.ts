import type { BulkCount, BulkCourse } from '../queue/bulk-changes.ts';
import type { Jobs } from './jobs.ts';

// A call that changes many deliveries, of an account or of the host: the number first, then the change.

/** More deliveries than this are changed by a job, which goes on after the call is answered. */
export const MOST_AT_ONCE = 1000;

export interface BulkOrder {
  /** Whose job it is. */
  readonly owner: string;
  readonly dryRun: boolean | undefined;
  /** Nothing is changed if more match. */
  readonly atMost: number | undefined;
  count(): Promise<BulkCount>;
  /** Creates the error of a call that would change more. */
  tooMany(text: string): Error;
  /** Called before the change, and returns what makes it, and notes it. */
  begin(): Promise<(course: BulkCourse, job?: StartedJob) => Promise<number>>;
}

interface StartedJob {
  readonly id: string;
  readonly of: number;
}

/**
 * Counts what would be changed and, unless that is all, changes it now (`changed`) or starts a job (`job`) that does.
 */
export async function carryOut(order: BulkOrder, jobs: Pick<Jobs, 'start'>) {
  const counted = await order.count();
  const { matched } = counted;
  const { atMost: most } = order;
  if (order.dryRun || matched === 0) return { ...counted, changed: 0, job: null };
  if (most !== undefined && matched > most) throw order.tooMany(`${matched} deliveries match now (limit ${most})`);
  const change = await order.begin();
  if (matched <= MOST_AT_ONCE) return { ...counted, changed: await change({ most }), job: null };
  const job = jobs.start(order.owner, matched, async (id, { done, stopping }) => {
    await change({ most, progress: done, stopping }, { id, of: matched });
  });
  return { ...counted, changed: 0, job: job.id };
}
