import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection } from './collection.ts';

/** A secret of the service as a whole: all hosts that share a store share it. `id` says what it is for. */
interface SecretRow extends Row {
  readonly secret: string;
}

export const secrets = collection<SecretRow>()({ name: 'secrets', access: 'none', indexes: [], dates: [] });

/** What signs the tokens in links and return paths (mail/return-address.ts). */
const TOKENS = 'send-tokens';

/**
 * The secret that signs tokens. The first start of the first host makes it; of several that start at once one row wins,
 * and all read that one. It never changes: links in mail that was sent are good for as long as anybody keeps that mail.
 */
export async function openSecret(store: Pick<Store, 'secrets'>, ids: Pick<Ids, 'signingKey'>): Promise<string> {
  for (;;) {
    const known = await store.secrets.one({ id: TOKENS });
    if (known) return known.secret;
    await store.secrets.insert({ id: TOKENS, secret: ids.signingKey() });
  }
}

/** The secret for parts that run while the store may be away. */
export interface TokenSecret {
  /** Read once, then from memory. Throws `StoreAway` while it was never read and cannot be. */
  read(): Promise<string>;
}

export function createTokenSecret(store: Pick<Store, 'secrets'>, ids: Pick<Ids, 'signingKey'>): TokenSecret {
  let known: string | undefined;
  let reading: Promise<string> | undefined;
  return frozen({
    async read() {
      known ??= await (reading ??= openSecret(store, ids).finally(() => {
        reading = undefined;
      }));
      return known;
    },
  });
}

/** Who may run a task now, when several processes share one store. `id` is the task's name. */
export interface LeaseRow extends Row {
  /** One life of one process; null: free. */
  readonly holder: string | null;
  /** When the holder counts as dead unless it renewed the lease. */
  readonly until: Date;
  /** When the last run began, so that a time that two processes share is one run. */
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
 * Counts that only grow: `routing` (changes of domains and routes, so that other hosts notice them), `accounts`,
 * `routes:<account>` (the next number to give out).
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
