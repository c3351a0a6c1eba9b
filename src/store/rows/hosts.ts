import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection } from './collection.ts';

/** A secret of the whole service, shared by all hosts of a store. `id` is its purpose. */
interface SecretRow extends Row {
  readonly secret: string;
}

export const secrets = collection<SecretRow>()({ name: 'secrets', access: 'none', indexes: [], dates: [] });

/** Signs the tokens in links and return paths (mail/return-address.ts). */
const TOKENS = 'send-tokens';

/**
 * Reads the secret that signs tokens, creating it on the very first start; if several hosts start at the same time, one
 * row wins and all read it. It never changes: links in sent mail must stay valid for as long as the mail is kept.
 */
export async function openSecret(store: Pick<Store, 'secrets'>, ids: Pick<Ids, 'signingKey'>): Promise<string> {
  for (;;) {
    const known = await store.secrets.one({ id: TOKENS });
    if (known) return known.secret;
    await store.secrets.insert({ id: TOKENS, secret: ids.signingKey() });
  }
}

/** The secret, for parts that run while the store may be unavailable. */
export type TokenSecret = ReturnType<typeof createTokenSecret>;

export function createTokenSecret(store: Pick<Store, 'secrets'>, ids: Pick<Ids, 'signingKey'>) {
  let known: string | undefined;
  let reading: Promise<string> | undefined;
  return frozen({
    /** Read once, then cached. Throws `StoreAway` if it was never read and cannot be. */
    async read(): Promise<string> {
      known ??= await (reading ??= openSecret(store, ids).finally(() => {
        reading = undefined;
      }));
      return known;
    },
  });
}

/** The right to run a task when several processes share a store. `id` is the task's name. */
export interface LeaseRow extends Row {
  /** Identifies a process, from its start to its end; null: free. */
  readonly holder: string | null;
  /** When the holder counts as dead unless it renewed the lease. */
  readonly until: Date;
  /** When the last run began, so that a scheduled time shared by two processes gives one run. */
  readonly ranAt: Date;
}

export const leases = collection<LeaseRow>()({
  name: 'leases',
  access: 'none',
  indexes: [['until']],
  dates: ['until', 'ranAt'],
  upkeep: true,
});

/**
 * Counters that only grow: `routing` (changes of domains and routes, so that other hosts notice them; changes.ts says of
 * which), `accounts`, `routes:<account>` and `webhooks:<account>` (the last number that was assigned).
 */
interface RevisionRow extends Row {
  readonly count: number;
}

export const revisions = collection<RevisionRow>()({
  name: 'revisions',
  access: 'none',
  indexes: [],
  dates: [],
  upkeep: true,
});
