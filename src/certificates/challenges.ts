import type { Clock } from '../base/clock.ts';
import { createSemaphore } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import { CHALLENGE_TOKEN } from './acme.ts';

/** How long an answer is kept if its order never ends. Milliseconds. */
const KEEP_MS = 3_600_000;
/** Lookups in the store at a time: strangers cause them. */
const LOOKUPS = 4;

export type Challenges = ReturnType<typeof createChallenges>;

/** Answers to challenges of the authority. They are in the store, because it may ask any of our hosts. */
export function createChallenges({ store, clock }: { store: Pick<Store, 'acmeChallenges'>; clock: Clock }) {
  const { acmeChallenges } = store;
  const lookups = createSemaphore(LOOKUPS);
  return frozen({
    /** Answers a challenge until the function that is returned is called. Throws `StoreAway`. */
    async show(token: string, answer: string): Promise<() => Promise<void>> {
      await acmeChallenges.insert({ id: token, answer, until: new Date(clock.now() + KEEP_MS) });
      return async () => {
        await acmeChallenges.remove({ id: token }).catch(ignoreAway);
      };
    },
    /** The answer to a challenge; undefined if there is none, or the store is away. */
    async answerTo(token: string): Promise<string | undefined> {
      if (!CHALLENGE_TOKEN.test(token)) return undefined;
      const row = await lookups.run(() => acmeChallenges.one({ id: token })).catch(ignoreAway);
      return row && row.until.getTime() > clock.now() ? row.answer : undefined;
    },
    /** Removes the answers of orders that never ended. */
    sweep: () => acmeChallenges.removeAll({ until: { range: { lte: new Date(clock.now()) } } }),
  });
}

function ignoreAway(error: unknown): undefined {
  if (!(error instanceof StoreAway)) throw error;
}
