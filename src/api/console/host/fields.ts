import { z } from 'zod';
import { toTimestamp } from '../../../base/clock.ts';
import { DELIVERY_KINDS } from '../../../queue/delivery.ts';

// Fields of records that several operations of the host share.

export const account = z.object({ id: z.string(), name: z.string() });

export const kind = z.enum(DELIVERY_KINDS);

export const breaker = z.enum(['up', 'down', 'gone']);

/** Milliseconds since 1970 as records show a time. */
export const toTime = (ms: number): string => toTimestamp(new Date(ms));

export const toTimeOrNull = (ms: number | null | undefined): string | null =>
  ms === null || ms === undefined ? null : toTime(ms);
