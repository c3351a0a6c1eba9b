import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import { VERSION } from '../../base/version.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection } from './collection.ts';

/** A secret of the whole service, shared by all hosts of a store. `id` is its purpose. */
interface SecretRow extends Row {
  readonly secret: string;
}

export const secrets = collection<SecretRow>()({ name: 'secrets', access: 'none', indexes: [], dates: [] });

/** Signs the tokens in links and return paths (mail/addresses/return-address.ts). */
const TOKENS = 'send-tokens';

/**
 * Reads the secret that signs tokens, creating it on the very first start; if several hosts start at the same time, one
 * row wins and all read it. It never changes: links in sent mail must stay valid for as long as the mail is kept.
 */
export const openSecret = (store: Pick<Store, 'secrets'>, ids: Pick<Ids, 'signingKey'>): Promise<string> =>
  sharedSecret(store, TOKENS, ids.signingKey);

/** The secret for a purpose, made once for all hosts. Throws `StoreAway`. */
export async function sharedSecret(store: Pick<Store, 'secrets'>, id: string, make: () => string): Promise<string> {
  for (;;) {
    const known = await store.secrets.one({ id });
    if (known) return known.secret;
    await store.secrets.insert({ id, secret: make() });
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
  /** When the lease ends unless the holder renews it. */
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
 * Counters that only grow: `routing` (changes of domains and routes, so that other hosts notice them; see
 * `RoutingChangeRow`), `accounts`, `routes:<account>` and `webhooks:<account>` (the last number that was assigned),
 * `format` (`STORE_FORMAT`), `pauses` (changes of pauses.ts), and `commands` (calls of commands to hosts). And
 * `copying` (`COPYING`).
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

/** The form of the whole store. It rises with a change after which an older Postern must not run, and never falls. */
export const STORE_FORMAT = 1;
const FORMAT = 'format';
/** A row of `revisions` from the beginning of a copy into this store to its end (copy.ts). */
export const COPYING = 'copying';

/** This process may not run, or not on this store. The message has the reason and the remedy. */
export class HostRefused extends Error {
  override readonly name = 'HostRefused';
}

/** Returns the format of the store; 0: none yet. Throws `HostRefused` if it is newer, or if a copy has not ended. */
export async function checkFormat({ revisions: rows }: Pick<Store, 'revisions'>): Promise<number> {
  const found = await rows.many({ id: { in: [FORMAT, COPYING] } });
  if (found.some(({ id }) => id === COPYING))
    throw new HostRefused(
      'a copy into this store was interrupted, so rows are missing: run postern store copy again with --continue',
    );
  const format = found.find(({ id }) => id === FORMAT)?.count ?? 0;
  if (format <= STORE_FORMAT) return format;
  throw new HostRefused(
    `this store was upgraded by a newer Postern (store format ${format}; Postern ${VERSION} reads up to ` +
      `${STORE_FORMAT}): upgrade this host, or restore a backup of the store from before the upgrade`,
  );
}

/** Checks the format of the store, and raises it to that of this version. */
export async function raiseFormat(store: Pick<Store, 'revisions'>): Promise<void> {
  const format = await checkFormat(store);
  if (format === STORE_FORMAT) return;
  const row = { count: STORE_FORMAT };
  // One of several hosts writes it; a value written meanwhile is at least as new.
  if ((await store.revisions.insert({ id: FORMAT, ...row })) === 'duplicate')
    await store.revisions.change({ id: FORMAT, count: format }, row);
}

/** A host: one Postern with a queue of its own. `id` is random, and kept in the folder of the queue. */
export interface HostRow extends Row {
  /** `hostname` in its settings. */
  readonly name: string;
  /** Identifies the process, from its start to its end. Null: it was stopped, or found silent by another host. */
  readonly incarnation: string | null;
  /** Rises while the process runs (store/membership.ts). */
  readonly beat: number;
  readonly version: string;
  /** Where the other hosts reach its API; absent or empty: nowhere. */
  readonly url?: string;
  /** The features of rows that it understands (store/features.ts). */
  readonly features: readonly string[];
  // By the clock of the host: for people and for expiry, never compared with another clock to decide who runs.
  readonly startedAt: Date;
  readonly seenAt: Date;
  /** Raised by each takeover of its copies (rows/copies.ts): earlier copies are no longer its own. Absent: 0. */
  readonly epoch?: number;
  /** The host that takes over its copies of earlier epochs; null once it runs again. */
  readonly adopter?: string | null;
  /** When the adopter was named, by the clock of the host that named it. */
  readonly adoptedAt?: Date | null;
  /** The beat after which it was found silent (`isSilent`). Unknown to earlier versions, which leave it unchanged. */
  readonly silentAt?: number | null;
}

/** Whether another host has freed its row, and it has not run since. Otherwise it runs, or was stopped. */
export const isSilent = ({ incarnation, silentAt, beat }: HostRow): boolean =>
  incarnation === null && silentAt === beat;

export const hosts = collection<HostRow>()({
  name: 'hosts',
  access: 'none',
  indexes: [['seenAt'], ['adopter']],
  dates: ['startedAt', 'seenAt', 'adoptedAt'],
  upkeep: true,
});
