import { createPublicKey, type KeyObject } from 'node:crypto';
import type { ARCChainEntry, DNSResolver } from 'mailauth';
import { getARChain, verifyASChain } from 'mailauth/lib/arc/index.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import type { Bytes } from '../../base/bytes.ts';
import { createBoundedCache } from '../../base/cache.ts';
import type { Clock } from '../../base/clock.ts';
import { toAsciiDomain } from '../../mail/addresses/address.ts';
import type { Verdicts } from '../../mail/addresses/envelope.ts';
import { dmarcPassed } from '../../mail/authentication-results.ts';
import type { FieldRange, HeaderSection } from '../../mail/mime/header-section.ts';
import {
  createSignatureChecker,
  isUnknown,
  isUsable,
  parseSignature,
  type Signature,
  type SignatureChecker,
  type Unusable,
} from './dkim/verify.ts';
import type { LookUp } from './lookups.ts';

// Submodules of mailauth only, as in authenticate.ts.

/** A DKIM signature that was checked: its d= and s=, and the result of RFC 8601 section 2.7.1. */
interface CheckedSignature {
  readonly domain: string;
  readonly selector: string;
  readonly result: string;
}

/** A set of an ARC chain that passed. */
interface Seal {
  /** The d= of its seal. */
  readonly domain: string;
  /** The domain of From for which its sealer says that DMARC passed. */
  readonly passed: string | undefined;
}

/** The results of all signatures of a message. */
export interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly checked: readonly CheckedSignature[];
  readonly arc: Verdicts['arc'];
  /** The sets of a chain that passed, the newest first. */
  readonly seals: readonly Seal[];
  /** The d= of the DKIM signatures that verified. */
  readonly sound: readonly string[];
  /** The d= of the DKIM signatures that could not be checked because of a DNS failure. */
  readonly unknown: readonly string[];
}

/** Checks the signatures of one message. Rejects only if its bytes cannot be read. */
export type ReadSignatures = (
  section: HeaderSection,
  source: Bytes,
  authors: readonly string[],
  dns: DNSResolver,
) => Promise<Signatures>;

/** Most signatures checked per message, as in KumoMTA. Each costs a lookup and a verification. */
const MAX_SIGNATURES = 10;
/** Most DKIM-Signature fields parsed to find those. */
const MAX_FIELDS = 100;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2

interface Candidate {
  readonly field: FieldRange;
  readonly signature: Signature;
}

/** Creates a checker of DKIM and ARC signatures. Signatures of the domains in `authors` are checked first. */
export function createSignatureReader(clock: Clock): ReadSignatures {
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  return async (section, source, authors, dns) => {
    const fields = section.fields.filter((field) => field.name === 'dkim-signature');
    const dkim = section.whole ? selectSignatures(section, fields, authors) : [];
    const chain = readChain(section.whole ? section : { ...section, fields: [] });
    const signatures = [...dkim.map(({ signature }) => signature), ...chain.readings.filter(isUsable)];
    const keys = keysOf(dns);
    const deps = { keys, minBitLength: SHORTEST_KEY_BITS, now: clock.now() };
    const checker = await createSignatureChecker(section, source, signatures, deps);
    const [sound, unknown]: [string[], string[]] = [[], []];
    const checked: CheckedSignature[] = [];
    for (const { field, signature } of dkim) {
      const { domain, selector } = signature;
      const outcome = await checker.check(field, signature);
      checked.push({ domain, selector, result: outcome.result });
      if (outcome.result === 'pass') sound.push(domain);
      else if (isUnknown(outcome)) unknown.push(domain);
    }
    const arc = await checkChain(chain, { ...deps, checker, dns });
    return {
      dkim: { signed: fields.length > 0, valid: sound.length > 0 },
      checked,
      arc,
      seals: arc.result === 'pass' ? chain.sets.map(toSeal).toReversed() : [],
      sound,
      unknown,
    };
  };
}

/**
 * Selects and orders the signatures to check: those that may be the author's first, and in each group the lowest field
 * first. Every handler prepends its fields, so the lowest is the oldest: signatures that are prepended to a message
 * cannot displace its own, or use up the DNS budget before it.
 */
function selectSignatures(
  { text }: HeaderSection,
  fields: readonly FieldRange[],
  authors: readonly string[],
): Candidate[] {
  const found: Candidate[] = [];
  for (const field of fields.slice(-MAX_FIELDS).toReversed()) {
    if (field.end - field.start > LONGEST_SIGNATURE) continue;
    const signature = parseSignature(text.slice(text.indexOf(':', field.start) + 1, field.end));
    if (isUsable(signature)) found.push({ field, signature });
  }
  const related = new Set(authors.map(parentOf));
  const isOwn = ({ signature }: Candidate) => related.has(parentOf(signature.domain));
  return [...found.filter(isOwn), ...found.filter((one) => !isOwn(one))].slice(0, MAX_SIGNATURES);
}

/** The last two labels: aligned names have at least these in common (RFC 9989 section 4.10.2). */
function parentOf(domain: string): string {
  return domain.split('.').slice(-2).join('.');
}

/** The ARC sets of a message (RFC 8617), parsed but not yet verified. */
interface Chain {
  /** `none` if there are no sets, `fail` if they do not form a chain. */
  readonly state: 'none' | 'fail' | 'whole';
  readonly sets: ARCChainEntry[];
  /** The field of the newest ARC-Message-Signature. */
  readonly field: FieldRange | undefined;
  /** Its possible readings: implementations disagree on the default of c=. */
  readonly readings: readonly (Signature | Unusable)[];
}

interface ChainDeps {
  readonly checker: SignatureChecker;
  readonly dns: DNSResolver;
  readonly keys: MessageKeys;
  readonly minBitLength: number;
}

/** Limits for fifty ARC sets, the maximum (RFC 8617 section 4.2.1), of reasonable length. */
const MAX_ARC_FIELDS = 150;
const LONGEST_FIELD = 16_384;
const ARC_FIELD = /^arc-(?:seal|message-signature|authentication-results)$/;

const NONE: Chain = { state: 'none', sets: [], field: undefined, readings: [] };
const BROKEN: Chain = { ...NONE, state: 'fail' };

/** Finds the ARC sets of a message. mailauth decides whether they form a chain, and also validates their syntax. */
function readChain({ text, fields }: Pick<HeaderSection, 'text' | 'fields'>): Chain {
  const found = fields.filter(({ name }) => ARC_FIELD.test(name));
  if (found.length === 0) return NONE;
  if (found.length > MAX_ARC_FIELDS || found.some(({ start, end }) => end - start > LONGEST_FIELD)) return BROKEN;
  const lineOf = ({ start, end }: FieldRange): Buffer =>
    Buffer.from(text.slice(start, end).replace(/\r?\n$/, ''), 'latin1');
  const rows = found.map((field) => ({ key: field.name, field, line: lineOf(field) }));
  try {
    const sets = getARChain({ parsed: rows }, { strict: true });
    const newest = sets === false ? undefined : sets.at(-1)?.['arc-message-signature'];
    // The lines are unique: duplicate sets do not form a chain.
    const field = rows.find(({ line }) => String(line) === String(newest?.original))?.field;
    if (sets === false || field === undefined) return BROKEN;
    return { state: 'whole', sets, field, readings: readingsOf(text, field) };
  } catch {
    return BROKEN;
  }
}

/**
 * The possible readings of an ARC-Message-Signature; it is enough if one of them verifies. The default of c= is
 * simple/simple, as for DKIM (RFC 8617 section 4.1.2), but it was relaxed/relaxed in the drafts and still is in dkimpy,
 * which many mailing lists use, and in the public test suite (`ams_fields_c_na`).
 */
function readingsOf(text: string, { start, end }: FieldRange): (Signature | Unusable)[] {
  const value = text.slice(text.indexOf(':', start) + 1, end);
  const simple = parseSignature(value, { of: 'arc', forms: ['simple', 'simple'] });
  const relaxed = parseSignature(value, { of: 'arc', forms: ['relaxed', 'relaxed'] });
  const same = !isUsable(simple) || !isUsable(relaxed) || simple.bodyForm === relaxed.bodyForm; // c= is present
  return same ? [simple] : [simple, relaxed];
}

/**
 * Verifies a chain: the newest ARC-Message-Signature and every ARC-Seal must verify (RFC 8617 section 5.2). All
 * failures are permanent.
 */
async function checkChain(
  { state, sets, field, readings }: Chain,
  { checker, dns, keys, minBitLength }: ChainDeps,
): Promise<Verdicts['arc']> {
  if (state !== 'whole' || field === undefined) return { result: state === 'none' ? 'none' : 'fail' };
  let sealed = false;
  for (const reading of readings) sealed ||= (await checker.check(field, reading)).result === 'pass';
  if (!sealed) return { result: 'fail' };
  try {
    const options = { resolver: dns, minBitLength, strict: true, keyCache: keys };
    return { result: (await verifyASChain({ chain: sets }, options)) ? 'pass' : 'fail' };
  } catch {
    return { result: 'fail' };
  }
}

/** mailauth keeps the last of several results in an ARC-Authentication-Results field, so it is read here. */
function toSeal(set: ARCChainEntry): Seal {
  const results = String(set['arc-authentication-results']?.original ?? '');
  return {
    domain: toAsciiDomain(String(set['arc-seal']?.parsed?.d?.value ?? '')) ?? '',
    passed: dmarcPassed(results.slice(results.indexOf(':') + 1)),
  };
}

/** A DKIM key as the verifier needs it; `publicKey` is PEM or a key object. */
export interface PublicKey {
  readonly publicKey: string | KeyObject;
  /** "rsa" or "ed25519". */
  readonly keyType?: string;
  /** The flags in t=. */
  readonly flags?: readonly string[];
}

/** Reads the key from the TXT records that `lookUp` finds for a name; rejects if there is no usable key. */
export type ReadKey = (
  type: string,
  name: string,
  minBitLength: number,
  lookUp: (name: string) => Promise<unknown[]>,
  options: object,
) => Promise<PublicKey>;

/** The keys for one message, with the interface that the verifier expects. Each name is looked up once. */
export interface MessageKeys {
  readonly resolver: LookUp;
  get(type: string, name: string, minBitLength: number, options: object): Promise<PublicKey>;
}

const MAX_KEYS = 1000;
const LONGEST_RECORD = 2048; // a key of 8192 bits has 1400 characters; together they are 2 MB

/**
 * Caches parsed keys by the text of their record, so that only the DNS decides how long a key is valid. Parsing a key
 * costs 200 us; checking a signature takes 50 us with a key object and 100 us with PEM. Errors are not cached.
 */
export function createPublicKeys(read: ReadKey, toALabel: (name: string) => string): (lookUp: LookUp) => MessageKeys {
  const known = createBoundedCache<PublicKey>({ most: MAX_KEYS });

  async function keyIn(record: string, reading: () => Promise<PublicKey>): Promise<PublicKey> {
    const kept = known.get(record);
    if (kept !== undefined) return kept;
    const key = await reading();
    const ready = { ...key, publicKey: createPublicKey(key.publicKey) };
    if (record.length <= LONGEST_RECORD) known.set(record, ready);
    return ready;
  }

  return (lookUp) => {
    const asked = new Map<string, Promise<PublicKey>>();
    async function find(type: string, name: string, minBitLength: number, options: object): Promise<PublicKey> {
      const records = await lookUp(toALabel(name), 'TXT');
      const record = JSON.stringify([type, minBitLength, options, records[0]]);
      return keyIn(record, () => read(type, name, minBitLength, async () => records, options));
    }
    return {
      resolver: lookUp,
      get(type, name, minBitLength, options) {
        const question = JSON.stringify([name, minBitLength, options]);
        const before = asked.get(question);
        if (before !== undefined) return before;
        const key = find(type, name, minBitLength, options);
        key.catch(() => undefined); // callers handle the rejection
        asked.set(question, key);
        return key;
      },
    };
  };
}
