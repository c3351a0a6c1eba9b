import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import { StoreAway } from '../store/collection.ts';
import { signingKeyId, type SigningKeyRow } from '../store/signing-keys.ts';
import type { Store } from '../store/store.ts';
import type { SigningKeys } from './types.ts';

const ROTATION_MS = 24 * 3600_000;
/** How long a key is used without looking at the store: another host's rotation is noticed by then. */
const FRESH_MS = 10_000;
/** How soon a store that did not answer is asked again. */
const AGAIN_MS = 2000;
/** Keys that are known at a time; above that the one that was read first is forgotten. */
const MOST = 50_000;

interface Known { readonly row: SigningKeyRow; readonly readAt: number }

/**
 * The keys that sign posts. A key belongs to an account and a URL, because that is what consumers of the public
 * ancestor see: two routes to one URL have one key. While the store is away the last known keys go on signing, and no post with
 * a known key waits for an answer: each would hold its place for as long as an operation of the store may take, so that mail would
 * pile up for the time after its return.
 */
export function createSigningKeys(deps: { store: Store; clock: Clock; ids: Ids }): SigningKeys {
  const { store, clock, ids } = deps;
  const known = new Map<string, Known>(); // by `nameOf`
  /** Set while the store is away. */
  let askAgainAt: number | undefined;

  async function read(account: string, url: string): Promise<SigningKeyRow> {
    const id = signingKeyId(account, url);
    const found = await store.signingKeys.one({ id });
    if (found) return found;
    const row = { id, account, url, key: ids.signingKey(), previousKey: null, previousUntil: null, createdAt: new Date(clock.now()) };
    if (await store.signingKeys.insert(row) === 'inserted') return row;
    return read(account, url); // another process was first: its key counts
  }

  async function fresh(account: string, url: string): Promise<SigningKeyRow | undefined> {
    const last = known.get(nameOf(account, url));
    const now = clock.monotonic();
    if (last && now - last.readAt < FRESH_MS) return last.row;
    if (last && askAgainAt !== undefined) {
      // What else may be wrong with the store is heard by the first who waits for it again.
      if (now >= askAgainAt) ask(account, url).catch(() => undefined);
      return last.row;
    }
    return (await ask(account, url)) ?? last?.row;
  }

  /** Answers nothing when the store is away. */
  async function ask(account: string, url: string): Promise<SigningKeyRow | undefined> {
    if (askAgainAt !== undefined) askAgainAt = Number.POSITIVE_INFINITY; // one at a time
    try {
      const row = await read(account, url);
      askAgainAt = undefined;
      return remember(row);
    } catch (error) {
      const away = error instanceof StoreAway;
      askAgainAt = away ? clock.monotonic() + AGAIN_MS : undefined;
      if (!away) throw error;
      return undefined;
    }
  }

  function remember(row: SigningKeyRow): SigningKeyRow {
    const name = nameOf(row.account, row.url);
    known.delete(name); // a Map keeps the order of insertion
    known.set(name, { row, readAt: clock.monotonic() });
    const [first] = known.keys();
    if (known.size > MOST && first !== undefined) known.delete(first);
    return row;
  }

  return Object.freeze({
    async keysFor(account: string, url: string) {
      const row = await fresh(account, url);
      if (!row) return undefined;
      const rotating = row.previousKey !== null && row.previousUntil !== null && clock.now() < row.previousUntil.getTime();
      return rotating && row.previousKey !== null ? [row.key, row.previousKey] : [row.key];
    },
    async rotate(account: string, url: string) {
      const { id, key } = await read(account, url);
      const patch = { key: ids.signingKey(), previousKey: key, previousUntil: new Date(clock.now() + ROTATION_MS) };
      // Only from the key we saw: two rotations at once must not lose the key that consumers hold.
      const changed = await store.signingKeys.change({ id, key }, patch);
      return remember(changed ?? await read(account, url)).key;
    },
    async carryOver(account: string, from: string, to: string) {
      const { key, previousKey, previousUntil } = await read(account, from);
      const row = { id: signingKeyId(account, to), account, url: to, key, previousKey, previousUntil, createdAt: new Date(clock.now()) };
      // There already: a webhook or a route with that URL signs with its own key, which its consumer holds.
      if (await store.signingKeys.insert(row) === 'inserted') remember(row);
    },
  });
}

/** As good as the id of the row, without its hash, which is for the store. */
function nameOf(account: string, url: string): string {
  return `${account}\0${url}`;
}
