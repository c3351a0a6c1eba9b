import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { toAsciiDomain } from '../mail/address.ts';
import { RETURN_URL, readReturnMailbox } from '../mail/return-address.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import type { Lookup, ReturnAddresses } from './types.ts';

interface ReturnAddressSettings {
  /** Domain of reverse-paths and of addresses for unsubscribing, lower-case A-labels. */
  readonly returnDomain: string;
  /** How often new accounts are looked for, in milliseconds. */
  readonly refreshMs: number;
}

interface ReturnAddressDeps {
  readonly store: Pick<Store, 'accounts'>;
  /** What our tokens are signed with; rejects with `StoreAway` while it cannot be read. */
  readonly secret: () => Promise<string>;
  readonly clock: Clock;
  readonly log: Log;
}

/** The account of mail that names none before it is read: reports to fbl@ and abuse@. No account has the empty id. */
const NOBODY = '';
/** What a mailbox looks like that may name a message. */
const MAY_BE_OURS = /^(?:unsub-)?[0-9a-z]{1,8}-[0-9a-f]{32}-[0-9a-v]{16}$/i;
/** Accounts that are read at a time. */
const PAGE = 500;

/**
 * The mailboxes of the return domain: nobody can guess one, and each names a message of an account. Some are at another
 * domain, which their message has for itself; the token says at which. Which account stands behind a number is kept in
 * memory, as routes are: numbers are given out in order, so only those above the last one known are read again.
 */
export function createReturnAddresses(
  settings: ReturnAddressSettings,
  deps: ReturnAddressDeps,
): ReturnAddresses & Service {
  const { store, clock, log } = deps;
  const domain = toAsciiDomain(settings.returnDomain);
  const accounts = new Map<number, string>();
  let highest = 0;
  let secret: string | undefined;
  let stopped = false;
  let cancel = () => {};

  async function load(): Promise<void> {
    secret ??= await deps.secret();
    for (;;) {
      const rows = await store.accounts.many({ number: { range: { gt: highest } } }, { sort: 'number', limit: PAGE });
      for (const { id, number } of rows) accounts.set(number, id);
      highest = rows.at(-1)?.number ?? highest;
      if (rows.length < PAGE) return;
    }
  }

  /** An account whose row came after that of a higher number. */
  async function loadOne(number: number): Promise<void> {
    const row = await store.accounts.one({ number });
    if (row) accounts.set(number, row.id);
  }

  const quietly = (reading: Promise<void>) =>
    reading.catch((error: unknown) => {
      // The store says itself, once, that it is away; anything else is a fault of ours.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'return addresses', error });
    });

  async function watch(): Promise<void> {
    await quietly(load());
    if (!stopped) cancel = clock.after(settings.refreshMs, () => void watch());
  }

  function find(mailbox: string, key: string, about: string): Lookup {
    const named = readReturnMailbox(key, mailbox, about);
    if (!named) return { kind: 'no-route' };
    if (named.kind === 'complaints') return matched(NOBODY);
    const account = accounts.get(named.account);
    if (account !== undefined) return matched(account);
    // We signed it, so there is such an account: not known is not the same as not there.
    void quietly(loadOne(named.account));
    return { kind: 'unknown' };
  }

  return frozen({
    lookup(mailbox, name): Lookup | undefined {
      const ascii = toAsciiDomain(name);
      const isOwn = domain !== undefined && ascii === domain;
      if (ascii === undefined || (!isOwn && !MAY_BE_OURS.test(mailbox))) return undefined;
      if (secret === undefined) return { kind: 'unknown' };
      const found = find(mailbox, secret, isOwn ? '' : ascii);
      // What only looks like one of ours at another domain is a matter of routes.
      return isOwn || found.kind !== 'no-route' ? found : undefined;
    },
    start: () => watch(),
    async stop() {
      stopped = true;
      cancel();
    },
  });
}

const matched = (account: string): Lookup => ({
  kind: 'matched',
  match: { kind: 'return', task: 'read', account, routeId: '', pattern: '', url: RETURN_URL },
});
