import { isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { CollectionSpec, Row } from './collection.ts';

/**
 * How a custom name in the reverse DNS stands. `pending`: asked for, and the PTR record has not named it yet;
 * `invalid`: it did not do so in time, or names it no more.
 */
export type CustomState = 'pending' | 'valid' | 'invalid';

/**
 * A sending address, in the operator's inventory (account '') or dedicated to an account. `id` is the address as `toIpId`
 * writes it. Which pool it is in stands in the account's placement (placements.ts), never here.
 */
export interface IpRow extends Row {
  readonly account: string;
  /** The name that the reverse DNS of the address gives, as far as we know; '' in the inventory. */
  readonly domain: string;
  /** The operator's own name for the address; null: one made of the address and our hostname. */
  readonly homeDomain: string | null;
  /** When the account got it; in the inventory, when it was added or came back. */
  readonly createdAt: Date;
  /** In the inventory: not given to anybody before. */
  readonly freeAt: Date | null;
  /**
   * Chosen anew whenever it enters the inventory, and the token of the request when it is given away: who wants to take it
   * names what stood here when it was chosen, so that one who is late takes nothing.
   */
  readonly claim: string;
  /** Given back by the account, which sees it no more; a task returns it to the inventory. */
  readonly releasedAt: Date | null;
  /** Both null: not warming up. */
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
  readonly customDomain: string | null;
  readonly customState: CustomState | null;
  readonly customError: string | null;
  /** When the custom name was asked for. */
  readonly customSetAt: Date | null;
  /** When the reverse DNS is asked next; null: there is nothing to ask. */
  readonly customTestAt: Date | null;
}

export const ips: CollectionSpec<IpRow> = {
  name: 'ips',
  indexes: [['account', 'releasedAt'], ['account', 'freeAt'], ['releasedAt'], ['warmupEndAt'], ['customTestAt']],
  dates: ['createdAt', 'freeAt', 'releasedAt', 'warmupStartAt', 'warmupEndAt', 'customSetAt', 'customTestAt'],
};

/** The account of addresses that belong to the operator. */
export const INVENTORY = '';

/** What every address begins with: no warmup, no custom name, nobody's wish to give it back. */
export const PLAIN_IP = {
  releasedAt: null,
  warmupStartAt: null,
  warmupEndAt: null,
  customDomain: null,
  customState: null,
  customError: null,
  customSetAt: null,
  customTestAt: null,
} as const satisfies Partial<IpRow>;

/**
 * An IP address in its one form: IPv6 compressed and in lower case, an IPv4-mapped one as IPv4. Undefined for what is none;
 * one with a zone is none, because it means another address on every host.
 */
export function toIpId(text: string): string | undefined {
  const bare = text.trim();
  if (isIPv4(bare)) return bare; // ipaddr.js would also take `1`, `0x7f.1` and `010.0.0.1`
  if (!isIPv6(bare) || bare.includes('%')) return undefined;
  // By way of a URL, whose host is all hexadecimal: ipaddr.js takes the tail of `::1.2.3.4` for a mapped IPv4 address.
  return ipaddr.process(new URL(`http://[${bare}]`).hostname.slice(1, -1)).toString();
}

/** How long the PTR record may take to name a custom domain before the change counts as failed and another may be asked for. */
const PENDING_MS = 7 * 86_400_000;

/** What the record says while the PTR record does not name the custom domain yet. */
export const PENDING_ERROR = 'Pending: the reverse DNS of the IP does not name the domain yet';

/** Whether a change of the custom name is under way. */
export function isPending(
  { customState, customSetAt }: Pick<IpRow, 'customState' | 'customSetAt'>,
  now: Date,
): boolean {
  return customState === 'pending' && customSetAt !== null && now.getTime() < customSetAt.getTime() + PENDING_MS;
}

/** The name of an address that has none of its own: `192-0-2-1.mx.example.com`. */
export function fallbackDomain(id: string, hostname: string): string {
  // All digits of an IPv6 address: no label may begin or end with a dash, as `::1` would make it.
  const label = isIPv6(id)
    ? Buffer.from(ipaddr.parse(id).toByteArray())
        .toString('hex')
        .replaceAll(/(?<=.)(?=(?:.{4})+$)/g, '-')
    : id.replaceAll('.', '-');
  return `${label}.${hostname}`;
}
