import { isIP } from 'node:net';
import type { DNSResolver } from 'mailauth';
import { evaluateDmarc } from 'mailauth/lib/dmarc/index.js';
import { spf } from 'mailauth/lib/spf/index.js';
import type { Bytes } from '../../base/bytes.ts';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { namesOf } from '../../base/tables.ts';
import { createDnsBudget, type DnsBudget, type Resolver } from '../../dns/types.ts';
import { type Author, authorOfMessage } from '../../mail/addresses/author.ts';
import type { Envelope, SpfResult, Verdicts } from '../../mail/addresses/envelope.ts';
import {
  type HeaderSection,
  isHeadless,
  isOverlong,
  parseHeaderSection,
  readHeaderStart,
} from '../../mail/mime/header-section.ts';
import { type CacheLifetime, cachedVerdict, createLookUp, createShare, createVerdictCache } from './lookups.ts';
import { createSignatureReader, type ReadSignatures, type Signatures } from './signatures.ts';

// Submodules only: 'mailauth' itself also loads BIMI, MTA-STS and an HTTP client, which we do not need.

interface AuthenticatorSettings {
  /** DNS queries per message, and the time for all of them in milliseconds. */
  readonly questionsPerMessage: number;
  readonly budgetMs: number;
  /** Our host name, for the SPF macro `%{r}` (the host that performs the check). */
  readonly hostname: string;
  /** Domains whose ARC seals are believed; A-labels. */
  readonly trustedSealers: readonly string[];
}

/**
 * Computes the verdicts of one message. Never rejects because of a message or the DNS. DMARC is checked for the author
 * that `authorOfMessage` finds, which is the one in the payload.
 */
export type Authenticator = ReturnType<typeof createAuthenticator>;

interface Deps {
  readonly resolver: Resolver;
  readonly settings: AuthenticatorSettings;
  readonly clock: Clock;
}

interface Sender {
  readonly verdict: Verdicts['spf'];
  readonly domain: string | undefined;
}

/** The DMARC verdict, and the d= of the signatures that passed and are aligned with the author. */
interface Policy {
  readonly dmarc: Verdicts['dmarc'];
  readonly aligned: readonly string[];
}

/** A local part of ordinary characters only. */
const PLAIN_MAILBOX = /^[\w.+=-]{1,64}(?=@[^@]+$)/;
const NO_DMARC = { policy: null, aligned: false } as const;

/**
 * Creates a part that checks SPF, DKIM, DMARC and ARC on one DNS budget: half of the queries for SPF, a quarter for
 * keys, the rest for DMARC.
 */
export function createAuthenticator({ resolver, settings, clock }: Deps) {
  const { questionsPerMessage: questions, budgetMs } = settings;
  const trusted = new Set(settings.trustedSealers);
  const readSignatures = createSignatureReader(clock);
  const senders = createVerdictCache<Sender>(clock);
  const policies = createVerdictCache<Policy>(clock);
  const askFor = (open: Set<string> | undefined) => (budget: DnsBudget, note?: CacheLifetime['note']) =>
    // biome-ignore lint/plugin: mailauth's resolver type lacks MX records
    createLookUp(resolver, budget, note, open) as DNSResolver;
  return frozen({
    /** Keeps the DNS questions that are waiting for an answer in `open`. */
    async authenticate(source: Bytes, envelope: Envelope, open?: Set<string>): Promise<Verdicts> {
      const ask = askFor(open);
      const budget = createDnsBudget(questions, budgetMs, clock);
      const share = (part: number) => createShare(budget, Math.ceil(questions / part), budgetMs / 2, clock);
      const [sender, signed] = await Promise.all([
        cachedVerdict(senders, senderKey(envelope), (note) =>
          checkSender(envelope, settings.hostname, ask(share(2), note)),
        ),
        readMessage(source, envelope, (...input) => readSignatures(...input, ask(share(4)))),
      ]);
      const checked = (note: CacheLifetime['note']) => checkAuthor(sender, signed, ask(budget, note));
      const { dmarc, aligned } = await cachedVerdict(policies, policyKey(sender, signed), checked);
      const evidence = {
        spf: sender.domain ?? null,
        dkim: signed.checked.map((one) => ({ ...one, aligned: one.result === 'pass' && aligned.includes(one.domain) })),
        arc: { sealers: signed.seals.map(({ domain }) => domain), trusted: isVouchedFor(signed, trusted) },
      };
      return { spf: sender.verdict, dkim: signed.dkim, dmarc, arc: signed.arc, evidence };
    },
  });
}

/** What the message itself claims: its author and signatures. */
interface MessageClaims extends Signatures {
  /** Undefined if the message could not be read. */
  readonly author: Author | undefined;
}

const UNSIGNED: Signatures = {
  dkim: { signed: false, valid: false },
  checked: [],
  arc: { result: 'none' },
  seals: [],
  sound: [],
  unknown: [],
};

type SignatureInput = [section: HeaderSection, source: Bytes, authors: readonly string[]];
type SignaturesOf = (...input: SignatureInput) => ReturnType<ReadSignatures>;

/**
 * A header that is too large to read: nothing in it counts, and it does not look as if the message were merely
 * unsigned. No field that a sender adds may turn a failure into `none`. ARC knows no permerror (RFC 8617 section 4.4).
 */
const OVERLONG: MessageClaims = {
  ...UNSIGNED,
  author: undefined,
  dkim: { signed: true, valid: false },
  checked: [{ domain: '', selector: '', result: 'permerror' }],
  arc: { result: 'fail' },
};

/** Reads the author first; signatures do not influence who that is. */
async function readMessage(source: Bytes, { mailFrom }: Envelope, signaturesOf: SignaturesOf): Promise<MessageClaims> {
  try {
    const start = await readHeaderStart(source);
    if (isOverlong(start)) return OVERLONG;
    const named = authorOfMessage(start, mailFrom);
    if (isHeadless(start)) return { ...UNSIGNED, author: named };
    const section = parseHeaderSection(start);
    const author = checkFromFields(named, section);
    return { ...(await signaturesOf(section, source, author.domains)), author };
  } catch {
    return { ...UNSIGNED, author: undefined };
  }
}

/** Makes the author uncertain unless both parsers find the same number of From fields: it is unclear what is signed. */
function checkFromFields(author: Author, { fields, whole }: HeaderSection): Author {
  const count = fields.reduce((sum, { name }) => (name === 'from' ? sum + 1 : sum), 0);
  return whole && count === author.fields ? author : { ...author, certain: false };
}

/** All inputs of SPF. A plain local part matters only in macros, and results with macros are not cached. */
function senderKey({ mailFrom, client }: Envelope): string {
  return [client.address, client.helo, mailFrom.replace(PLAIN_MAILBOX, '').toLowerCase()].join('\0');
}

/** All inputs of DMARC. */
function policyKey(sender: Sender, { author, sound, unknown }: MessageClaims): string {
  const { domains, certain, crowded, fields } = author ?? {};
  return JSON.stringify([domains, certain, crowded, fields, sender.verdict.result, sender.domain, sound, unknown]);
}

/**
 * Checks SPF of MAIL FROM, or of HELO for the null sender (RFC 7208 section 2.4). The result is `none` without a
 * client address, or without both names.
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
 * Checks DMARC of the author. If the author is uncertain, nothing passes: the strictest failure of all possible author
 * domains counts (RFC 7489 section 6.6.1), then a temporary error; otherwise the result is `permerror`, `fail` if there
 * are more domains than are checked, or `none` if there is no From field at all.
 */
async function checkAuthor(sender: Sender, signed: MessageClaims, dns: DNSResolver): Promise<Policy> {
  const { author } = signed;
  if (!author) return { dmarc: { result: 'permerror', ...NO_DMARC }, aligned: [] };
  const policies: Policy[] = [];
  for (const domain of author.domains) policies.push(await checkDomain(domain, sender, signed, dns));
  const [first] = policies;
  if (author.certain && first) return first;
  const verdicts = policies.map(({ dmarc }) => dmarc);
  const failed = verdicts.filter(({ result }) => result === 'fail').toSorted((a, b) => strictness(b) - strictness(a));
  const temporary = verdicts.find(({ result }) => result === 'temperror');
  // A domain that is not checked may be the one that fails.
  const rest = author.fields === 0 ? 'none' : author.crowded ? 'fail' : 'permerror';
  return { dmarc: failed[0] ?? temporary ?? { result: rest, ...NO_DMARC }, aligned: [] };
}

const STRICTNESS = [null, 'none', 'quarantine', 'reject'];

function strictness({ policy }: Verdicts['dmarc']): number {
  return STRICTNESS.indexOf(policy);
}

/** Checks DMARC of one domain. A failure is `temperror` if a check that failed in the DNS might have aligned. */
async function checkDomain(
  domain: string,
  sender: Sender,
  { sound, unknown }: MessageClaims,
  dns: DNSResolver,
): Promise<Policy> {
  const unaligned = (dmarc: Verdicts['dmarc']): Policy => ({ dmarc, aligned: [] });
  if (domain.startsWith('[')) return unaligned({ result: 'none', ...NO_DMARC }); // an address literal publishes nothing
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
    const { response, dkimAligned } = await evaluate(domains('pass'), sound);
    if (!response) return unaligned({ result: 'permerror', ...NO_DMARC });
    const policy = response.policy ?? null; // absent when there is no record
    const result = response.status.result;
    const doubtful = domains('temperror');
    if (result === 'fail' && doubtful.length + unknown.length > 0) {
      const { response: other } = await evaluate(doubtful, unknown);
      if (other && other.status.result !== 'fail') return unaligned({ result: 'temperror', policy, aligned: false });
    }
    return { dmarc: { result, policy, aligned: result === 'pass' }, aligned: [...(dkimAligned ?? [])] };
  } catch {
    return unaligned({ result: 'permerror', ...NO_DMARC });
  }
}

/**
 * Whether trusted sealers vouch for the author: they hold the newest seals without a gap, and the oldest of them says
 * that DMARC passed for the author's domain when the message came to it. What lies before them may be forged.
 */
function isVouchedFor({ author, seals }: MessageClaims, trusted: ReadonlySet<string>): boolean {
  const stranger = seals.findIndex(({ domain }) => !trusted.has(domain));
  const oldest = seals[(stranger < 0 ? seals.length : stranger) - 1];
  return author?.certain === true && oldest?.passed !== undefined && oldest.passed === author.domains[0];
}

/** Clients compare these texts, so they must not change: they are the explanations of pyspf, which defined them. */
const DETAILS: Readonly<Record<SpfResult, string>> = {
  pass: 'sender SPF authorized',
  fail: 'SPF fail - not authorized',
  softfail: 'domain owner discourages use of this host',
  neutral: 'access neither permitted nor denied',
  none: '',
  temperror: 'temporary DNS error in processing',
  permerror: 'permanent error in processing',
};

/** The SPF verdict of a result, with its fixed text. */
function spfVerdict(result: SpfResult): Verdicts['spf'] {
  return { result, detail: DETAILS[result] };
}

/** Parses an SPF result; one that is not in RFC 7208 section 2.6 becomes `permerror`. */
function readSpfResult(word: string): SpfResult {
  return namesOf(DETAILS).find((known) => known === word) ?? 'permerror';
}
