import type { Row } from '../driver/port.ts';
import { collection } from './collection.ts';

/**
 * A change of an inbound domain or its routes, so that each host reads that domain again, and no other
 * (inbound/route-changes.ts).
 */
export interface RoutingChangeRow extends Row {
  /** `id` of the inbound domain. */
  readonly domain: string;
  /** The revision `routing` by which it was announced; null: it is being made, or its host died while it made it. */
  readonly revision: number | null;
}

export const routingChanges = collection<RoutingChangeRow>()({
  name: 'routing_changes',
  access: 'none',
  indexes: [['revision']],
  dates: [],
  upkeep: true,
});
