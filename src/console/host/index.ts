import type { RpcHandler } from '../../api/hosts/host-rpc.ts';
import { changeOperations } from './changes.ts';
import { examineOperations } from './examine.ts';
import { hostsOperations } from './hosts.ts';
import { machineOperations } from './machine.ts';
import type { HostOperation } from './operation.ts';
import { overviewOperations } from './overview.ts';
import type { HostParts } from './parts.ts';
import { peopleOperations } from './people.ts';
import { queueOperations } from './queue.ts';
import { seriesOperations } from './series.ts';
import { whoOperations } from './who.ts';

const ALL = [
  ...overviewOperations,
  ...hostsOperations,
  ...seriesOperations,
  ...queueOperations,
  ...whoOperations,
  ...peopleOperations,
  ...machineOperations,
  ...examineOperations,
  ...changeOperations,
];

/** Every operation of the group `host`. */
export const HOST_OPERATIONS: readonly HostOperation[] = ALL;

/** The same with their types. */
export type DeclaredHostOperation = (typeof ALL)[number];

/** How this host answers the questions of the others, also if its console is off. */
export const hostAnswers = (parts: HostParts): readonly RpcHandler[] =>
  HOST_OPERATIONS.flatMap((operation) => operation.answers(parts));
