import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { checkA } from '../../dns/checks.ts';
import { RESERVED_WORDS } from '../../mail/addresses/reserved-names.ts';
import { reputationOf } from '../../mail/stats.ts';
import { isWarming, WARMUP_CURVE, WARMUP_DAYS, warmupEnd } from '../../sending/transport/sources.ts';
import { pagesById } from '../../store/pages.ts';
import {
  createPoolFinder,
  DEFAULT_POOL,
  type IpRow,
  isPending,
  PENDING_ERROR,
  type PlacementRow,
  type PoolRow,
  poolId,
  readPlacement,
  toIpId,
} from '../../store/rows/ips.ts';
import type { AccountParts } from '../account/account.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { bool, domainName, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';
import { recentOf, totalOf } from './stats.ts';

/** An IP address in any notation. Other text is treated as an address that the account does not have. */
export const ipParam = text(64)
  .transform((value) => toIpId(value) ?? value)
  .describe('the IP address, in any notation');

const MAX_POOL = 255;

export const knownPool = text(MAX_POOL)
  .transform((value) => value.trim())
  .describe('name of the pool');

export const ipRecord = record('dedicated IP record', {
  ip: str('the IP address'),
  created_at: time('when the account got it'),
  pool: str('name of the pool it is in'),
  domain: str('reverse DNS domain of the IP'),
  custom_dns: z
    .object({
      enabled: bool('whether a custom domain is configured'),
      valid: bool('whether the reverse DNS names it and it points to the IP'),
      error: strOrNull('why it is not valid, or that the change is pending'),
    })
    .describe("the account's own domain in the reverse DNS"),
  warmup: z
    .object({
      warming_up: bool('whether the IP is warming up'),
      start_at: timeOrNull('when the warmup began', 'null when there is none'),
      end_at: timeOrNull('when it ends, 30 days later', 'null when there is none'),
    })
    .describe('a period of 30 days in which a growing share of mail is sent from the IP'),
});

/** Creates the conversion from rows to records, for the account's placement and the current time. */
export function createIpRecorder(placement: PlacementRow, now: Date): (row: IpRow) => z.output<typeof ipRecord> {
  const poolOf = createPoolFinder(placement);
  return (row) => ({
    ip: row.id,
    created_at: toTime(row.createdAt),
    pool: poolOf(row.id),
    domain: row.domain,
    custom_dns: { enabled: row.customDomain !== null, valid: row.customState === 'valid', error: row.customError },
    warmup: toWarmup(row, now),
  });
}

/** A warmup whose end has passed is over, even if the task has not cleared it yet. */
function toWarmup({ warmupStartAt, warmupEndAt }: IpRow, now: Date) {
  const warming = isWarming(warmupEndAt, now);
  const shown = (at: Date | null) => (warming ? toTime(at) : null);
  return { warming_up: warming, start_at: shown(warmupStartAt), end_at: shown(warmupEndAt) };
}

const reverseDomain = domainName.describe('the domain name, such as `out.example.com`');

/** All addresses of the account, sorted as text. */
export function ownIps({ store }: Pick<AccountParts, 'store'>): Promise<IpRow[]> {
  return store.ips.many({ releasedAt: null }, { sort: 'id' });
}

/** Finds a pool by name. The default pool is created when first looked up, with the creation time of the account. */
export async function findPool(name: string, parts: AccountParts): Promise<PoolRow | undefined> {
  const row = await parts.store.pools.one({ id: poolId(parts.account.id, name) });
  return row ?? (name === DEFAULT_POOL ? makePool(name, parts.account.createdAt, parts) : undefined);
}

/** Creates a pool, or returns the one that was created meanwhile. */
export async function makePool(
  name: string,
  createdAt: Date,
  { account, store, newToken }: AccountParts,
): Promise<PoolRow> {
  const row = { id: poolId(account.id, name), name, token: newToken(), createdAt };
  for (;;) {
    if ((await store.pools.insert(row)) === 'inserted') return { ...row, account: account.id };
    const present = await store.pools.one({ id: row.id });
    if (present) return present; // otherwise it was deleted meanwhile
  }
}

const NOT_FOR_YOU = 'Dedicated IPs are only available for accounts that pay for them.';

async function showIp(row: IpRow, { store, now }: Call<never>) {
  return createIpRecorder(await readPlacement(store), now())(row);
}

/** Returns the row of an address. Throws Unknown_IP if the account does not have it. */
async function findIp(ip: string, { store, orRefuse }: Call<'Unknown_IP'>): Promise<IpRow> {
  return orRefuse(await store.ips.one({ id: ip, releasedAt: null }), 'Unknown_IP', ip);
}

const list = listOperation({
  path: '/ips/list',
  access: 'settings',
  summary: 'Lists the dedicated IPs of the account.',
  notes: 'Returns all of them, sorted as text; `after` continues after one.',
  params: {
    after: optional(ipParam.describe('continue after this IP (not part of the Mandrill API)')),
  },
  returns: z.array(ipRecord),
  async *pages({ after = '' }, { store, now }) {
    const toRecord = createIpRecorder(await readPlacement(store), now());
    const rows = pagesById(store.ips, { filter: { releasedAt: null }, after });
    yield* mapPages(rows, (page) => page.map(toRecord));
  },
});

/** Operations on one address have these in common. */
const ofIp = {
  params: { ip: ipParam },
  returns: ipRecord,
  errors: ['Unknown_IP'],
  example: { ip: '192.0.2.1' },
} as const;

const info = operation({
  path: '/ips/info',
  access: 'settings',
  summary: 'Shows a dedicated IP.',
  ...ofIp,
  handle: async ({ ip }, call) => showIp(await findIp(ip, call), call),
});

const provision = operation({
  path: '/ips/provision',
  access: 'settings',
  summary: 'Requests a dedicated IP.',
  notes:
    'Requests are served from the addresses of the operator, oldest first, within 24 hours if any are ' +
    'available. Only one request may be pending. ' +
    `Without a pool, or if the pool was deleted in the meantime, the IP is placed in \`${DEFAULT_POOL}\`. The ` +
    'account must have sent mail, and have a reputation that the operator sets (40 by default).',
  params: {
    warmup: optional(bool('whether to begin with a warmup; false if omitted')),
    pool: optional(knownPool.describe('id of the pool, which is its name; null for the default pool')),
  },
  returns: z.object({
    requested_at: time('when the IP was requested'),
  }),
  errors: ['IP_ProvisionLimit', 'Unknown_Pool', 'PaymentRequired', 'NoSendingHistory', 'PoorReputation'],
  example: { warmup: true },
  async handle({ warmup = false, pool = DEFAULT_POOL }, call) {
    const { store, account, now, refuse } = call;
    await allowProvisioning(call);
    if (!(await findPool(pool, call))) throw refuse('Unknown_Pool', pool);
    const requestedAt = now();
    const row = { id: account.id, token: call.newToken(), pool, warmup, requestedAt, ip: null, claim: null };
    if ((await store.ipRequests.insert(row)) === 'duplicate') throw refuse('IP_ProvisionLimit');
    return { requested_at: toTime(requestedAt) };
  },
});

const withdraw = operation({
  path: '/ips/cancel-provision',
  access: 'settings',
  summary: 'Cancels the pending request for a dedicated IP.',
  notes:
    'If an IP has already been chosen, it is still assigned; /ips/delete returns it. A new request can be made ' +
    'immediately.',
  extension: true,
  params: {},
  returns: z.object({
    withdrawn: bool('whether a request was cancelled; false: none was pending'),
    requested_at: timeOrNull('when that IP was requested', 'null: none was pending'),
  }),
  async handle(_, { store, account }) {
    // One atomic change: the task that chooses an address sets it in the row in one atomic change, too.
    const row = await store.ipRequests.remove({ id: account.id, ip: null });
    return { withdrawn: row !== undefined, requested_at: toTime(row?.requestedAt) };
  },
});

async function allowProvisioning({
  store,
  account,
  settings,
  now,
  refuse,
}: Call<'PaymentRequired' | 'NoSendingHistory' | 'PoorReputation'>): Promise<void> {
  if (settings.ips.provisioning === 'off') throw refuse('PaymentRequired', NOT_FOR_YOU);
  const total = await totalOf(store, 'account', account.id);
  if (!total || total.sent === 0) throw refuse('NoSendingHistory');
  const reputation = reputationOf(await recentOf(store, 'account', account.id, now()));
  if (reputation < settings.ips.minReputation) throw refuse('PoorReputation');
}

const startWarmup = operation({
  path: '/ips/start-warmup',
  access: 'settings',
  summary: `Begins the warmup of a dedicated IP: over ${WARMUP_DAYS} days a growing share of mail is sent from it.`,
  notes:
    `${WARMUP_CURVE} The rest is sent from other IPs of its pool or from shared ones. If the IP is already ` +
    'warming up, nothing changes.',
  ...ofIp,
  async handle({ ip }, call) {
    const now = call.now();
    const begin = { warmupStartAt: now, warmupEndAt: warmupEnd(now) };
    const begun =
      (await call.store.ips.change({ id: ip, releasedAt: null, warmupEndAt: null }, begin)) ??
      // A warmup that is over but has not been cleared yet.
      (await call.store.ips.change({ id: ip, releasedAt: null, warmupEndAt: { range: { lte: now } } }, begin));
    return showIp(begun ?? (await findIp(ip, call)), call);
  },
});

const cancelWarmup = operation({
  path: '/ips/cancel-warmup',
  access: 'settings',
  summary: 'Ends the warmup of a dedicated IP: all mail may be sent from it immediately.',
  ...ofIp,
  async handle({ ip }, call) {
    const row = await call.store.ips.change({ id: ip, releasedAt: null }, { warmupStartAt: null, warmupEndAt: null });
    return showIp(call.orRefuse(row, 'Unknown_IP', ip), call);
  },
});

const remove = operation({
  path: '/ips/delete',
  access: 'settings',
  summary: 'Returns a dedicated IP. This cannot be undone.',
  notes:
    'The address is held back for a while before another account gets it. An IP that the account does not have ' +
    'is not an error: `deleted` is false.',
  params: { ip: ipParam },
  returns: z.object({
    ip: str('the IP address'),
    deleted: bool('whether the account had it'),
  }),
  example: { ip: '192.0.2.2' },
  async handle({ ip }, { store, now }) {
    // Accounts cannot reach the inventory: a task moves the address there.
    return { ip, deleted: (await store.ips.change({ id: ip, releasedAt: null }, { releasedAt: now() })) !== undefined };
  },
});

export const ipOperations = [list, info, provision, withdraw, startWarmup, cancelWarmup, remove];

const checkCustomDns = operation({
  path: '/ips/check-custom-dns',
  access: 'settings',
  summary: 'Checks whether a domain can be the custom reverse DNS of a dedicated IP.',
  notes: 'It can, if its A record (AAAA for an IPv6 address) points to the IP.',
  params: { ip: ipParam, domain: reverseDomain },
  returns: z.object({
    valid: bool('whether the domain has an A record that points to the IP'),
    error: strOrNull('why not'),
  }),
  errors: ['Unknown_IP'],
  example: { ip: '192.0.2.1', domain: 'out.example.com' },
  async handle({ ip, domain }, call) {
    const row = await findIp(ip, call);
    if (call.names.isOurs(domain)) return { valid: false, error: RESERVED_WORDS.ours };
    const found = await checkA(call.resolver, domain, row.id);
    return found === 'unknown'
      ? { valid: false, error: `The DNS of ${domain} does not respond; please try again later` }
      : found;
  },
});

const setCustomDns = operation({
  path: '/ips/set-custom-dns',
  access: 'settings',
  summary: 'Configures a custom domain for the reverse DNS of a dedicated IP.',
  notes:
    'Its A record (AAAA for an IPv6 address) must point to the IP. The change is pending until the PTR record ' +
    'of the IP, which the operator sets, names the domain; then ' +
    '`custom_dns.valid` is true and `domain` is the new one. A change that is not valid after 7 days has ' +
    'failed, and another may be made. The records are tested again every day.',
  params: { ip: ipParam, domain: reverseDomain },
  returns: ipRecord,
  errors: ['Unknown_IP', 'Invalid_CustomDNS', 'Invalid_CustomDNSPending', 'ServiceUnavailable'],
  example: { ip: '192.0.2.1', domain: 'out.example.com' },
  async handle({ ip, domain }, call) {
    const row = await findIp(ip, call);
    // An address that greets with a name of the operator would be taken for the operator.
    if (call.names.isOurs(domain)) throw call.invalid('domain', RESERVED_WORDS.ours);
    if (isPending(row, call.now())) throw call.refuse('Invalid_CustomDNSPending');
    if (row.customState === 'valid' && row.customDomain === domain) return showIp(row, call);
    const found = await checkA(call.resolver, domain, row.id);
    if (found === 'unknown') throw call.refuse('ServiceUnavailable');
    if (!found.valid) throw call.refuse('Invalid_CustomDNS');
    return showIp(await begin(row, domain, call), call);
  },
});

/**
 * Begins a change if the row is unchanged since it was read: of concurrent calls, one succeeds and the others find the
 * change pending.
 */
async function begin(
  row: IpRow,
  domain: string,
  call: Call<'Unknown_IP' | 'Invalid_CustomDNSPending'>,
): Promise<IpRow> {
  const { customState, customSetAt } = row;
  const now = call.now();
  const changed = await call.store.ips.change(
    { id: row.id, releasedAt: null, customState, customSetAt },
    {
      customDomain: domain,
      customState: 'pending',
      customError: PENDING_ERROR,
      customSetAt: now,
      customTestAt: now,
    },
  );
  if (changed) return changed;
  const present = await findIp(row.id, call);
  if (isPending(present, now)) throw call.refuse('Invalid_CustomDNSPending');
  return begin(present, domain, call);
}

export const customDns = [checkCustomDns, setCustomDns];
