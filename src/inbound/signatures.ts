// The parts instead of the whole, as in authenticate.ts.
import { arc } from 'mailauth/lib/arc/index.js';
import { DkimVerifier } from 'mailauth/lib/dkim/dkim-verifier.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import type { ARCData, DNSResolver } from 'mailauth';
import type { Clock } from '../base/clock.ts';
import type { Verdicts } from '../mail/envelope.ts';
import { readPlain, verifyPlain, type CheckedSignature, type PlainSignatures } from './dkim/verify.ts';
import { parseHeaderSection } from './header-section.ts';
import type { Field, HeaderSection } from './header-section.ts';
import { BUDGET_CODE } from './look-up.ts';
import { createMemory, recalled, type Memory } from './memory.ts';
import { createPublicKeys } from './public-keys.ts';
import type { MessageKeys, PublicKey } from './public-keys.ts';
import { bodyPieces, readStart } from './raw-source.ts';
import type { RawSource } from './raw-source.ts';

/** Who the From field says wrote the message. */
interface Author { readonly from: string[]; readonly fields: number }

/** What the signatures and the From field say, as far as DMARC needs it. */
export interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly arc: Verdicts['arc'];
  /** Undefined when nobody could tell who wrote the message. */
  readonly author: Author | undefined;
  readonly sound: readonly CheckedSignature[];
  /** Signatures that the DNS kept us from checking. */
  readonly unknown: readonly CheckedSignature[];
}

/** As KumoMTA; a message with more of them wants to keep us busy. */
const MOST_SIGNATURES = 10;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2
const SIGNATURE_FIELD = /^(?:dkim-signature|arc-.*)$/;

interface SignatureDeps {
  readonly dns: DNSResolver;
  readonly keysOf: (dns: DNSResolver) => MessageKeys;
  readonly authors: Memory<Author>;
  readonly clock: Clock;
}

/** What reads the signatures of messages: DKIM, ARC and the author. It never throws. */
export function createSignatureReader(clock: Clock): (source: RawSource, dns: DNSResolver) => Promise<Signatures> {
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  const authors = createMemory<Author>(clock);
  return (source, dns) => checkSignatures(source, { dns, keysOf, authors, clock });
}

/** The body is read only when something was signed. */
async function checkSignatures(source: RawSource, deps: SignatureDeps): Promise<Signatures> {
  let signed = false;
  try {
    const start = await readStart(source);
    const section = parseHeaderSection(start);
    signed = section.fields.some((field) => field.name === 'dkim-signature');
    if (section.oversized) return unread(signed);
    if (!section.fields.some((field) => SIGNATURE_FIELD.test(field.name))) return { ...unread(false), author: await readAuthor(start, section, deps) };
    const fields = lookedAt(section.fields);
    const plain = readPlain(section, fields);
    if (plain) return { ...toSignatures(signed, await readPlainSignatures(plain, source, deps)), author: await readAuthor(start, section, deps) };
    const verified = await readSignatures(headerOf(start, fields), section, source, deps);
    return { ...toSignatures(signed, verified.results), arc: await checkChain(verified, deps.dns), author: authorOf(verified) };
  } catch {
    return unread(signed);
  }
}

/** The author of what nobody signed: the From fields as the verifier reads them. */
async function readAuthor(start: Uint8Array, section: HeaderSection, { authors, clock }: SignatureDeps): Promise<Author> {
  const fields = section.fields.filter((field) => field.name === 'from');
  return recalled(authors, fields.map((field) => section.text.slice(field.start, field.end)).join(''), async () => {
    const verifier = createVerifier(clock);
    await verifier.emitHeaders(headerOf(start, fields));
    return authorOf(verifier);
  });
}

/**
 * The verifier without the stream that it is: as a stream it looks for the end of the header byte by byte, with an array for each
 * byte (150 us of a message of 5 kB).
 */
async function readSignatures(header: Buffer, section: HeaderSection, source: RawSource, { dns, keysOf, clock }: SignatureDeps): Promise<DkimVerifier> {
  const verifier = createVerifier(clock);
  const keys = keysOf(dns);
  verifier.keyCache = keys;
  verifier.arc.keyCache = keys;
  await verifier.emitHeaders(header);
  for await (const piece of bodyPieces(source, section.bodyAt)) await verifier.writeAsync(piece);
  await verifier.finish();
  return verifier;
}

/** Signatures in the common form are checked by ourselves. */
function readPlainSignatures(plain: PlainSignatures, source: RawSource, { dns, keysOf, clock }: SignatureDeps): Promise<CheckedSignature[]> {
  return verifyPlain(plain, source, { keys: keysOf(dns), minBitLength: SHORTEST_KEY_BITS, now: clock.now() });
}

function toSignatures(signed: boolean, checked: readonly CheckedSignature[]): Signatures {
  const sound = checked.filter(isSound);
  return { ...unread(signed), dkim: { signed, valid: sound.length > 0 }, sound, unknown: checked.filter(isUnknown) };
}

function createVerifier(clock: Clock): DkimVerifier {
  return new DkimVerifier({ minBitLength: SHORTEST_KEY_BITS, curTime: new Date(clock.now()), strict: true });
}

function authorOf({ headerFrom, fromFields }: DkimVerifier): Author {
  return { from: headerFrom, fields: fromFields };
}

function unread(signed: boolean): Signatures {
  return { dkim: { signed, valid: false }, arc: { result: 'none' }, author: undefined, sound: [], unknown: [] };
}

function headerOf(start: Uint8Array, fields: readonly Field[]): Buffer {
  return Buffer.concat([...fields.map((field) => start.subarray(field.start, field.end)), Buffer.from('\r\n')]);
}

/** Every field, but of the signatures only the first ten of reasonable length: each costs a look-up and a verification. */
function lookedAt(fields: readonly Field[]): readonly Field[] {
  const signatures = fields.filter((field) => field.name === 'dkim-signature');
  const refused = new Set(signatures.filter((field, place) => place >= MOST_SIGNATURES || field.end - field.start > LONGEST_SIGNATURE));
  return refused.size === 0 ? fields : fields.filter((field) => !refused.has(field));
}

/**
 * Whether a signature vouches for the message. That it covers From, that i= lies within d=, that it is not rsa-sha1 and that
 * the key is long enough was seen to before it could pass; a tail that l= leaves unsigned anybody may have added.
 */
function isSound(signature: CheckedSignature): boolean {
  return signature.status.result === 'pass' && !signature.status.underSized;
}

function isUnknown(signature: CheckedSignature): boolean {
  return signature.status.result === 'temperror' && !signature.status.comment?.includes(BUDGET_CODE);
}

/** The chain that the verifier found is what arc() wants, the keys that it asked for included; their types differ only in that one admits there may be none. */
async function checkChain({ arc: chain }: DkimVerifier, dns: DNSResolver): Promise<Verdicts['arc']> {
  const checked = await arc(chain as ARCData, { resolver: dns, minBitLength: SHORTEST_KEY_BITS, strict: true });
  return { result: checked.status.result };
}
