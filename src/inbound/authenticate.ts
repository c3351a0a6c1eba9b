import { isIP } from 'node:net';
// The parts instead of the whole: 'mailauth' itself also loads BIMI, MTA-STS and an HTTP client, which we never want.
import { evaluateDmarc } from 'mailauth/lib/dmarc/index.js';
import { spf } from 'mailauth/lib/spf/index.js';
import type { DNSResolver } from 'mailauth';
import type { Clock } from '../base/clock.ts';
import { createBudget, createShare } from '../dns/budget.ts';
import type { Budget, Resolver } from '../dns/types.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import type { CheckedSignature } from './dkim/verify.ts';
import { createLookUp } from './look-up.ts';
import { createMemory, recalled, type Life } from './memory.ts';
import type { RawSource } from './raw-source.ts';
import { createSignatureReader, type Signatures } from './signatures.ts';
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

interface Sender { readonly verdict: Verdicts['spf']; readonly domain: string | undefined }

/** A mailbox name without anything that needs a second look. */
const PLAIN_MAILBOX = /^[\w.+=-]{1,64}(?=@[^@]+$)/;
const NO_DMARC = { policy: null, aligned: false } as const;

/** SPF, DKIM, DMARC and ARC, each on its share of one DNS budget: half the questions for SPF, a quarter for keys, the rest for DMARC. */
export function createAuthenticator({ resolver, settings, clock }: Deps): Authenticator {
  const { questionsPerMessage: questions, budgetMs } = settings;
  const readSignatures = createSignatureReader(clock);
  const senders = createMemory<Sender>(clock);
  const policies = createMemory<Verdicts['dmarc']>(clock);
  const ask = (budget: Budget, note?: Life['note']) => createLookUp(resolver, budget, note) as DNSResolver; // whose type knows nothing of MX records
  return Object.freeze({
    async authenticate(source: RawSource, envelope: Envelope): Promise<Verdicts> {
      const budget = createBudget(questions, budgetMs, clock);
      const share = (part: number) => createShare(budget, Math.ceil(questions / part), budgetMs / 2, clock);
      const [sender, signatures] = await Promise.all([
        recalled(senders, senderKey(envelope), (note) => checkSender(envelope, settings.hostname, ask(share(2), note))),
        readSignatures(source, ask(share(4))),
      ]);
      const dmarc = await recalled(policies, policyKey(sender, signatures), (note) => checkAuthor(sender, signatures, ask(budget, note)));
      return { spf: sender.verdict, dkim: signatures.dkim, dmarc, arc: signatures.arc };
    },
  });
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
