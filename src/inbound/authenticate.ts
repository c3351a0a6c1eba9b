import { isIP } from 'node:net';
import { Readable } from 'node:stream';
// The parts instead of the whole: 'mailauth' itself also loads BIMI, MTA-STS and an HTTP client, which we never want.
import { arc } from 'mailauth/lib/arc/index.js';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { evaluateDmarc } from 'mailauth/lib/dmarc/index.js';
import { spf } from 'mailauth/lib/spf/index.js';
import type { ARCData, DKIMResult, DKIMVerifyResult, DNSResolver } from 'mailauth';
import type { Clock } from '../base/clock.ts';
import { createBudget, createShare } from '../dns/budget.ts';
import type { Answer, Budget, MxRecord, Resolver } from '../dns/types.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import { parseHeaderSection } from './header-section.ts';
import type { Field, HeaderSection } from './header-section.ts';
import { readStart, withBody } from './raw-source.ts';
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

/** What the signatures and the From field say, as far as DMARC needs it. */
interface Signatures {
  readonly dkim: Verdicts['dkim'];
  readonly arc: Verdicts['arc'];
  /** Undefined when nobody could tell who wrote the message. */
  readonly author: { readonly from: string[]; readonly fields: number } | undefined;
  readonly sound: readonly DKIMResult[];
  /** Signatures that the DNS kept us from checking. */
  readonly unknown: readonly DKIMResult[];
}

interface Sender { readonly verdict: Verdicts['spf']; readonly domain: string | undefined }

/** As KumoMTA; a message with more of them wants to keep us busy. */
const MOST_SIGNATURES = 10;
const LONGEST_SIGNATURE = 8192;
const SHORTEST_KEY_BITS = 1024; // RFC 8301 section 3.2
const SMALL_BYTES = 1024 * 1024; // at once; what is larger goes in pieces
const SIGNATURE_FIELD = /^(?:dkim-signature|arc-.*)$/;
const NO_DMARC = { policy: null, aligned: false } as const;

/** SPF, DKIM, DMARC and ARC, each on its share of one DNS budget: half the questions for SPF, a quarter for keys, the rest for DMARC. */
export function createAuthenticator({ resolver, settings, clock }: Deps): Authenticator {
  const { questionsPerMessage: questions, budgetMs } = settings;
  return Object.freeze({
    async authenticate(source: RawSource, envelope: Envelope): Promise<Verdicts> {
      const budget = createBudget(questions, budgetMs, clock);
      const share = (part: number) => lookUp(resolver, createShare(budget, Math.ceil(questions / part), budgetMs / 2, clock));
      const [sender, signatures] = await Promise.all([
        checkSender(envelope, settings.hostname, share(2)),
        checkSignatures(source, share(4), clock),
      ]);
      const dmarc = await checkAuthor(sender, signatures, lookUp(resolver, budget));
      return { spf: sender.verdict, dkim: signatures.dkim, dmarc, arc: signatures.arc };
    },
  });
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

/** DKIM, ARC and the author. The body is read only when something was signed. */
async function checkSignatures(source: RawSource, dns: DNSResolver, clock: Clock): Promise<Signatures> {
  let signed = false;
  try {
    const start = await readStart(source);
    const section = parseHeaderSection(start);
    signed = section.fields.some((field) => field.name === 'dkim-signature');
    if (section.oversized) return unread(signed);
    const verified = await readSignatures(inputOf(start, section, source), dns, clock);
    const sound = verified.results.filter(isSound);
    const unknown = verified.results.filter(isUnknown);
    const author = { from: verified.headerFrom, fields: verified.fromFields };
    return { dkim: { signed, valid: sound.length > 0 }, arc: await checkChain(verified, dns), author, sound, unknown };
  } catch {
    return unread(signed);
  }
}

async function readSignatures(input: Readable | Buffer, dns: DNSResolver, clock: Clock): Promise<DKIMVerifyResult> {
  try {
    return await dkimVerify(input, { resolver: dns, minBitLength: SHORTEST_KEY_BITS, curTime: new Date(clock.now()), strict: true });
  } finally {
    if (input instanceof Readable) input.destroy(); // after a fault in the middle, so that the file is closed
  }
}

function unread(signed: boolean): Signatures {
  return { dkim: { signed, valid: false }, arc: { result: 'none' }, author: undefined, sound: [], unknown: [] };
}

/** What there is to verify: the whole message when something was signed, else only who says to have written it. */
function inputOf(start: Uint8Array, section: HeaderSection, source: RawSource): Readable | Buffer {
  const signed = section.fields.some((field) => SIGNATURE_FIELD.test(field.name));
  if (!signed) return headerOf(start, section.fields.filter((field) => field.name === 'from'));
  const fields = lookedAt(section.fields);
  if ('bytes' in source && source.bytes.length <= SMALL_BYTES && fields.length === section.fields.length) {
    return Buffer.from(source.bytes.buffer, source.bytes.byteOffset, source.bytes.byteLength);
  }
  return Readable.from(withBody(headerOf(start, fields), source, section.bodyAt), { objectMode: false });
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
function isSound(signature: DKIMResult): boolean {
  return signature.status.result === 'pass' && !signature.status.underSized;
}

function isUnknown(signature: DKIMResult): boolean {
  return signature.status.result === 'temperror' && !signature.status.comment?.includes(BUDGET_CODE);
}

async function checkChain(verified: DKIMVerifyResult, dns: DNSResolver): Promise<Verdicts['arc']> {
  const data = verified.arc;
  if (!data) return { result: 'none' };
  // The chain that dkimVerify found is what arc() wants; their types differ only in that one admits there may be none.
  const checked = await arc(data as ARCData, { resolver: dns, minBitLength: SHORTEST_KEY_BITS, strict: true });
  return { result: checked.status.result };
}

/** DMARC of the name in From. What the DNS kept from us may have aligned, and is then no failure. */
async function checkAuthor(sender: Sender, signatures: Signatures, dns: DNSResolver): Promise<Verdicts['dmarc']> {
  const { author, sound, unknown } = signatures;
  if (!author) return { result: 'permerror', ...NO_DMARC };
  const evaluate = (spfDomains: string[], keys: readonly DKIMResult[]) => evaluateDmarc({
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

const BUDGET_CODE = 'EBUDGET';
const CODES = {
  timeout: 'ETIMEOUT', refused: 'EREFUSED', budget: BUDGET_CODE, servfail: 'ESERVFAIL', malformed: 'EBADRESP', unreachable: 'ECONNREFUSED',
} as const;

/** Our resolver in the manner of node:dns, which is what mailauth expects: an array, or an error with a code. */
function lookUp(resolver: Resolver, budget: Budget): DNSResolver {
  const look = async (name: string, type: string): Promise<unknown[]> => {
    switch (type) {
      case 'TXT': return recordsOf(await resolver.resolve(name, 'TXT', budget)).map((text) => [text]);
      case 'MX': return [...recordsOf<MxRecord>(await resolver.resolve(name, 'MX', budget))];
      case 'A': case 'AAAA': case 'PTR': case 'CNAME': return [...recordsOf(await resolver.resolve(name, type, budget))];
      default: throw codedError('ENODATA');
    }
  };
  return look as DNSResolver; // whose type knows nothing of MX records
}

function recordsOf<T>(answer: Answer<T>): readonly T[] {
  if (answer.kind === 'records') return answer.records;
  throw codedError(answer.kind === 'failure' ? CODES[answer.reason] : answer.kind === 'nxdomain' ? 'ENOTFOUND' : 'ENODATA');
}

function codedError(code: string): Error {
  return Object.assign(new Error(code), { code });
}
