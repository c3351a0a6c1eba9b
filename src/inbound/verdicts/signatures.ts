import { createPublicKey, type KeyObject } from 'node:crypto';
import type { ARCChainEntry, DNSResolver } from 'mailauth';
import { getARChain, verifyASChain } from 'mailauth/lib/arc/index.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import type { Clock } from '../../base/clock.ts';
import { createMemory } from '../../base/memory.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import type { Field, HeaderSection, RawSource } from '../../mail/header-section.ts';
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

// The parts instead of the whole, as in authenticate.ts.

/** What the signatures of a message say. */
export interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly arc: Verdicts['arc'];
  /** The d= of those that vouch for the message. */
  readonly sound: readonly string[];
  /** The d= of those that the DNS kept us from checking. */
  readonly unknown: readonly string[];
}

/** Reads the signatures of one message. Rejects only when its bytes cannot be read. */
export type ReadSignatures = (
  section: HeaderSection,
  source: RawSource,
  authors: readonly string[],
  dns: DNSResolver,
) => Promise<Signatures>;

/** As KumoMTA; a message with more of them wants to keep us busy. Each costs a look-up and a verification. */
const MOST_SIGNATURES = 10;
/** Fields that are read to find those; reading one costs nothing but time. */
const MOST_FIELDS = 100;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2

interface Candidate {
  readonly field: Field;
  readonly signature: Signature;
}

/**
 * What reads the signatures of messages, DKIM and ARC. `authors`: domains of the author, whose signatures are looked at
 * first.
 */
export function createSignatureReader(clock: Clock): ReadSignatures {
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  return async (section, source, authors, dns) => {
    const fields = section.fields.filter((field) => field.name === 'dkim-signature');
    const dkim = section.whole ? lookedAt(section, fields, authors) : [];
    const chain = readChain(section.whole ? section : { ...section, fields: [] });
    const signatures = [...dkim.map(({ signature }) => signature), ...chain.readings.filter(isUsable)];
    const keys = keysOf(dns);
    const deps = { keys, minBitLength: SHORTEST_KEY_BITS, now: clock.now() };
    const checker = await createSignatureChecker(section, source, signatures, deps);
    const [sound, unknown]: [string[], string[]] = [[], []];
    for (const { field, signature } of dkim) {
      const checked = await checker.check(field, signature);
      if (checked.result === 'pass') sound.push(signature.domain);
      else if (isUnknown(checked)) unknown.push(signature.domain);
    }
    return {
      dkim: { signed: fields.length > 0, valid: sound.length > 0 },
      arc: await checkChain(chain, { ...deps, checker, dns }),
      sound,
      unknown,
    };
  };
}

/**
 * The signatures that are checked, in this order: those that may be the author's first, and of these and of the others
 * the lowest first. Whoever handles a message adds his fields in front, so the lowest is the oldest; nothing that is
 * put in front of a message can keep its own signature from being looked at, or use up what it may ask of the DNS.
 */
function lookedAt({ text }: HeaderSection, fields: readonly Field[], authors: readonly string[]): Candidate[] {
  const found: Candidate[] = [];
  for (const field of fields.slice(-MOST_FIELDS).toReversed()) {
    if (field.end - field.start > LONGEST_SIGNATURE) continue;
    const signature = parseSignature(text.slice(text.indexOf(':', field.start) + 1, field.end));
    if (isUsable(signature)) found.push({ field, signature });
  }
  const related = new Set(authors.map(parentOf));
  const isOwn = ({ signature }: Candidate) => related.has(parentOf(signature.domain));
  return [...found.filter(isOwn), ...found.filter((one) => !isOwn(one))].slice(0, MOST_SIGNATURES);
}

/** Names that may align have these two labels in common at least (RFC 9989 section 4.10.2). */
function parentOf(domain: string): string {
  return domain.split('.').slice(-2).join('.');
}

// The parts instead of the whole, as in authenticate.ts.

/** The ARC sets of a message (RFC 8617), their form looked at and their signatures yet to be checked. */
interface Chain {
  /** `none` without sets, `fail` when they are no chain. */
  readonly state: 'none' | 'fail' | 'whole';
  readonly sets: ARCChainEntry[];
  /** Where the newest ARC-Message-Signature stands. */
  readonly field: Field | undefined;
  /** How it may be read: without c= there are two opinions on what it stands for. */
  readonly readings: readonly (Signature | Unusable)[];
}

interface ChainDeps {
  readonly checker: SignatureChecker;
  readonly dns: DNSResolver;
  readonly keys: MessageKeys;
  readonly minBitLength: number;
}

/** What a header needs for fifty sets, the most there may be (RFC 8617 section 4.2.1), of reasonable length. */
const MOST_ARC_FIELDS = 150;
const LONGEST_FIELD = 16_384;
const ARC_FIELD = /^arc-(?:seal|message-signature|authentication-results)$/;

const NONE: Chain = { state: 'none', sets: [], field: undefined, readings: [] };
const BROKEN: Chain = { ...NONE, state: 'fail' };

/**
 * Finds the sets of a message. The library says whether they are a chain; its opinion on how a signature is written
 * counts no less.
 */
function readChain({ text, fields }: Pick<HeaderSection, 'text' | 'fields'>): Chain {
  const found = fields.filter(({ name }) => ARC_FIELD.test(name));
  if (found.length === 0) return NONE;
  if (found.length > MOST_ARC_FIELDS || found.some(({ start, end }) => end - start > LONGEST_FIELD)) return BROKEN;
  const lineOf = ({ start, end }: Field): Buffer => Buffer.from(text.slice(start, end).replace(/\r?\n$/, ''), 'latin1');
  const rows = found.map((field) => ({ key: field.name, field, line: lineOf(field) }));
  try {
    const sets = getARChain({ parsed: rows }, { strict: true });
    const newest = sets === false ? undefined : sets.at(-1)?.['arc-message-signature'];
    // No two are the same: a set that is there twice is no chain.
    const field = rows.find(({ line }) => String(line) === String(newest?.original))?.field;
    if (sets === false || field === undefined) return BROKEN;
    return { state: 'whole', sets, field, readings: readingsOf(text, field) };
  } catch {
    return BROKEN;
  }
}

/**
 * Without c= it is simple/simple, as for DKIM (RFC 8617 section 4.1.2), but the drafts had relaxed/relaxed, and so have
 * dkimpy, which many lists seal with, and the public test suite (`ams_fields_c_na`). A signature that verifies in
 * either way is one.
 */
function readingsOf(text: string, { start, end }: Field): (Signature | Unusable)[] {
  const value = text.slice(text.indexOf(':', start) + 1, end);
  const simple = parseSignature(value, { of: 'arc', forms: ['simple', 'simple'] });
  const relaxed = parseSignature(value, { of: 'arc', forms: ['relaxed', 'relaxed'] });
  const said = !isUsable(simple) || !isUsable(relaxed) || simple.bodyForm === relaxed.bodyForm; // by c=, for both
  return said ? [simple] : [simple, relaxed];
}

/**
 * What the chain is worth: the newest signature over the message and every seal have to verify (RFC 8617 section 5.2).
 * All failures are permanent.
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

/** What the verifier wants to know of a key; it takes the key itself as PEM or as an object. */
export interface PublicKey {
  readonly publicKey: string | KeyObject;
  /** "rsa" or "ed25519". */
  readonly keyType?: string;
  /** Those of t=. */
  readonly flags?: readonly string[];
}

/** Reads the key in the TXT records that the look-up finds for a name; rejects when there is none that may be used. */
export type ReadKey = (
  type: string,
  name: string,
  minBitLength: number,
  lookUp: (name: string) => Promise<unknown[]>,
  options: object,
) => Promise<PublicKey>;

/** The keys of one message, in the form that the verifier asks for them: each name is looked up once. */
export interface MessageKeys {
  readonly resolver: LookUp;
  get(type: string, name: string, minBitLength: number, options: object): Promise<PublicKey>;
}

const MOST_KEYS = 1000;
const LONGEST_RECORD = 2048; // a key of 8192 bits has 1400 characters; together they are 2 MB

/**
 * Keeps keys that were read, by the text of their record, so that the DNS alone says how long a key is valid. Reading
 * one costs 200 us, and checking a signature takes 50 us with the key as an object, 100 us with it as PEM. Faults are
 * not kept.
 */
export function createPublicKeys(read: ReadKey, toALabel: (name: string) => string): (lookUp: LookUp) => MessageKeys {
  const known = createMemory<PublicKey>({ most: MOST_KEYS });

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
        key.catch(() => undefined); // who waits for it hears of it
        asked.set(question, key);
        return key;
      },
    };
  };
}
