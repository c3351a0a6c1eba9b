import { isIP } from 'node:net';
// The parts instead of the whole: 'mailauth' itself also loads BIMI, MTA-STS and an HTTP client, which we never want.
import { arc } from 'mailauth/lib/arc/index.js';
import { DkimVerifier } from 'mailauth/lib/dkim/dkim-verifier.js';
import { evaluateDmarc } from 'mailauth/lib/dmarc/index.js';
import { spf } from 'mailauth/lib/spf/index.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import type { ARCData, DNSResolver } from 'mailauth';
import type { Clock } from '../base/clock.ts';
import { createBudget, createShare } from '../dns/budget.ts';
import type { Budget, Resolver } from '../dns/types.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import { readPlain, verifyPlain, type CheckedSignature, type PlainSignatures } from './dkim/verify.ts';
import { parseHeaderSection } from './header-section.ts';
import type { Field, HeaderSection } from './header-section.ts';
import { BUDGET_CODE, createLookUp } from './look-up.ts';
import { createLife, createMemory, type Life, type Memory } from './memory.ts';
import { createPublicKeys } from './public-keys.ts';
import type { MessageKeys, PublicKey } from './public-keys.ts';
import { bodyPieces, readStart } from './raw-source.ts';
import type { RawSource } from './raw-source.ts';
import { readSpfResult, spfVerdict } from './spf-words.ts';

export interface AuthenticatorSettings {
  /** What one message may ask of the DNS, and the milliseconds for all of it. */
  readonly questionsPerMessage: number;
  readonly budgetMs: number;
  /** Our name, for the SPF macro that wants to know who checks. */
  readonly hostname: string;
}

/** Takes the verdicts of one message. Nothing that a message or the DNS does makes it throw. */
export interface Authenticator {
  authenticate(source: RawSource, envelope: Envelope): Promise<Verdicts>;
}

interface Deps { readonly resolver: Resolver; readonly settings: AuthenticatorSettings; readonly clock: Clock }

/** Who the From field says wrote the message. */
interface Author { readonly from: string[]; readonly fields: number }

/** What the signatures and the From field say, as far as DMARC needs it. */
interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly arc: Verdicts['arc'];
  /** Undefined when nobody could tell who wrote the message. */
  readonly author: Author | undefined;
  readonly sound: readonly CheckedSignature[];
  /** Signatures that the DNS kept us from checking. */
  readonly unknown: readonly CheckedSignature[];
}

interface Sender { readonly verdict: Verdicts['spf']; readonly domain: string | undefined }

/** As KumoMTA; a message with more of them wants to keep us busy. */
const MOST_SIGNATURES = 10;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2
const SIGNATURE_FIELD = /^(?:dkim-signature|arc-.*)$/;
/** Senders, authors and policies kept in mind, of each; some hundred bytes apiece. */
const MOST_REMEMBERED = 5000;
/** A mailbox name without anything that needs a second look. */
const PLAIN_MAILBOX = /^[\w.+=-]{1,64}(?=@[^@]+$)/;
const NO_DMARC = { policy: null, aligned: false } as const;

/** SPF, DKIM, DMARC and ARC, each on its share of one DNS budget: half the questions for SPF, a quarter for keys, the rest for DMARC. */
export function createAuthenticator({ resolver, settings, clock }: Deps): Authenticator {
  const { questionsPerMessage: questions, budgetMs } = settings;
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  const senders = createMemory<Sender>(MOST_REMEMBERED, clock);
  const authors = createMemory<Author>(MOST_REMEMBERED, clock);
  const policies = createMemory<Verdicts['dmarc']>(MOST_REMEMBERED, clock);
  const ask = (budget: Budget, note?: Life['note']) => createLookUp(resolver, budget, note) as DNSResolver; // whose type knows nothing of MX records
  return Object.freeze({
    async authenticate(source: RawSource, envelope: Envelope): Promise<Verdicts> {
      const budget = createBudget(questions, budgetMs, clock);
      const share = (part: number) => createShare(budget, Math.ceil(questions / part), budgetMs / 2, clock);
      const [sender, signatures] = await Promise.all([
        recalled(senders, senderKey(envelope), (note) => checkSender(envelope, settings.hostname, ask(share(2), note))),
        checkSignatures(source, { dns: ask(share(4)), keysOf, authors, clock }),
      ]);
      const dmarc = await recalled(policies, policyKey(sender, signatures), (note) => checkAuthor(sender, signatures, ask(budget, note)));
      return { spf: sender.verdict, dkim: signatures.dkim, dmarc, arc: signatures.arc };
    },
  });
}

/** What came out before for the same key, else what comes out now, kept for as long as the answers that it was made of hold. */
async function recalled<V>(memory: Memory<V>, key: string, make: (note: Life['note']) => Promise<V>): Promise<V> {
  const known = memory.find(key);
  if (known !== undefined) return known;
  const life = createLife();
  const value = await make(life.note);
  memory.keep(key, value, life.ms());
  return value;
}

/** Everything that SPF looks at. A plain mailbox name counts only in macros, and who uses those is not remembered. */
function senderKey({ mailFrom, client }: Envelope): string {
  return [client.address, client.helo, mailFrom.replace(PLAIN_MAILBOX, '').toLowerCase()].join('\0');
}

/** Everything that DMARC looks at. */
function policyKey(sender: Sender, { author, sound, unknown }: Signatures): string {
  const keys = (list: readonly CheckedSignature[]) => list.map((key) => key.signingDomain ?? '');
  return JSON.stringify([author, sender.verdict.result, sender.domain, keys(sound), keys(unknown)]);
}

/** SPF of MAIL FROM, or of HELO for the null sender (RFC 7208 section 2.4). Without an address or a name there is nothing to check. */
async function checkSender({ mailFrom, client }: Envelope, mta: string, dns: DNSResolver): Promise<Sender> {
  const { address, helo } = client;
  if (address === null || isIP(address) === 0 || (mailFrom === '' && !helo)) return { verdict: spfVerdict('none'), domain: undefined };
  try {
    const checked = await spf({ sender: mailFrom, ip: address, helo: helo ?? '', mta, resolver: dns, strict: true });
    return { verdict: spfVerdict(readSpfResult(checked.status.result)), domain: checked.domain };
  } catch {
    return { verdict: spfVerdict('permerror'), domain: undefined };
  }
}

interface SignatureDeps {
  readonly dns: DNSResolver;
  readonly keysOf: (dns: DNSResolver) => MessageKeys;
  readonly authors: Memory<Author>;
  readonly clock: Clock;
}

/** DKIM, ARC and the author. The body is read only when something was signed. */
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

/** DMARC of the name in From. What the DNS kept from us may have aligned, and is then no failure. */
async function checkAuthor(sender: Sender, signatures: Signatures, dns: DNSResolver): Promise<Verdicts['dmarc']> {
  const { author, sound, unknown } = signatures;
  if (!author) return { result: 'permerror', ...NO_DMARC };
  const evaluate = (spfDomains: string[], keys: readonly CheckedSignature[]) => evaluateDmarc({
    headerFrom: author.from, fromFields: author.fields, resolver: dns, spfDomains,
    dkimDomains: keys.map((key) => ({ domain: key.signingDomain ?? '' })),
  });
  const domains = (word: string) => (sender.verdict.result === word && sender.domain !== undefined ? [sender.domain] : []);
  try {
    const { response, reason } = await evaluate(domains('pass'), sound);
    if (!response) return { result: reason === 'no-author-domain' ? 'none' : 'permerror', ...NO_DMARC };
    const policy = response.policy ?? null; // absent when there is no record
    const result = response.status.result;
    const doubtful = domains('temperror');
    if (result === 'fail' && doubtful.length + unknown.length > 0) {
      const { response: other } = await evaluate(doubtful, unknown);
      if (other && other.status.result !== 'fail') return { result: 'temperror', policy, aligned: false };
    }
    return { result, policy, aligned: result === 'pass' };
  } catch {
    return { result: 'permerror', ...NO_DMARC };
  }
}
