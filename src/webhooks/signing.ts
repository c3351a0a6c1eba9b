import { createHmac } from 'node:crypto';
import { type Clock, DAY_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import { createCachedReads } from '../store/cached-reads.ts';
import { type SigningKeyRow, signingKeyId } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';

/** A signature computed while the bytes are written. */
interface RunningSignature {
  update(bytes: Uint8Array): void;
  /** The text of the signature header. Ends the computation. */
  digest(): string;
}

/**
 * The value of X-Mandrill-Signature for a form: base64 of HMAC-SHA1 over the URL exactly as configured,
 * then the name and decoded value of every parameter, sorted by name, without separators.
 */
export function mandrillSignature(key: string, url: string, params: Readonly<Record<string, string>>): string {
  const hmac = createHmac('sha1', key).update(url);
  for (const name of Object.keys(params).sort()) hmac.update(name).update(params[name] ?? '');
  return hmac.digest('base64');
}

/** As `mandrillSignature`, for a form of one parameter whose decoded value (UTF-8) arrives in pieces. */
export function runningMandrillSignature(key: string, url: string, name: string): RunningSignature {
  const hmac = createHmac('sha1', key).update(url).update(name);
  return {
    update(bytes) {
      hmac.update(bytes);
    },
    digest: () => hmac.digest('base64'),
  };
}

/**
 * The value of the Standard Webhooks header `webhook-signature`: for each key `v1,` and the base64 of HMAC-SHA256 over
 * `id.timestamp.body`, separated by spaces. The characters of a key are its bytes.
 */
export function standardSignature(
  keys: readonly string[],
  id: string,
  timestampSeconds: number,
  body: Uint8Array,
): string {
  const signature = runningStandardSignature(keys, id, timestampSeconds);
  signature.update(body);
  return signature.digest();
}

/** As `standardSignature`, for a body that arrives in pieces. */
export function runningStandardSignature(
  keys: readonly string[],
  id: string,
  timestampSeconds: number,
): RunningSignature {
  const hmacs = keys.map((key) => createHmac('sha256', key).update(`${id}.${timestampSeconds}.`));
  return {
    update(bytes) {
      for (const hmac of hmacs) hmac.update(bytes);
    },
    digest: () => hmacs.map((hmac) => `v1,${hmac.digest('base64')}`).join(' '),
  };
}

/** A signing key in the form that Standard Webhooks libraries expect: `whsec_` and the base64 of its bytes. */
export function toSigningSecret(key: string): string {
  return `whsec_${Buffer.from(key, 'utf8').toString('base64')}`;
}

const ROTATION_MS = DAY_MS;
/** Milliseconds for which a key is cached: the delay until another host's rotation is seen. */
const FRESH_MS = 10_000;

/**
 * The keys that sign posts to an endpoint, the current one first; two during a rotation. A key belongs to an account
 * and a URL, as consumers of the public ancestor expect: two routes to one URL share a key. While the store is
 * unavailable, the last known keys are used.
 */
export type SigningKeys = ReturnType<typeof createSigningKeys>;

export function createSigningKeys({ store, clock, ids }: { store: Store; clock: Clock; ids: Ids }) {
  const known = createCachedReads((name) => read(...partsOf(name)), FRESH_MS, { clock });

  async function read(account: string, url: string): Promise<SigningKeyRow> {
    const id = signingKeyId(account, url);
    const found = await store.signingKeys.one({ id });
    if (found) return found;
    const row = {
      id,
      account,
      url,
      key: ids.signingKey(),
      previousKey: null,
      previousUntil: null,
      createdAt: new Date(clock.now()),
    };
    if ((await store.signingKeys.insert(row)) === 'inserted') return row;
    return read(account, url); // another process was first: use its key
  }

  function keysOf({ key, previousKey, previousUntil }: SigningKeyRow): readonly string[] {
    const rotating = previousKey !== null && previousUntil !== null && clock.now() < previousUntil.getTime();
    return rotating ? [key, previousKey] : [key];
  }

  return frozen({
    /** Creates the key on first use. `undefined` if the store is unavailable and the key is not in memory. */
    async keysFor(account: string, url: string) {
      const row = await known.of(nameOf(account, url));
      return row && keysOf(row);
    },
    /** As `keysFor`, but undefined if the URL has no key; creates none. Throws `StoreAway`. */
    async keysIfAny(account: string, url: string) {
      const row = await store.signingKeys.one({ id: signingKeyId(account, url) });
      return row && keysOf(row);
    },
    /** Creates and returns a new key; the old one is used as well for 24 hours. */
    async rotate(account: string, url: string) {
      const { id, key } = await read(account, url);
      const patch = { key: ids.signingKey(), previousKey: key, previousUntil: new Date(clock.now() + ROTATION_MS) };
      // Only from the key we read: concurrent rotations must not lose the key that consumers have.
      const changed = await store.signingKeys.change({ id, key }, patch);
      const row = changed ?? (await read(account, url));
      known.keep(nameOf(account, url), row);
      return row.key;
    },
    /** Copies the key of one URL to the URL that replaces it, unless that has a key of its own. */
    async carryOver(account: string, from: string, to: string) {
      const { key, previousKey, previousUntil } = await read(account, from);
      const row = {
        id: signingKeyId(account, to),
        account,
        url: to,
        key,
        previousKey,
        previousUntil,
        createdAt: new Date(clock.now()),
      };
      // If it exists, a webhook or route with that URL keeps signing with the key that its consumer has.
      if ((await store.signingKeys.insert(row)) === 'inserted') known.keep(nameOf(account, to), row);
    },
  });
}

/** A cache key, equivalent to the row id without its hash. */
function nameOf(account: string, url: string): string {
  return `${account}\0${url}`;
}

function partsOf(name: string): [account: string, url: string] {
  const at = name.indexOf('\0');
  return [name.slice(0, at), name.slice(at + 1)];
}
