import type { Operation } from '../operation.ts';
import { deliveries } from './deliveries.ts';
import { inbound } from './inbound.ts';
import { routeTools } from './route-tools.ts';
import { sendRaw } from './send-raw.ts';
import { users } from './users.ts';

/** Every operation, in the order the reference shows them. */
export const OPERATIONS: readonly Operation[] = [...users, ...inbound, sendRaw, ...routeTools, ...deliveries];
