import { z } from 'zod';
import { DELIVERY_KINDS } from '../../queue/delivery.ts';

// Fields of records that several operations of the host share.

export const account = z.object({ id: z.string(), name: z.string() });

export const kind = z.enum(DELIVERY_KINDS);

export const breaker = z.enum(['up', 'down', 'gone']);
