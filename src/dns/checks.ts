import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { pattern } from '../base/pattern.ts';
import { type Resolver, sameName } from './types.ts';

/** The result of a check. `unknown`: the DNS lookup failed, and the previous result still holds. */
type Checked = typeof VALID | Invalid | 'unknown';

const VALID = { valid: true, error: null } as const;
type Invalid = { readonly valid: false; readonly error: string };
const invalid = (error: string): Invalid => ({ valid: false, error });

/** Characters of foreign records in an error. */
const MAX_SHOWN = 300;

/**
 * Checks whether an MX record of the domain names one of our hosts. RFC 5321 section 5.1 would also deliver to the
 * address of a domain without MX; an inbound domain needs an explicit MX, because nothing else shows that it is meant
 * for us.
 */
export async function checkMx(resolver: Resolver, domain: string, hosts: readonly string[]): Promise<Checked> {
  const answer = await resolver.resolve(domain, 'MX');
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind === 'nxdomain') return invalid(`The domain ${domain} does not exist`);
  if (answer.kind !== 'records') return invalid(`The domain ${domain} has no MX record`);
  // Sorted, because many servers answer in another order each time.
  const names = answer.records
    .toSorted((a, b) => a.priority - b.priority || (a.exchange < b.exchange ? -1 : 1))
    .map((record) => record.exchange.replace(/\.$/, ''));
  if (names.every((name) => name === '')) return invalid(`The domain ${domain} accepts no mail (null MX, RFC 7505)`);
  if (names.some((name) => hosts.some((host) => sameName(name, host)))) return VALID;
  const seen = names.join(', ').slice(0, MAX_SHOWN);
  return invalid(`The MX records of ${domain} point to ${seen}, not to ${hosts.join(' or ')}`);
}

/**
 * Whether a name points to a host: by a CNAME, or because all its addresses are the host's. A failed lookup counts as
 * no. `host` may be an IP address.
 */
export async function pointsTo(resolver: Resolver, name: string, host: string): Promise<boolean> {
  if (await isAliasOf(resolver, name, [host])) return true;
  const [found, own] = await Promise.all([resolver.addresses(name), resolver.addresses(host)]);
  if (found.kind !== 'records' || own.kind !== 'records' || found.records.length === 0) return false;
  return found.records.every((address) => own.records.includes(address));
}

/** Like `pointsTo`, but returns a record check: the error, or the TTL for which caches may hold the previous record. */
export async function checkPointsTo(resolver: Resolver, name: string, host: string): Promise<RecordCheck> {
  const alias = await resolver.resolve(name, 'CNAME');
  if (alias.kind === 'records' && alias.records.some((target) => sameName(target, host)))
    return { valid: true, error: null, ttl: alias.ttl };
  const [found, own] = await Promise.all([resolver.addresses(name), resolver.addresses(host)]);
  if (alias.kind === 'failure' || found.kind === 'failure' || own.kind === 'failure') return 'unknown';
  if (found.kind === 'nxdomain' && alias.kind !== 'records')
    return { valid: false, error: `The domain ${name} does not exist.` };
  const same =
    found.kind === 'records' &&
    own.kind === 'records' &&
    found.records.every((address) => own.records.includes(address));
  if (same) return { valid: true, error: null, ttl: found.ttl };
  const where = alias.kind === 'records' ? `is an alias of ${alias.records.join(', ')}` : 'has no CNAME record';
  return { valid: false, error: `The domain ${name} ${where}; it must be an alias of ${host}.` };
}

/**
 * Whether mail to a name is delivered to one of our hosts: an MX names one, or there is no MX and the name is an alias
 * of one (RFC 5321 section 5.1). A failed lookup counts as no.
 */
export async function receivesMailAt(resolver: Resolver, name: string, hosts: readonly string[]): Promise<boolean> {
  const exchanges = await resolver.resolve(name, 'MX');
  if (exchanges.kind === 'none') return isAliasOf(resolver, name, hosts);
  const check = exchanges.kind === 'records' ? await checkMx(resolver, name, hosts) : 'unknown';
  return check !== 'unknown' && check.valid;
}

/**
 * Whether mail can be sent to a domain: it has an MX that is not null (RFC 7505), or no MX but an address (RFC 5321
 * section 5.1). `unknown`: the DNS lookup failed.
 */
export async function acceptsMail(resolver: Resolver, name: string): Promise<boolean | 'unknown'> {
  const exchanges = await resolver.resolve(name, 'MX');
  if (exchanges.kind === 'records') return exchanges.records.some(({ exchange }) => exchange.replace(/\.$/, '') !== '');
  if (exchanges.kind !== 'none') return exchanges.kind === 'nxdomain' ? false : 'unknown';
  const addresses = await resolver.addresses(name);
  return addresses.kind === 'failure' ? 'unknown' : addresses.kind === 'records' && addresses.records.length > 0;
}

async function isAliasOf(resolver: Resolver, name: string, hosts: readonly string[]): Promise<boolean> {
  const alias = await resolver.resolve(name, 'CNAME');
  return alias.kind === 'records' && alias.records.some((target) => hosts.some((host) => sameName(target, host)));
}

/**
 * The result of a record check. A valid one has its TTL in seconds: for that long caches may hold the previous record.
 * `unknown`: the DNS lookup failed, and the previous result still holds.
 */
export type RecordCheck = { readonly valid: true; readonly error: null; readonly ttl: number } | Invalid | 'unknown';

/** RFC 7208 section 4.6.4: limits on terms that need DNS lookups, and on lookups without answer, in all together. */
const MAX_LOOKUPS = 10;
const MAX_VOID = 2;
const TOO_MANY =
  `This domain's SPF record needs more than ${MAX_LOOKUPS} DNS lookups to reach ours, and receivers stop at ` +
  'that limit.';
const TOO_VOID =
  `This domain's SPF record names more than ${MAX_VOID} hosts that are not in the DNS before it reaches ours, ` +
  'and receivers stop at that limit.';

/**
 * Checks whether the SPF record of a domain includes ours with the result pass, directly or through the records that it
 * includes or redirects to. Records are evaluated as a receiver does for a sender that only our record covers: from
 * left to right, and within the limits of RFC 7208.
 */
export async function checkSpf(resolver: Resolver, domain: string, include: string): Promise<RecordCheck> {
  let [lookups, voids] = [MAX_LOOKUPS, MAX_VOID];

  /** `before` is the smallest TTL of the records that led here. Undefined: our record is not included. */
  async function search(name: string, before: number, called: string): Promise<RecordCheck | undefined> {
    const answer = await resolver.resolve(name, 'TXT');
    if (answer.kind === 'failure') return 'unknown';
    if (answer.kind === 'nxdomain' && name === domain) return invalid('This domain does not exist.');
    const records = answer.kind === 'records' ? answer.records.filter((text) => /^v=spf1(?: |$)/i.test(text)) : [];
    const [record, second] = records;
    if (answer.kind !== 'records' || record === undefined) return invalid(`${called} doesn't have an SPF record.`);
    if (second !== undefined)
      return invalid(`${called} has more than one SPF record. Receivers ignore them all until there is only one.`);
    const { terms, broken } = readTerms(record);
    if (broken !== undefined)
      return invalid(
        `${called === THIS ? "This domain's SPF record" : `The SPF record of ${called}`} has a syntax error in ` +
          `"${broken.slice(0, 80)}".`,
      );
    const ttl = Math.min(before, answer.ttl);
    return (name === domain ? faultOfInclude(terms, include) : undefined) ?? follow(name, terms, ttl);
  }

  async function follow(name: string, terms: readonly Term[], ttl: number): Promise<RecordCheck | undefined> {
    for (const term of terms) {
      if (term.name === 'all') return undefined; // `all` overrides a redirect (RFC 7208 section 6.1)
      if (COUNTED.has(term.name) && --lookups < 0) return invalid(TOO_MANY);
      const isOurs = (term.name === 'include' || term.name === 'redirect') && sameName(term.target, include);
      if (isOurs && term.qualifier === '+') return { valid: true, error: null, ttl };
      const found = isOurs ? undefined : await evaluate(name, term, ttl);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Evaluates a term that does not match us. A macro expands differently for each message. */
  async function evaluate(domain: string, { qualifier, name, target }: Term, ttl: number) {
    if (target.includes('%')) return undefined;
    if (name === 'a' || name === 'mx' || name === 'exists') return lookUp(name, target === '' ? domain : target);
    if (name !== 'include' && name !== 'redirect') return undefined;
    const found = await search(target, ttl, `${target}, which its SPF record names,`);
    // An included record counts for us only if it passes, but its errors are errors in any case.
    return qualifier !== '+' && found !== 'unknown' && found?.valid === true ? undefined : found;
  }

  async function lookUp(term: 'a' | 'mx' | 'exists', name: string): Promise<RecordCheck | undefined> {
    const answer =
      term === 'mx'
        ? await resolver.resolve(name, 'MX')
        : await resolver
            .resolve(name, 'A')
            .then((v4) => (v4.kind === 'none' && term === 'a' ? resolver.resolve(name, 'AAAA') : v4));
    if (answer.kind === 'failure') return 'unknown';
    if (answer.kind !== 'records') return --voids < 0 ? invalid(TOO_VOID) : undefined;
    return term === 'mx' && answer.records.length > MAX_LOOKUPS
      ? invalid(
          `${name}, which its SPF record names, has more than ${MAX_LOOKUPS} MX records, and receivers stop ` +
            'at that limit.',
        )
      : undefined;
  }

  return (
    (await search(domain, Number.POSITIVE_INFINITY, THIS)) ??
    invalid(`This domain has an SPF record, but it doesn't include ${include}.`)
  );
}

const THIS = 'This domain';

/** A mechanism or a modifier of an SPF record; `redirect` comes last, since it is evaluated last. */
interface Term {
  readonly qualifier: string;
  readonly name: string;
  readonly target: string;
}

/** Terms that count as DNS lookups. */
const COUNTED: ReadonlySet<string> = new Set(['include', 'a', 'mx', 'ptr', 'exists', 'redirect']);

// RFC 7208 section 12.
const MECHANISM = pattern('i')`
  ^([+?~-]?)(?:all|include:[^\s/]+|(?:a|mx)(?::[^\s/]+)?(?:/\d{1,2})?(?://\d{1,3})?|ptr(?::[^\s]+)?
  |ip4:[\d.]+(?:/\d{1,2})?|ip6:[\da-f:.]+(?:/\d{1,3})?|exists:\S+)$
`;
/** The name of a mechanism, and the domain after its colon. */
const NAME_AND_TARGET = /^[+?~-]?([a-z0-9]+)(?::([^\s/]*))?/i;
const MODIFIER = /^([a-z][a-z0-9_.-]*)=(\S*)$/i;

function readTerms(record: string): { readonly terms: readonly Term[]; readonly broken: string | undefined } {
  const [mechanisms, redirects]: [Term[], Term[]] = [[], []];
  for (const text of record
    .slice('v=spf1'.length)
    .split(' ')
    .filter((part) => part !== '')) {
    const mechanism = MECHANISM.exec(text);
    const modifier = mechanism ? null : MODIFIER.exec(text);
    if (!mechanism && !modifier) return { terms: [], broken: text };
    if (mechanism) {
      const [, name = '', target = ''] = NAME_AND_TARGET.exec(text) ?? [];
      mechanisms.push({ qualifier: mechanism[1] || '+', name: name.toLowerCase(), target });
    }
    if (modifier?.[1]?.toLowerCase() === 'redirect') {
      if (redirects.length > 0) return { terms: [], broken: text }; // RFC 7208 section 6
      redirects.push({ qualifier: '+', name: 'redirect', target: modifier[2] ?? '' });
    }
  }
  return { terms: [...mechanisms, ...redirects], broken: undefined };
}

/** Why our include in the domain's own record does not count; undefined if it does, or is missing. */
function faultOfInclude(terms: readonly Term[], include: string): RecordCheck | undefined {
  const index = terms.findIndex(({ name, target }) => name === 'include' && sameName(target, include));
  const found = terms[index];
  if (!found) return undefined;
  const all = terms.findIndex(({ name }) => name === 'all');
  if (all >= 0 && all < index)
    return invalid(`This domain has an SPF record, but it includes ${include} after "all", where receivers ignore it.`);
  return found.qualifier === '+'
    ? undefined
    : invalid(
        `This domain has an SPF record, but it includes ${include} with the qualifier "${found.qualifier}", ` +
          'which does not authorize it.',
      );
}

/** The names of the DNS records of a DKIM key. */
export interface KeyRecordNames {
  /** `<selector>._domainkey.<domain>` */
  readonly name: string;
  /** The name under our own host where the key is published for domains that use a CNAME. */
  readonly target: string;
}

/**
 * Checks whether the DKIM key published for a domain is ours, as a TXT record or through a CNAME. A CNAME alone is not
 * enough: signatures cannot be verified while its target is missing.
 */
export async function checkDkim(resolver: Resolver, names: KeyRecordNames, publicKey: string): Promise<RecordCheck> {
  const answer = await resolver.resolve(names.name, 'TXT');
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind !== 'records') return missingKey(resolver, names);
  const [record, second] = answer.records;
  if (record === undefined || second !== undefined)
    return invalid(`There is more than one record at ${names.name}. Receivers need exactly one.`);
  const error = faultOfKey(record, publicKey);
  return error === undefined
    ? { valid: true, error: null, ttl: answer.ttl }
    : invalid(`The record at ${names.name} ${error}`);
}

async function missingKey(resolver: Resolver, { name, target }: KeyRecordNames): Promise<RecordCheck> {
  const alias = await resolver.resolve(name, 'CNAME');
  if (alias.kind === 'failure') return 'unknown';
  if (alias.kind !== 'records') return invalid(`There is no DKIM record at ${name}.`);
  if (alias.records.some((record) => sameName(record, target)))
    return invalid(`${name} points to ${target} as it should, but the record there is not published yet.`);
  return invalid(`${name} points to ${alias.records.join(', ').slice(0, MAX_SHOWN)}, not to ${target}.`);
}

/** Returns why the record is not our key (RFC 6376 section 3.6.1); undefined if it is. */
function faultOfKey(record: string, publicKey: string): string | undefined {
  const tags = new Map<string, string>();
  for (const part of record.split(';')) {
    const equals = part.indexOf('=');
    if (equals > 0) tags.set(part.slice(0, equals).trim(), part.slice(equals + 1).replaceAll(/\s+/g, ''));
  }
  const has = (name: string, values: readonly string[]) =>
    (tags.get(name) ?? values[0] ?? '').split(':').some((value) => values.includes(value));
  if (!has('v', ['DKIM1'])) return 'does not begin with v=DKIM1.';
  const key = tags.get('p');
  if (key === undefined) return 'has no key (p=).';
  if (key === '') return 'says that the key is revoked (p= is empty).';
  if (!has('k', ['rsa'])) return 'is not for an RSA key.';
  if (!has('h', ['sha256'])) return 'does not allow SHA-256 (h=).';
  if (!has('s', ['*', 'email'])) return 'is not for email (s=).';
  return key === publicKey ? undefined : 'contains a different key.';
}

/** Checks that an A record of the domain (AAAA for IPv6) points to the address, as custom reverse DNS requires. */
export async function checkA(resolver: Resolver, domain: string, ip: string): Promise<Checked> {
  if (isIP(ip) === 0) return invalid(`${ip} is not an IP address`);
  const type = isIP(ip) === 6 ? 'AAAA' : 'A';
  const answer = await resolver.resolve(domain, type);
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind !== 'records')
    return invalid(answer.kind === 'nxdomain' ? `${domain} does not exist` : `No ${type} record found`);
  if (answer.records.some((record) => sameAddress(record, ip))) return VALID;
  return invalid(`${domain} points to ${answer.records.slice(0, 5).join(', ')}, not to ${ip}`);
}

/** Checks whether the reverse DNS of the address names the domain. */
export async function checkPtr(resolver: Resolver, ip: string, domain: string): Promise<Checked> {
  const name = toReverseName(ip);
  if (name === undefined) return invalid(`${ip} is not an IP address`);
  const answer = await resolver.resolve(name, 'PTR');
  if (answer.kind === 'failure') return 'unknown';
  const named = answer.kind === 'records' && answer.records.some((record) => sameName(record, domain));
  return named ? VALID : invalid('Invalid reverse DNS');
}

/** The name of an address's PTR record (RFC 1035 section 3.5, RFC 3596 section 2.5); undefined for other text. */
export function toReverseName(ip: string): string | undefined {
  if (isIP(ip) === 4) return `${ip.split('.').toReversed().join('.')}.in-addr.arpa`;
  if (isIP(ip) !== 6 || ip.includes('%')) return undefined;
  const hex = ipaddr
    .parse(ip)
    .toByteArray()
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  return `${[...hex].toReversed().join('.')}.ip6.arpa`;
}

function sameAddress(a: string, b: string): boolean {
  return (
    isIP(a) !== 0 &&
    isIP(a) === isIP(b) &&
    ipaddr.parse(a).toNormalizedString() === ipaddr.parse(b).toNormalizedString()
  );
}
