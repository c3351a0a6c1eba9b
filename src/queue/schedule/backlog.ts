import { frozen } from '../../base/frozen.ts';
import { type EndpointName, endpointKey } from '../delivery.ts';

/**
 * Counts inbound deliveries that wait for this host to read, parse and sign them. Deliveries that wait for their
 * endpoint (unavailable, slow, or at its limit) do not count, however many there are: they stay on disk and cost
 * nothing. A growing backlog thus means that more mail arrives than this host can deliver.
 */
export type Backlog = ReturnType<typeof createBacklog>;

/** `most`: the maximum that one endpoint adds to the count of all. */
export function createBacklog(most: number) {
  const counts = new Map<string, number>();
  let ofAll = 0;

  function set(endpoint: EndpointName, change: (count: number) => number): void {
    const key = endpointKey(endpoint);
    const before = counts.get(key) ?? 0;
    const after = Math.max(0, change(before));
    if (after === before) return;
    ofAll += Math.min(after, most) - Math.min(before, most);
    if (after > 0) counts.set(key, after);
    else counts.delete(key);
  }

  return frozen({
    /** A delivery arrived and can be taken up immediately. */
    add: (endpoint: EndpointName) => set(endpoint, (count) => count + 1),
    /** A delivery was taken up. */
    take: (endpoint: EndpointName) => set(endpoint, (count) => count - 1),
    /** Clears the count, because its deliveries wait for the endpoint, or there are none. */
    excuse: (endpoint: EndpointName) => set(endpoint, () => 0),
    /** Resets all counts, because they are no longer known. */
    clear() {
      counts.clear();
      ofAll = 0;
    },
    /**
     * The number of deliveries ahead of a new one for these endpoints: those of one of them, or of all. An endpoint
     * whose messages are slow to prepare (because of name servers of their senders) delays only its own mail.
     */
    before: (endpoints: readonly EndpointName[]) =>
      endpoints.reduce((worst, one) => Math.max(worst, counts.get(endpointKey(one)) ?? 0), ofAll),
    total() {
      let sum = 0;
      for (const count of counts.values()) sum += count;
      return sum;
    },
  });
}
