import { isIP } from 'node:net';
import type { DNSResolver } from 'mailauth';
import { evaluateDmarc } from 'mailauth/lib/dmarc/index.js';
import { spf } from 'mailauth/lib/spf/index.js';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Budget, Resolver } from '../../dns/types.ts';
import { type Author, authorOfMessage } from '../../mail/author.ts';
import type { Envelope, SpfResult, Verdicts } from '../../mail/envelope.ts';
import {
  type HeaderSection,
  isHeadless,
  parseHeaderSection,
  type RawSource,
  readStart,
} from '../../mail/header-section.ts';
import { createBudget, createLookUp, createRecall, createShare, type Life, recalled } from './lookups.ts';
import { createSignatureReader, type ReadSignatures, type Signatures } from './signatures.ts';

// The parts instead of the whole: 'mailauth' itself also loads BIMI, MTA-STS and an HTTP client, which we never want.

export interface AuthenticatorSettings {
  /** What one message may ask of the DNS, and the milliseconds for all of it. */
  readonly questionsPerMessage: number;
  readonly budgetMs: number;
  /** Our name, for the SPF macro that wants to know who checks. */
  readonly hostname: string;
}

/**
 * Takes the verdicts of one message. Nothing that a message or the DNS does makes it throw. DMARC is about the author
 * that `authorOfMessage` finds, who is the one that the payload shows.
 */
export interface Authenticator {
  authenticate(source: RawSource, envelope: Envelope): Promise<Verdicts>;
}

interface Deps {
  readonly resolver: Resolver;
  readonly settings: AuthenticatorSettings;
  readonly clock: Clock;
}

interface Sender {
  readonly verdict: Verdicts['spf'];
  readonly domain: string | undefined;
}

/** A mailbox name without anything that needs a second look. */
const PLAIN_MAILBOX = /^[\w.+=-]{1,64}(?=@[^@]+$)/;
const NO_DMARC = { policy: null, aligned: false } as const;

/**
 * SPF, DKIM, DMARC and ARC, each on its share of one DNS budget: half the questions for SPF, a quarter for keys, the
 * rest for DMARC.
 */
export function createAuthenticator({ resolver, settings, clock }: Deps): Authenticator {
  const { questionsPerMessage: questions, budgetMs } = settings;
  const readSignatures = createSignatureReader(clock);
  const senders = createRecall<Sender>(clock);
  const policies = createRecall<Verdicts['dmarc']>(clock);
  // The library's type of a resolver knows nothing of MX records.
  const ask = (budget: Budget, note?: Life['note']) => createLookUp(resolver, budget, note) as DNSResolver;
  return frozen({
    async authenticate(source, envelope): Promise<Verdicts> {
      const budget = createBudget(questions, budgetMs, clock);
      const share = (part: number) => createShare(budget, Math.ceil(questions / part), budgetMs / 2, clock);
      const [sender, signed] = await Promise.all([
        recalled(senders, senderKey(envelope), (note) => checkSender(envelope, settings.hostname, ask(share(2), note))),
        readMessage(source, envelope, (...said) => readSignatures(...said, ask(share(4)))),
      ]);
      const checked = (note: Life['note']) => checkAuthor(sender, signed, ask(budget, note));
      const dmarc = await recalled(policies, policyKey(sender, signed), checked);
      return { spf: sender.verdict, dkim: signed.dkim, dmarc, arc: signed.arc };
    },
  });
}

/** What the message itself says, under whatever headers others put in front of it. */
interface MessageClaims extends Signatures {
  /** Undefined when the message could not be read. */
  readonly author: Author | undefined;
}

const UNSIGNED: Signatures = { dkim: { signed: false, valid: false }, arc: { result: 'none' }, sound: [], unknown: [] };

type SignatureInput = [section: HeaderSection, source: RawSource, authors: readonly string[]];
type SignaturesOf = (...said: SignatureInput) => ReturnType<ReadSignatures>;

/** The author first: no signature has a say in who that is. */
async function readMessage(
  source: RawSource,
  { mailFrom }: Envelope,
  signaturesOf: SignaturesOf,
): Promise<MessageClaims> {
  try {
    const start = await readStart(source);
    const named = authorOfMessage(start, mailFrom);
    if (isHeadless(start)) return { ...UNSIGNED, author: named };
    const section = parseHeaderSection(start);
    const author = agreed(named, section);
    return { ...(await signaturesOf(section, source, author.domains)), author };
  } catch {
    return { ...UNSIGNED, author: undefined };
  }
}

/** Who finds a From field where another reader finds none does not know what a signature covers. */
function agreed(author: Author, { fields, whole }: HeaderSection): Author {
  const count = fields.reduce((sum, { name }) => (name === 'from' ? sum + 1 : sum), 0);
  return whole && count === author.fields ? author : { ...author, certain: false };
}

/** Everything that SPF looks at. A plain mailbox name counts only in macros, and who uses those is not remembered. */
function senderKey({ mailFrom, client }: Envelope): string {
  return [client.address, client.helo, mailFrom.replace(PLAIN_MAILBOX, '').toLowerCase()].join('\0');
}

/** Everything that DMARC looks at. */
function policyKey(sender: Sender, { author, sound, unknown }: MessageClaims): string {
  const { domains, certain, fields } = author ?? {};
  return JSON.stringify([domains, certain, fields, sender.verdict.result, sender.domain, sound, unknown]);
}

/**
 * SPF of MAIL FROM, or of HELO for the null sender (RFC 7208 section 2.4). Without an address or a name there is
 * nothing to check.
 */
async function checkSender({ mailFrom, client }: Envelope, mta: string, dns: DNSResolver): Promise<Sender> {
  const { address, helo } = client;
  const known = address !== null && isIP(address) !== 0 && (mailFrom !== '' || Boolean(helo));
  if (!known) return { verdict: spfVerdict('none'), domain: undefined };
  try {
    const checked = await spf({ sender: mailFrom, ip: address, helo: helo ?? '', mta, resolver: dns, strict: true });
    return { verdict: spfVerdict(readSpfResult(checked.status.result)), domain: checked.domain };
  } catch {
    return { verdict: spfVerdict('permerror'), domain: undefined };
  }
}

/**
 * DMARC of the author. Where it is not certain who that is nothing passes: of all the domains that the author may be
 * from the strictest failure counts (RFC 7489 section 6.6.1), else it is an error of the message, or `none` where there
 * is no From field at all.
 */
async function checkAuthor(sender: Sender, signed: MessageClaims, dns: DNSResolver): Promise<Verdicts['dmarc']> {
  const { author } = signed;
  if (!author) return { result: 'permerror', ...NO_DMARC };
  const verdicts: Verdicts['dmarc'][] = [];
  for (const domain of author.domains) verdicts.push(await checkDomain(domain, sender, signed, dns));
  const [first] = verdicts;
  if (author.certain && first) return first;
  const failed = verdicts.filter(({ result }) => result === 'fail').toSorted((a, b) => strictness(b) - strictness(a));
  const away = verdicts.find(({ result }) => result === 'temperror');
  return failed[0] ?? away ?? { result: author.fields === 0 ? 'none' : 'permerror', ...NO_DMARC };
}

const STRICTNESS = [null, 'none', 'quarantine', 'reject'];

function strictness({ policy }: Verdicts['dmarc']): number {
  return STRICTNESS.indexOf(policy);
}

/** DMARC of one domain. What the DNS kept from us may have aligned, and is then no failure. */
async function checkDomain(
  domain: string,
  sender: Sender,
  { sound, unknown }: MessageClaims,
  dns: DNSResolver,
): Promise<Verdicts['dmarc']> {
  if (domain.startsWith('[')) return { result: 'none', ...NO_DMARC }; // an address literal publishes nothing
  const evaluate = (spfDomains: string[], keys: readonly string[]) =>
    evaluateDmarc({
      headerFrom: [`postmaster@${domain}`],
      fromFields: 1,
      resolver: dns,
      spfDomains,
      dkimDomains: keys.map((key) => ({ domain: key })),
    });
  const { verdict, domain: own } = sender;
  const domains = (word: string) => (verdict.result === word && own !== undefined ? [own] : []);
  try {
    const { response } = await evaluate(domains('pass'), sound);
    if (!response) return { result: 'permerror', ...NO_DMARC };
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

/** Consumers compare these texts, so they stay as they are: the explanations of pyspf, which wrote the field first. */
const DETAILS: Readonly<Record<SpfResult, string>> = {
  pass: 'sender SPF authorized',
  fail: 'SPF fail - not authorized',
  softfail: 'domain owner discourages use of this host',
  neutral: 'access neither permitted nor denied',
  none: '',
  temperror: 'temporary DNS error in processing',
  permerror: 'permanent error in processing',
};

/** The SPF verdict of a result word, with its fixed text. */
export function spfVerdict(result: SpfResult): Verdicts['spf'] {
  return { result, detail: DETAILS[result] };
}

/** Reads a result word; one that RFC 7208 section 2.6 does not know is an error that will not go away. */
export function readSpfResult(word: string): SpfResult {
  switch (word) {
    case 'pass':
    case 'fail':
    case 'softfail':
    case 'neutral':
    case 'none':
    case 'temperror':
      return word;
    default:
      return 'permerror';
  }
}
