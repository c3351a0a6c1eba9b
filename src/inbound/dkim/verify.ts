import { hash, verify } from 'node:crypto';
import type { Field, HeaderSection } from '../header-section.ts';
import type { MessageKeys, PublicKey } from '../public-keys.ts';
import { bodyPieces, type RawSource } from '../raw-source.ts';
import { createBodyHash, hashBody } from './body.ts';
import { createSignedHeader } from './header.ts';
import { parseSignature, type Form, type PlainSignature } from './signature.ts';

/** One signature and what came of it. */
export interface CheckedSignature {
  readonly signingDomain?: string;
  readonly status: { readonly result: string; readonly comment?: string; readonly underSized?: number };
}

/** The signatures of a message, to be checked. */
export interface PlainSignatures {
  readonly section: HeaderSection;
  readonly fields: readonly Field[];
  readonly signatures: readonly { readonly field: Field; readonly plain: PlainSignature }[];
}

interface Deps { readonly keys: MessageKeys; readonly minBitLength: number; readonly now: number }

const BARE_LINE_END = /\r(?!\n)|(?<!\r)\n/;
/** What went wrong with a key and would go wrong again; anything else the DNS kept from us. */
const KEY_FAULTS = new Set(['ENOTFOUND', 'ENODATA', 'EINVALIDVER', 'EINVALIDTYPE', 'EINVALIDVAL', 'EINVALIDHASH', 'EINVALIDSERVICE']);

/** Reads the signatures among the fields; undefined when one of them, or the header around it, is for the library. */
export function readPlain(section: HeaderSection, fields: readonly Field[]): PlainSignatures | undefined {
  const { text, bodyAt } = section;
  const signatures: { field: Field; plain: PlainSignature }[] = [];
  for (const field of fields) {
    if (field.name === '' || field.name.startsWith('arc-')) return undefined;
    if (field.name !== 'dkim-signature') continue;
    const plain = parseSignature(text.slice(text.indexOf(':', field.start) + 1, field.end));
    if (plain === undefined) return undefined;
    signatures.push({ field, plain });
  }
  return signatures.length === 0 || BARE_LINE_END.test(text.slice(0, bodyAt)) ? undefined : { section, fields, signatures };
}

/** Checks signatures as the library does, at a sixth of the cost. */
export async function verifyPlain({ section, fields, signatures }: PlainSignatures, source: RawSource, deps: Deps): Promise<CheckedSignature[]> {
  const hashes = await hashBodies(new Set(signatures.map(({ plain }) => plain.bodyForm)), source, section.bodyAt);
  const header = createSignedHeader(section, fields);
  const checked: CheckedSignature[] = [];
  for (const { field, plain } of signatures) {
    const status = hashes.get(plain.bodyForm) === plain.bodyHash
      ? await check(plain, () => header.octets(field, plain), deps)
      : { result: 'fail', comment: 'body hash did not verify' };
    checked.push({ signingDomain: plain.domain, status });
  }
  return checked;
}

/** Each form once, however many signatures there are. */
async function hashBodies(forms: ReadonlySet<Form>, source: RawSource, bodyAt: number): Promise<ReadonlyMap<Form, string>> {
  if ('bytes' in source) {
    const body = source.bytes.subarray(bodyAt);
    return new Map(Array.from(forms, (form) => [form, hashBody(form, body)]));
  }
  const running = Array.from(forms, (form) => ({ form, hash: createBodyHash(form) }));
  for await (const piece of bodyPieces(source, bodyAt)) for (const { hash } of running) hash.update(piece);
  return new Map(running.map(({ form, hash }) => [form, hash.digest()]));
}

async function check(plain: PlainSignature, octets: () => Buffer, { keys, minBitLength, now }: Deps): Promise<CheckedSignature['status']> {
  const { selector, domain, identityDomain } = plain;
  try {
    const key = await keys.get('DKIM', `${selector}._domainkey.${domain}`, minBitLength, { strict: true, hashAlgo: 'sha256' });
    if (key.keyType !== plain.keyType) return { result: 'neutral', comment: 'inappropriate key algorithm' };
    // t=s in the key: no i= from a subdomain (RFC 6376 section 3.6.1).
    const exact = identityDomain === undefined || identityDomain.toLowerCase() === domain.toLowerCase();
    if (!exact && key.flags?.includes('s')) return { result: 'neutral', comment: 'domain mismatch' };
    if (!isSignature(plain, octets(), key.publicKey)) return { result: 'fail', comment: 'bad signature' };
    return plain.expires !== undefined && plain.expires < now ? { result: 'neutral', comment: 'expired' } : { result: 'pass' };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'EUNKNOWN';
    if (code === 'ESHORTKEY') return { result: 'policy', comment: code };
    return KEY_FAULTS.has(code) ? { result: 'neutral', comment: code } : { result: 'temperror', comment: `DNS failure: ${code}` };
  }
}

function isSignature({ keyType, signature }: PlainSignature, octets: Buffer, key: PublicKey['publicKey']): boolean {
  try {
    // RFC 8463 section 3: Ed25519 signs the hash.
    return keyType === 'rsa' ? verify('sha256', octets, key, signature) : verify(null, hash('sha256', octets, 'buffer'), key, signature);
  } catch {
    return false;
  }
}
