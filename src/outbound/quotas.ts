import { AGREE_MS } from '../base/clock.ts';
import type { Store } from '../store/store.ts';

/** At most `places` in any `ms` milliseconds of what `name` names. */
export interface Quota {
  readonly name: string;
  readonly places: number;
  readonly ms: number;
}

interface Taken {
  readonly id: string;
  readonly until: Date;
}

/**
 * Takes a place of every quota, or of none. A place is a row that is held until a time; a step of the store hands it to one
 * asker only, so any number of processes that ask at once get no more than there are.
 */
export async function takePlaces(store: Pick<Store, 'quotas'>, quotas: readonly Quota[], now: Date): Promise<boolean> {
  const taken: Taken[] = [];
  for (const quota of quotas) {
    const place = await takePlace(store, quota, now);
    if (!place) {
      for (const { id, until } of taken) await store.quotas.change({ id, until }, { until: now });
      return false;
    }
    taken.push(place);
  }
  return true;
}

async function takePlace(
  { quotas }: Pick<Store, 'quotas'>,
  { name, places, ms }: Quota,
  now: Date,
): Promise<Taken | undefined> {
  const until = new Date(now.getTime() + ms);
  for (let number = 0; number < places; number++) {
    const id = `${name} ${number}`;
    if ((await quotas.insert({ id, until })) === 'inserted') return { id, until };
    if (await quotas.change({ id, until: { range: { lte: now } } }, { until })) return { id, until };
    // Nobody honest takes a place for longer: the clock was ahead then.
    if (await quotas.change({ id, until: { range: { gt: new Date(until.getTime() + AGREE_MS) } } }, { until }))
      return { id, until };
  }
  return undefined;
}
