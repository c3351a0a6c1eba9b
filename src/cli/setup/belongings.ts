import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { systemClock } from '../../base/clock.ts';
import type { Settings } from '../../settings.ts';
import { type AccountRow, createAccount, createKey, FIRST_KEY } from '../../store/rows/accounts.ts';
import { isClaim, nameOf, proveSenderDomain, senderDomainId } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import { hasStore, tools, withOperations, withStore } from '../open.ts';
import type { Machine } from './machine.ts';
import type { Report } from './report.ts';

// The rows that setup creates in the store: an account, a key that was shown, and a domain.

/** Maximum domains that are read: a host with more is not new. */
const MAX_DOMAINS = 100;

/** The existing rows in the store of a host. */
export interface Known {
  readonly accounts: readonly AccountRow[];
  /** A domain of its accounts, if there is one. */
  readonly domain: string | undefined;
}

export const NOTHING: Known = { accounts: [], domain: undefined };

/** Opens the store as the user of the daemon. */
export const storeOf = <T>(machine: Machine, settings: Settings, use: (store: Store) => Promise<T>): Promise<T> =>
  machine.asOwner(settings.data_dir, () => withStore(settings, use));

/** Reads the store; empty before the daemon has run here. */
export async function knownIn(machine: Machine, settings: Settings): Promise<Known> {
  if (!existsSync(join(settings.data_dir, 'spool')) || !hasStore(settings)) return NOTHING;
  return storeOf(machine, settings, async (store) => {
    const accounts = await store.accounts.many({}, { sort: 'number', limit: 2 });
    const inbound = (await store.inboundDomains.many({}, { sort: 'createdAt', limit: MAX_DOMAINS })).find(
      (row) => !isClaim(row),
    );
    const [sender] = await store.senderDomains.many({ verifiedAt: { range: { gt: new Date(0) } } }, { limit: 1 });
    return { accounts, domain: inbound === undefined ? sender?.domain : nameOf(inbound) };
  });
}

export interface FirstDomain {
  readonly name: string;
  /** Why the domain is only for outgoing mail; undefined: this host also receives its mail. */
  readonly whyNotIn: string | undefined;
}

interface SetupParts {
  readonly machine: Machine;
  readonly settings: Settings;
  readonly report: Report;
}

/** Finds or creates the first account, with a key that was shown. Undefined if there are several accounts. */
export async function openAccount({ machine, settings, report }: SetupParts): Promise<AccountRow | undefined> {
  const found = await storeOf(machine, settings, async (store) => {
    const [first, second] = await store.accounts.many({}, { sort: 'number', limit: 2 });
    if (second) return undefined;
    const account = first ?? (await createAccount(store, 'main', tools));
    // The key of the daemon's first start was not shown: it does not go to the journal.
    const isKnown = (await store.keys.many({ account: account.id })).some(
      ({ label, lastUsedAt, revokedAt }) => !revokedAt && (label !== FIRST_KEY || lastUsedAt),
    );
    const has = isKnown || settings.bootstrap.api_key !== '';
    return { account, isNew: !first, key: has ? undefined : await createKey(store, account.id, 'setup', tools) };
  });
  if (!found) {
    report.step(
      'skipped',
      'account',
      'there are several. To add a key or a domain to one: postern key create or postern domain add, with ' +
        '--account NAME',
    );
    return undefined;
  }
  const { account, isNew, key } = found;
  report.step(isNew ? 'done' : 'already', 'account', account.name);
  if (key === undefined) report.step('already', 'API key', 'there is one already. For another: postern key create');
  else report.step('done', 'API key', 'copy it now, it is shown only once', { key });
  return account;
}

/** The fields of the answer of /inbound/add-domain that are used. */
const ADDED = z.object({ routed: z.boolean(), txt_name: z.string().nullish(), txt_value: z.string().nullish() });

/** Adds a domain for incoming and outgoing mail. The operator's own needs no verification mail. */
export async function addDomain(
  { name: domain, whyNotIn }: FirstDomain,
  { account, machine, settings, report }: SetupParts & { readonly account: AccountRow },
): Promise<void> {
  const inbound = `inbound domain ${domain}`;
  if (whyNotIn !== undefined)
    report.step(
      'skipped',
      inbound,
      `${whyNotIn}. To receive mail of a subdomain here: postern domain add in.${domain}. To move all mail here: ` +
        `postern domain add ${domain}`,
    );
  else if (await storeOf(machine, settings, (store) => store.inboundDomains.one({ id: domain })))
    report.step('already', inbound, 'added');
  else {
    const run = () => withOperations(settings, (call) => call('/inbound/add-domain', account, { domain }));
    const { routed, txt_name: name, txt_value: value } = ADDED.parse(await machine.asOwner(settings.data_dir, run));
    report.step('done', inbound, routed ? 'added' : `added; to prove that it is yours, publish ${name} TXT "${value}"`);
  }
  const wasVerified = await storeOf(machine, settings, async (store) => {
    const before = await store.senderDomains.one({ id: senderDomainId(account.id, domain) });
    if (!before?.verifiedAt) await proveSenderDomain(store, account.id, domain, new Date(systemClock.now()));
    return Boolean(before?.verifiedAt);
  });
  report.step(
    wasVerified ? 'already' : 'done',
    `sender domain ${domain}`,
    'verified; mail From it is signed once its records are published',
  );
}

/** An inbound domain without a route, whose mail is refused. */
export async function unroutedDomain({
  inboundDomains,
  inboundRoutes,
}: Pick<Store, 'inboundDomains' | 'inboundRoutes'>): Promise<string | undefined> {
  for (const row of await inboundDomains.many({}, { sort: 'createdAt', limit: MAX_DOMAINS }))
    if (!isClaim(row) && !(await inboundRoutes.one({ domain: row.domain }))) return row.domain;
  return undefined;
}
