import { sameName } from './names.ts';
import type { Resolver } from './types.ts';

/**
 * What a test of a record came to, with the TTL of a valid one in seconds: so long may caches hold what was there before.
 * `unknown`: the DNS could not say, and what was known before still holds.
 */
export type RecordCheck =
  | { readonly valid: true; readonly error: null; readonly ttl: number }
  | { readonly valid: false; readonly error: string }
  | 'unknown';

const invalid = (error: string): RecordCheck => ({ valid: false, error });

/** A `redirect=` leads elsewhere, but not for ever (RFC 7208 section 4.6.4 allows ten look-ups in all). */
const LONGEST_REDIRECT = 5;

/**
 * Whether the SPF record of a domain includes ours. The include has to stand in the record itself, or in one that it
 * redirects to, and count as a pass: what other includes bring along may be gone tomorrow without anybody telling the domain.
 */
export async function checkSpf(resolver: Resolver, domain: string, include: string): Promise<RecordCheck> {
  let name = domain;
  let ttl = Number.POSITIVE_INFINITY;
  for (let hops = 0; hops <= LONGEST_REDIRECT; hops++) {
    const answer = await resolver.resolve(name, 'TXT');
    if (answer.kind === 'failure') return 'unknown';
    if (answer.kind === 'nxdomain' && name === domain) return invalid('This domain does not exist.');
    const records = answer.kind === 'records' ? answer.records.filter((text) => /^v=spf1(?: |$)/i.test(text)) : [];
    const [record, second] = records;
    if (record === undefined) return invalid(name === domain ? "This domain doesn't have an SPF record." : `This domain's SPF record redirects to ${name}, which doesn't have one.`);
    if (second !== undefined) return invalid(`${name === domain ? 'This domain' : name} has more than one SPF record. Receivers ignore them all until there is only one.`);
    if (answer.kind === 'records') ttl = Math.min(ttl, answer.ttl);
    const reading = readSpf(record, include);
    if (reading.kind === 'included') return { valid: true, error: null, ttl };
    if (reading.kind === 'wrong') return invalid(reading.error);
    name = reading.target;
  }
  return invalid("This domain's SPF record redirects too often.");
}

type SpfReading = { readonly kind: 'included' } | { readonly kind: 'redirect'; readonly target: string } | { readonly kind: 'wrong'; readonly error: string };

// RFC 7208 section 12. What follows the colon is looked at for `include` alone.
const MECHANISM = /^([+?~-]?)(all|include:[^\s/]+|a(?::[^\s/]+)?(?:\/\d{1,2})?(?:\/\/\d{1,3})?|mx(?::[^\s/]+)?(?:\/\d{1,2})?(?:\/\/\d{1,3})?|ptr(?::[^\s]+)?|ip4:[\d.]+(?:\/\d{1,2})?|ip6:[\da-f:.]+(?:\/\d{1,3})?|exists:\S+)$/i;
const MODIFIER = /^[a-z][a-z0-9_.-]*=\S*$/i;

function readSpf(record: string, include: string): SpfReading {
  const terms = record.slice('v=spf1'.length).split(' ').filter((term) => term !== '');
  const broken = terms.find((term) => !MECHANISM.test(term) && !MODIFIER.test(term));
  if (broken !== undefined) return { kind: 'wrong', error: `This domain's SPF record has a syntax error in "${broken.slice(0, 80)}".` };
  const mechanisms = terms.map((term) => MECHANISM.exec(term)).filter((match) => match !== null).map(([, qualifier = '', name = '']) => ({ qualifier, name: name.toLowerCase() }));
  const all = mechanisms.findIndex(({ name }) => name === 'all');
  const place = mechanisms.findIndex(({ name }) => name.startsWith('include:') && sameName(name.slice('include:'.length), include));
  const found = mechanisms[place];
  if (!found) {
    // A redirect does not count beside an `all` (RFC 7208 section 6.1).
    const target = all < 0 ? terms.find((term) => /^redirect=/i.test(term))?.slice('redirect='.length) : undefined;
    return target !== undefined ? { kind: 'redirect', target } : { kind: 'wrong', error: `This domain has an SPF record, but it doesn't include ${include}.` };
  }
  if (all >= 0 && all < place) return { kind: 'wrong', error: `This domain has an SPF record, but it includes ${include} behind "all", where nobody looks.` };
  if (found.qualifier !== '' && found.qualifier !== '+') return { kind: 'wrong', error: `This domain has an SPF record, but it includes ${include} with a "${found.qualifier}" in front, which is no permission.` };
  return { kind: 'included' };
}

/** Where a domain's key belongs, and where a CNAME may point instead. */
export interface KeyPlace {
  /** `<selector>._domainkey.<domain>` */
  readonly name: string;
  /** The name under our own host where the key is kept for those who prefer a CNAME. */
  readonly target: string;
}

/**
 * Whether the key at its place in the DNS is ours: as a TXT record there, or behind a CNAME. A CNAME alone is not enough,
 * for nobody can verify a signature with it while the record that it leads to is missing.
 */
export async function checkDkim(resolver: Resolver, place: KeyPlace, publicKey: string): Promise<RecordCheck> {
  const answer = await resolver.resolve(place.name, 'TXT');
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind !== 'records') return missingKey(resolver, place);
  const [record, second] = answer.records;
  if (record === undefined || second !== undefined) return invalid(`There is more than one record at ${place.name}. Receivers need exactly one.`);
  const error = faultOfKey(record, publicKey);
  return error === undefined ? { valid: true, error: null, ttl: answer.ttl } : invalid(`The record at ${place.name} ${error}`);
}

async function missingKey(resolver: Resolver, { name, target }: KeyPlace): Promise<RecordCheck> {
  const alias = await resolver.resolve(name, 'CNAME');
  if (alias.kind === 'failure') return 'unknown';
  if (alias.kind !== 'records') return invalid(`There is no DKIM record at ${name}.`);
  if (alias.records.some((record) => sameName(record, target))) return invalid(`${name} points to ${target} as it should, but the record there is not published yet.`);
  return invalid(`${name} points to ${alias.records.join(', ').slice(0, 300)}, not to ${target}.`);
}

/** Why the record is not our key (RFC 6376 section 3.6.1); undefined when it is. */
function faultOfKey(record: string, publicKey: string): string | undefined {
  const tags = new Map<string, string>();
  for (const part of record.split(';')) {
    const equals = part.indexOf('=');
    if (equals > 0) tags.set(part.slice(0, equals).trim(), part.slice(equals + 1).replaceAll(/\s+/g, ''));
  }
  const has = (name: string, values: readonly string[]) => (tags.get(name) ?? values[0] ?? '').split(':').some((value) => values.includes(value));
  if (!has('v', ['DKIM1'])) return 'does not begin with v=DKIM1.';
  const key = tags.get('p');
  if (key === undefined) return 'has no key (p=).';
  if (key === '') return 'says that the key is revoked (p= is empty).';
  if (!has('k', ['rsa'])) return 'is for another kind of key than RSA.';
  if (!has('h', ['sha256'])) return 'does not allow SHA-256 (h=).';
  if (!has('s', ['*', 'email'])) return 'is not for email (s=).';
  return key === publicKey ? undefined : 'holds another key than ours.';
}
