import { createLoop } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { RETURN_URL, readReturnMailbox } from '../mail/addresses/return-address.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import type { Lookup } from './types.ts';

interface ReturnAddressSettings {
  /** Domain of reverse-paths and of addresses for unsubscribing, lower-case A-labels. */
  readonly returnDomain: string;
  /** How often new accounts are loaded, in milliseconds. */
  readonly refreshMs: number;
}

interface ReturnAddressDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'accounts'>;
  /** The key that signs our tokens; rejects with `StoreAway` while it cannot be read. */
  readonly secret: () => Promise<string>;
}

/** For mail whose account is known only once it is parsed: reports to fbl@ and abuse@. No account has the empty id. */
const NOBODY = '';
/** The form of mailboxes that name a message. */
const MAY_BE_OURS = /^(?:unsub-)?[0-9a-z]{1,8}-[0-9a-f]{32}-[0-9a-v]{16}$/i;
/** Accounts read at a time. */
const PAGE = 500;

/**
 * Creates the lookup for mailboxes of the return domain. They cannot be guessed, and each names a message of an
 * account. Some are at another domain that their message uses as its return domain; the token covers it. The account
 * of each number is kept in memory, as routes are; numbers are assigned in order, so only those above the highest known
 * one are read.
 */
export function createReturnAddresses(settings: ReturnAddressSettings, deps: ReturnAddressDeps) {
  const { store, clock, log } = deps;
  const domain = toAsciiDomain(settings.returnDomain);
  const accounts = new Map<number, string>();
  let highest = 0;
  let secret: string | undefined;

  async function load(): Promise<void> {
    secret ??= await deps.secret();
    for (;;) {
      const rows = await store.accounts.many({ number: { range: { gt: highest } } }, { sort: 'number', limit: PAGE });
      for (const { id, number } of rows) accounts.set(number, id);
      highest = rows.at(-1)?.number ?? highest;
      if (rows.length < PAGE) return;
    }
  }

  /** Loads an account whose row was written after that of a higher number. */
  async function loadOne(number: number): Promise<void> {
    const row = await store.accounts.one({ number });
    if (row) accounts.set(number, row.id);
  }

  const quietly = (reading: Promise<void>) =>
    reading.catch((error: unknown) => {
      // The store logs its own outages; anything else is a bug.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'return addresses', error });
    });

  const loop = createLoop(clock, async () => {
    await quietly(load());
    return settings.refreshMs;
  });

  function find(mailbox: string, key: string, about: string): Lookup {
    const named = readReturnMailbox(key, mailbox, about);
    if (!named) return { kind: 'no-route' };
    if (named.kind === 'complaints') return matched(NOBODY);
    const account = accounts.get(named.account);
    if (account !== undefined) return matched(account);
    // We signed the address, so the account exists; it is only not loaded yet.
    void quietly(loadOne(named.account));
    return { kind: 'unknown' };
  }

  return frozen({
    /**
     * `matched` with the kind `return`; `no-route` for a mailbox of ours that we did not issue; undefined for any other
     * mailbox at another domain.
     */
    lookup(mailbox: string, name: string): Lookup | undefined {
      const ascii = toAsciiDomain(name);
      const isOwn = domain !== undefined && ascii === domain;
      if (ascii === undefined || (!isOwn && !MAY_BE_OURS.test(mailbox))) return undefined;
      if (secret === undefined) return { kind: 'unknown' };
      const found = find(mailbox, secret, isOwn ? '' : ascii);
      // At other domains, an address that only looks like ours is left to the routes.
      return isOwn || found.kind !== 'no-route' ? found : undefined;
    },
    start: loop.start,
    stop: loop.stop,
  });
}

const matched = (account: string): Lookup => ({
  kind: 'matched',
  match: { kind: 'return', task: 'read', account, routeId: '', pattern: '', url: RETURN_URL },
});
