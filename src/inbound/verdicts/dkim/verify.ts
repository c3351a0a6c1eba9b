import { isUtf8 } from 'node:buffer';
import { hash, verify } from 'node:crypto';
import { type Bytes, chunksOf } from '../../../base/bytes.ts';
import { frozen } from '../../../base/frozen.ts';
import { toAsciiDomain } from '../../../mail/addresses/address.ts';
import type { FieldRange, HeaderSection } from '../../../mail/mime/header-section.ts';
import { BUDGET_CODE, isFailureCode } from '../lookups.ts';
import type { MessageKeys, PublicKey } from '../signatures.ts';
import { createBodyHash, createSignedHeader, type HashedBody, hashBody } from './canonical.ts';

/** The result of one signature, as in RFC 8601 section 2.7.1. */
interface SignatureResult {
  readonly result: 'pass' | 'fail' | 'neutral' | 'policy' | 'temperror';
  /** The reason, for debugging; an error code if the key lookup failed. */
  readonly comment?: string;
}

/** Checks the signatures of one message independently: an invalid one, or one that makes us throw, affects no other. */
export type SignatureChecker = Awaited<ReturnType<typeof createSignatureChecker>>;

interface Deps {
  readonly keys: MessageKeys;
  readonly minBitLength: number;
  readonly now: number;
}

/** Whether a field parsed as a signature that can be checked. */
export function isUsable(read: Signature | Unusable): read is Signature {
  return !('result' in read);
}

/** Creates a checker. Reads the body once for all `signatures`; rejects if it cannot be read. */
export async function createSignatureChecker(
  section: HeaderSection,
  source: Bytes,
  signatures: readonly Signature[],
  deps: Deps,
) {
  const bodies = await hashBodies(signatures, source, section.bodyAt);
  const header = createSignedHeader(section);
  return frozen({
    /** `field` is the header field that contains the signature. */
    async check(field: FieldRange, read: Signature | Unusable): Promise<SignatureResult> {
      if (!isUsable(read)) return read;
      try {
        const body = bodies.get(bodyKey(read));
        if (!body?.hash.equals(read.bodyHash)) return { result: 'fail', comment: 'body hash did not verify' };
        return await checkSignature(read, body, () => header.octets(field, read), deps);
      } catch {
        return { result: 'neutral', comment: 'cannot be processed' };
      }
    },
  });
}

/** Hashes the body once for each canonical form and length, however many signatures there are. */
async function hashBodies(
  signatures: readonly Signature[],
  source: Bytes,
  bodyAt: number,
): Promise<ReadonlyMap<string, HashedBody>> {
  const wanted = new Map(signatures.map((signature) => [bodyKey(signature), signature]));
  if (source.kind === 'memory') {
    const body = source.bytes.subarray(bodyAt);
    return new Map(Array.from(wanted, ([key, { bodyForm, length }]) => [key, hashBody(bodyForm, body, length)]));
  }
  if (wanted.size === 0) return new Map();
  const running = new Map(Array.from(wanted, ([key, { bodyForm, length }]) => [key, createBodyHash(bodyForm, length)]));
  for await (const piece of chunksOf(source, bodyAt)) for (const one of running.values()) one.update(piece);
  return new Map(Array.from(running, ([key, one]) => [key, one.digest()]));
}

function bodyKey({ bodyForm, length }: Signature): string {
  return `${bodyForm} ${length ?? 'all'}`;
}

async function checkSignature(
  signature: Signature,
  body: HashedBody,
  octets: () => Buffer,
  { keys, minBitLength, now }: Deps,
): Promise<SignatureResult> {
  const { selector, domain, length, expires } = signature;
  const key = await keyOf(keys, `${selector}._domainkey.${domain}`, minBitLength);
  if ('result' in key) return key;
  if (key.keyType !== signature.keyType) return { result: 'neutral', comment: 'inappropriate key algorithm' };
  // t=s in the key: no i= from a subdomain (RFC 6376 section 3.6.1).
  if (signature.below && key.flags?.includes('s')) return { result: 'neutral', comment: 'domain mismatch' };
  if (!isSignature(signature, octets(), key.publicKey)) return { result: 'fail', comment: 'bad signature' };
  if (expires !== undefined && expires < now) return { result: 'neutral', comment: 'expired' };
  // Anyone may have added the part of the body after l= (section 8.2), and l= must not exceed the body (section 3.5).
  const covered = length === undefined || length === body.length;
  if (!covered) return { result: 'policy', comment: 'l= is not the length of the body' };
  return { result: 'pass' };
}

/** Looks up a public key. DNS failures are temporary; any other problem with a key is permanent. */
async function keyOf(keys: MessageKeys, name: string, minBitLength: number): Promise<PublicKey | SignatureResult> {
  try {
    return await keys.get('DKIM', name, minBitLength, { strict: true, hashAlgo: 'sha256' });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'EUNKNOWN';
    if (code === 'ESHORTKEY') return { result: 'policy', comment: code };
    return { result: isFailureCode(code) ? 'temperror' : 'neutral', comment: code };
  }
}

/** Whether the key could not be looked up because of a DNS failure, other than an exhausted DNS budget. */
export function isUnknown({ result, comment }: SignatureResult): boolean {
  return result === 'temperror' && comment !== BUDGET_CODE;
}

function isSignature({ keyType, signature }: Signature, octets: Buffer, key: PublicKey['publicKey']): boolean {
  try {
    // RFC 8463 section 3: Ed25519 signs the hash.
    if (keyType === 'rsa') return verify('sha256', octets, key, signature);
    return verify(null, hash('sha256', octets, 'buffer'), key, signature);
  } catch {
    return false;
  }
}

/** A parsed DKIM-Signature (RFC 6376 section 3.5) or ARC-Message-Signature (RFC 8617 section 4.1.2). */
export interface Signature {
  readonly keyType: 'rsa' | 'ed25519';
  readonly headerForm: Canonicalization;
  readonly bodyForm: Canonicalization;
  /** d=, in lower case and as A-labels. */
  readonly domain: string;
  readonly selector: string;
  /** Whether i= names a subdomain of d=. */
  readonly below: boolean;
  /** h=, in lower case. */
  readonly names: readonly string[];
  readonly bodyHash: Buffer;
  /** l=: how many octets of the body are signed; all of them if undefined. */
  readonly length: number | undefined;
  readonly signature: Buffer;
  /** Milliseconds since 1970. */
  readonly expires: number | undefined;
}

/** Why a field cannot be used as a signature. */
export interface Unusable {
  /** `policy`: the signature uses an algorithm that is no longer accepted. */
  readonly result: 'neutral' | 'policy';
  readonly comment: string;
}

/** The canonicalization algorithms (RFC 6376 section 3.4). */
export type Canonicalization = 'simple' | 'relaxed';

type SignatureHead = Pick<Signature, 'keyType' | 'headerForm' | 'bodyForm' | 'names'> & Pick<SignatureKind, 'of'>;

interface SignatureKind {
  readonly of: 'dkim' | 'arc';
  readonly forms?: readonly [Canonicalization, Canonicalization];
}

// RFC 6376 section 3.2, FWS included, and UTF-8 (RFC 8616 section 5).
const FOREIGN = /[^\t\r\n -~\x80-\xff]/;
const TAG_NAME = /^[A-Za-z][A-Za-z0-9_]*$/;
const WHITE_EDGES = /^[ \t\r\n]+|[ \t\r\n]+$/g;
const ALGORITHMS: ReadonlyMap<string, Signature['keyType']> = new Map([
  ['rsa-sha256', 'rsa'],
  ['ed25519-sha256', 'ed25519'],
]);
const FORMS: ReadonlyMap<string, readonly [Canonicalization, Canonicalization]> = new Map([
  ['simple', ['simple', 'simple']],
  ['relaxed', ['relaxed', 'simple']],
  ['simple/simple', ['simple', 'simple']],
  ['simple/relaxed', ['simple', 'relaxed']],
  ['relaxed/simple', ['relaxed', 'simple']],
  ['relaxed/relaxed', ['relaxed', 'relaxed']],
]);
// RFC 6376 allows letters, digits and hyphens; underscores are common in selectors and signing domains, and the DNS
// allows them.
const LABEL = '[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?';
const SELECTOR = new RegExp(`^${LABEL}(?:\\.${LABEL})*$`);
const LONGEST_NAME = 253;
const FIELD_NAME = /^[!-9;-~]+$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
// RFC 5322 dot-atom or quoted string.
const LOCAL_PART = /^(?:(?:^|(?<=[^.])\.)[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+)+$|^"(?:[^"\\\r\n]|\\.)*"$/u;
const SECONDS = /^[0-9]{1,12}$/;
const OCTETS = /^[0-9]{1,76}$/;
const SHA256_BYTES = 32;

const SYNTAX: Unusable = { result: 'neutral', comment: 'signature syntax error' };
const neutral = (comment: string): Unusable => ({ result: 'neutral', comment });

/**
 * Parses the value of a signature field, whose bytes are read as latin1. Verifiers have to be strict about the syntax
 * and ignore the whole field if it is wrong (RFC 6376 section 6.1.1): a signature that two programs read differently
 * proves nothing.
 */
export function parseSignature(
  value: string,
  { of, forms: given }: SignatureKind = { of: 'dkim' },
): Signature | Unusable {
  const tags = parseTags(value);
  if (tags === undefined) return SYNTAX;
  if (of === 'dkim' && tags.get('v') !== '1') return neutral('incompatible version');
  const missing = ['a', 'b', 'bh', 'd', 'h', 's'].find((name) => !tags.has(name));
  if (missing !== undefined) return neutral(`missing ${missing}=`);
  // RFC 8301 section 3.1: it must not be used.
  if (of === 'dkim' && tags.get('a') === 'rsa-sha1') return { result: 'policy', comment: 'weak algorithm' };
  const keyType = ALGORITHMS.get(tags.get('a') ?? '');
  if (keyType === undefined) return neutral('unknown algorithm');
  const forms = tags.has('c') ? FORMS.get(tags.get('c') ?? '') : (given ?? FORMS.get('simple'));
  if (forms === undefined) return neutral('unknown canonicalization');
  const methods = (tags.get('q') ?? 'dns/txt').split(':').map((method) => method.replace(WHITE_EDGES, ''));
  if (!methods.includes('dns/txt')) return neutral('unsupported query method');
  const names = toNames(tags.get('h') ?? '', of);
  if (names === undefined) return SYNTAX;
  // A signature must cover From (section 6.1.1). Only in an ARC-Message-Signature may h= be empty.
  if (names.length > 0 && !names.includes('from')) return neutral('From field not signed');
  return parseRest(tags, { of, keyType, headerForm: forms[0], bodyForm: forms[1], names });
}

/** Parses and validates the remaining tags: d, s, t, x, l, bh, b and i. */
function parseRest(tags: ReadonlyMap<string, string>, { of, ...read }: SignatureHead): Signature | Unusable {
  const domain = toDomain(tags.get('d') ?? '');
  const selector = toSelector(tags.get('s') ?? '');
  const times = readTimes(tags.get('t'), tags.get('x'));
  const octets = tags.get('l');
  const [bodyHash, signature] = [toBytes(tags.get('bh') ?? ''), toBytes(tags.get('b') ?? '')];
  if (domain === undefined || selector === undefined || times === undefined || !bodyHash || !signature) return SYNTAX;
  if (bodyHash.length !== SHA256_BYTES || (octets !== undefined && !OCTETS.test(octets))) return SYNTAX;
  // i= of an ARC-Message-Signature is the number of its set.
  const identity = of === 'dkim' ? readIdentity(tags.get('i'), domain) : { below: false };
  if (identity === undefined) return neutral('domain mismatch');
  const length = octets === undefined ? undefined : Number(octets);
  return { ...read, domain, selector, bodyHash, signature, length, ...times, ...identity };
}

/** Parses a tag list (RFC 6376 section 3.2). Returns undefined on any error: one error invalidates the whole list. */
function parseTags(text: string): ReadonlyMap<string, string> | undefined {
  if (FOREIGN.test(text)) return undefined;
  const tags = new Map<string, string>();
  const pieces = text.split(';');
  for (const [index, piece] of pieces.entries()) {
    const equals = piece.indexOf('=');
    if (equals === -1) return index > 0 && index === pieces.length - 1 && piece.trim() === '' ? tags : undefined;
    const name = piece.slice(0, equals).replace(WHITE_EDGES, '');
    if (!TAG_NAME.test(name) || tags.has(name)) return undefined;
    tags.set(name, piece.slice(equals + 1).replace(WHITE_EDGES, ''));
  }
  return tags;
}

/** Parses h=. It may be empty only in an ARC-Message-Signature, which then covers the body and itself. */
function toNames(text: string, of: SignatureKind['of']): string[] | undefined {
  if (text === '') return of === 'arc' ? [] : undefined;
  const names = text
    .toLowerCase()
    .split(':')
    .map((name) => name.replace(WHITE_EDGES, ''));
  return names.every((name) => FIELD_NAME.test(name)) ? names : undefined;
}

function readTimes(signed: string | undefined, expires: string | undefined): Pick<Signature, 'expires'> | undefined {
  if (signed !== undefined && !SECONDS.test(signed)) return undefined;
  if (expires === undefined) return { expires: undefined };
  if (!SECONDS.test(expires) || (signed !== undefined && Number(expires) <= Number(signed))) return undefined;
  return { expires: Number(expires) * 1000 };
}

/** Parses i=, which must be within d= (RFC 6376 section 3.5). */
function readIdentity(text: string | undefined, domain: string): Pick<Signature, 'below'> | undefined {
  if (text === undefined) return { below: false };
  const identity = utf8(unquoted(text));
  const at = identity.lastIndexOf('@');
  const own = at === -1 ? undefined : toDomain(identity.slice(at + 1));
  if (own === undefined || (at > 0 && !LOCAL_PART.test(identity.slice(0, at)))) return undefined;
  return own === domain ? { below: false } : own.endsWith(`.${domain}`) ? { below: true } : undefined;
}

/** Decodes dkim-quoted-printable (section 2.11), ignoring white space. */
function unquoted(text: string): string {
  const decoded = (_: string, hex: string): string => String.fromCharCode(Number.parseInt(hex, 16));
  return text.replace(/[ \t\r\n]+/g, '').replace(/=([0-9A-F]{2})/g, decoded);
}

function toDomain(text: string): string | undefined {
  const name = utf8(text);
  return name.includes('.') && !name.endsWith('.') && !/\s/.test(name) ? toAsciiDomain(name) : undefined;
}

function toSelector(text: string): string | undefined {
  const name = /^[\x00-\x7f]*$/.test(text) ? text.toLowerCase() : toAsciiDomain(utf8(text));
  return name !== undefined && name.length <= LONGEST_NAME && SELECTOR.test(name) ? name : undefined;
}

/** Names may be in UTF-8 (RFC 8616). Other bytes are returned unchanged and are rejected as names later. */
function utf8(latin1: string): string {
  const bytes = Buffer.from(latin1, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : latin1;
}

/** Decodes base64, ignoring white space. */
function toBytes(text: string): Buffer | undefined {
  const base64 = /\s/.test(text) ? text.replace(/[ \t\r\n]+/g, '') : text;
  return BASE64.test(base64) ? Buffer.from(base64, 'base64') : undefined;
}
