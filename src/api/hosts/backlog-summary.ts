import { z } from 'zod';
import type { MetricName } from '../../base/metrics.ts';
import type { Figures } from '../../base/prometheus.ts';
import type { HostRpc } from './host-rpc.ts';

// The number and age of waiting deliveries of each host, for operators.

export const backlogSummary = z.object({
  waiting: z.int(),
  dead: z.int(),
  /** Milliseconds since 1970; null: nothing waits. */
  oldest_at: z.number().nullable(),
});

type BacklogSummary = z.output<typeof backlogSummary>;

export const READ_BACKLOG: HostRpc<object, BacklogSummary> = {
  path: '/standing',
  params: z.strictObject({}),
  returns: backlogSummary,
  ms: 10_000,
};

export async function readBacklogSummary(metrics: Pick<Figures, 'level'>, now: number): Promise<BacklogSummary> {
  const [waiting, oldest, dead] = await Promise.all([
    sumOf(metrics, 'postern_spool_waiting'),
    sumOf(metrics, 'postern_spool_oldest_waiting_seconds'),
    sumOf(metrics, 'postern_spool_deliveries', 'dead'),
  ]);
  return { waiting, dead, oldest_at: waiting > 0 ? now - oldest * 1000 : null };
}

/** The sum of a gauge, or of one state of it; 0 while it cannot be read. */
async function sumOf(metrics: Pick<Figures, 'level'>, name: MetricName<'gauge'>, state?: string): Promise<number> {
  const readings = (await metrics.level(name)) ?? [];
  return readings
    .filter(([labels]) => state === undefined || labels['state'] === state)
    .reduce((sum, [, value]) => sum + value, 0);
}
