import { frozen } from '../../base/frozen.ts';
import type { Endpoint } from '../delivery.ts';

type Place = Pick<Endpoint, 'account' | 'url'>;

/**
 * Deliveries that came in and wait for this host itself: to be read, parsed and signed. What waits for its endpoint
 * (which is away, slow, or has all its places taken) does not count, whatever there is of it: that belongs on the disk
 * and costs nobody anything. So this tells when more comes in than this host can deliver.
 */
export interface Backlog {
  /** A delivery came in and could be taken up at once. */
  add(place: Place): void;
  /** One was taken up. */
  take(place: Place): void;
  /** What waits there waits for the endpoint, or nothing does. */
  excuse(place: Place): void;
  /** Nobody knows any more what waits. */
  clear(): void;
  /**
   * How many one more for these endpoints would wait behind: those for one of them, or those for all. An endpoint whose
   * messages take long to prepare (their senders' name servers are slow) holds up its own mail and nobody else's.
   */
  before(places: readonly Place[]): number;
  total(): number;
}

/** `most`: so many of one endpoint count among those of all. */
export function createBacklog(most: number): Backlog {
  const counts = new Map<string, number>();
  let ofAll = 0;

  function set(place: Place, change: (count: number) => number): void {
    const key = `${place.account}\0${place.url}`;
    const before = counts.get(key) ?? 0;
    const after = Math.max(0, change(before));
    if (after === before) return;
    ofAll += Math.min(after, most) - Math.min(before, most);
    if (after > 0) counts.set(key, after);
    else counts.delete(key);
  }

  return frozen({
    add: (place) => set(place, (count) => count + 1),
    take: (place) => set(place, (count) => count - 1),
    excuse: (place) => set(place, () => 0),
    clear() {
      counts.clear();
      ofAll = 0;
    },
    before: (places) =>
      places.reduce((worst, { account, url }) => Math.max(worst, counts.get(`${account}\0${url}`) ?? 0), ofAll),
    total() {
      let sum = 0;
      for (const count of counts.values()) sum += count;
      return sum;
    },
  });
}
