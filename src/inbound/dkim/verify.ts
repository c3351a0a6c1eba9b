import { hash, verify } from 'node:crypto';
import type { Field, HeaderSection } from '../header-section.ts';
import { BUDGET_CODE, isFailureCode } from '../look-up.ts';
import type { MessageKeys, PublicKey } from '../public-keys.ts';
import { bodyPieces, type RawSource } from '../raw-source.ts';
import { createBodyHash, type HashedBody, hashBody } from './body.ts';
import { createSignedHeader } from './header.ts';
import type { Signature, Unusable } from './signature.ts';

/** What came of one signature, in the words of RFC 8601 section 2.7.1. */
export interface Checked {
  readonly result: 'pass' | 'fail' | 'neutral' | 'policy' | 'temperror';
  /** Why, for who looks into it; a code where the DNS had a part in it. */
  readonly comment?: string;
}

/**
 * Checks the signatures of one message, each for itself: whatever is wrong with one, and whatever it makes us throw,
 * says nothing of the others.
 */
export interface SignatureChecker {
  /** `field` is where the signature stands. */
  check(field: Field, signature: Signature | Unusable): Promise<Checked>;
}

interface Deps {
  readonly keys: MessageKeys;
  readonly minBitLength: number;
  readonly now: number;
}

/** Whether a field may be a signature at all. */
export function isUsable(read: Signature | Unusable): read is Signature {
  return !('result' in read);
}

/** Reads the body once, for all the signatures that will be checked. Rejects when it cannot be read. */
export async function createSignatureChecker(
  section: HeaderSection,
  source: RawSource,
  signatures: readonly Signature[],
  deps: Deps,
): Promise<SignatureChecker> {
  const bodies = await hashBodies(signatures, source, section.bodyAt);
  const header = createSignedHeader(section);
  return Object.freeze({
    async check(field: Field, read: Signature | Unusable): Promise<Checked> {
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

/** Each form and length once, however many signatures there are. */
async function hashBodies(
  signatures: readonly Signature[],
  source: RawSource,
  bodyAt: number,
): Promise<ReadonlyMap<string, HashedBody>> {
  const wanted = new Map(signatures.map((signature) => [bodyKey(signature), signature]));
  if ('bytes' in source) {
    const body = source.bytes.subarray(bodyAt);
    return new Map(Array.from(wanted, ([key, { bodyForm, length }]) => [key, hashBody(bodyForm, body, length)]));
  }
  if (wanted.size === 0) return new Map();
  const running = new Map(Array.from(wanted, ([key, { bodyForm, length }]) => [key, createBodyHash(bodyForm, length)]));
  for await (const piece of bodyPieces(source, bodyAt)) for (const one of running.values()) one.update(piece);
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
): Promise<Checked> {
  const { selector, domain, length, expires } = signature;
  const key = await keyOf(keys, `${selector}._domainkey.${domain}`, minBitLength);
  if ('result' in key) return key;
  if (key.keyType !== signature.keyType) return { result: 'neutral', comment: 'inappropriate key algorithm' };
  // t=s in the key: no i= from a subdomain (RFC 6376 section 3.6.1).
  if (signature.below && key.flags?.includes('s')) return { result: 'neutral', comment: 'domain mismatch' };
  if (!isSignature(signature, octets(), key.publicKey)) return { result: 'fail', comment: 'bad signature' };
  if (expires !== undefined && expires < now) return { result: 'neutral', comment: 'expired' };
  // A tail that l= leaves unsigned anybody may have added (section 8.2), and what is not there nobody can have signed
  // (section 3.5).
  const covered = length === undefined || length === body.length;
  if (!covered) return { result: 'policy', comment: 'l= is not the length of the body' };
  return { result: 'pass' };
}

/** What the DNS kept from us it may tell us later; whatever else is wrong with a key is so for good. */
async function keyOf(keys: MessageKeys, name: string, minBitLength: number): Promise<PublicKey | Checked> {
  try {
    return await keys.get('DKIM', name, minBitLength, { strict: true, hashAlgo: 'sha256' });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'EUNKNOWN';
    if (code === 'ESHORTKEY') return { result: 'policy', comment: code };
    return { result: isFailureCode(code) ? 'temperror' : 'neutral', comment: code };
  }
}

/**
 * Whether the DNS kept a key from us that may be there, but for questions that the message had no right to any more.
 */
export function isUnknown({ result, comment }: Checked): boolean {
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
