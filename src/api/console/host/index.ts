import { machineOperations } from './machine.ts';
import type { HostOperation } from './operation.ts';
import { queueOperations } from './queue.ts';
import { whoOperations } from './who.ts';

/** Every operation of the group `host`. */
export const HOST_OPERATIONS: readonly HostOperation[] = [...queueOperations, ...whoOperations, ...machineOperations];
