import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import { allowedNetworks, type OpenNetworks } from '../../base/networks.ts';
import type { Tools } from '../../base/tools.ts';
import type { Resolver } from '../../dns/types.ts';
import { parseAddress, toWire } from '../../mail/addresses/address.ts';
import type { MailAttempt } from '../../queue/settle.ts';
import type { MailTransport } from '../types.ts';
import {
  type Exchanges,
  findExchanges,
  type Hop,
  hopsToExchanges,
  hopsToRelay,
  parseRelay,
  relayExchange,
  type TlsRequirement,
} from './hops.ts';
import { createPolicies, createPolicyFetch, type Policies, policyAllows } from './mta-sts.ts';
import type { SmtpMessage } from './session.ts';
import { createClientSessions, type HostResult, type SendAttempt } from './sessions.ts';
import { createSourceNames } from './sources.ts';
import { createTranscript } from './transcript.ts';

export interface TransportSettings extends OpenNetworks {
  /** Our EHLO name, unless the source address has a name of its own. */
  readonly hostname: string;
  /** `smtp://[user:password@]host:port`; empty: mail goes to the MX of its recipient. */
  readonly relay: string;
  /** The name of the relay setting, for errors: `outbound.relay`. */
  readonly relaySetting: string;
  /** The port of MX hosts: 25. */
  readonly mxPort: number;
  /** For the whole attempt: DNS, all hosts, all addresses, TLS and the message. */
  readonly timeoutMs: number;
  /** For one address to get as far as MAIL FROM. */
  readonly hostTimeoutMs: number;
  readonly tls: 'opportunistic' | 'required' | 'off';
}

interface TransportDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly resolver: Resolver;
  readonly ids: Pick<Ids, 'jitter'>;
  /** Null: MTA-STS is off. */
  readonly policies: Policies | null;
}

type Mail = Parameters<MailTransport['send']>[0];
type RouteResult =
  | { readonly kind: 'hops'; readonly hops: Iterable<Hop> }
  | { readonly kind: 'nowhere'; readonly reason: string; readonly permanent: boolean };

const WISHES: Readonly<Record<TransportSettings['tls'], TlsRequirement>> = {
  opportunistic: 'any',
  required: 'encrypted',
  off: 'none',
};

/** Idle sessions kept per server. They use slots of other people's servers; a relay is ours, and gets all mail. */
const KEPT_TO_MX = 5;
const KEPT_TO_RELAY = 20;

/** Delivers mail to the MX hosts of its recipients, or to a relay. Throws if `relay` is not a valid relay URL. */
export function createMailTransport(settings: TransportSettings, deps: TransportDeps): MailTransport {
  const { resolver, clock, ids, log, policies } = deps;
  const allowed = allowedNetworks(settings);
  const relay = settings.relay === '' ? undefined : parseRelay(settings.relay);
  if (settings.relay !== '' && !relay) throw new Error(`${settings.relaySetting} is not an smtp:// or smtps:// URL`);
  const sessions = createClientSessions(
    { ...settings, mostPerWay: relay ? KEPT_TO_RELAY : KEPT_TO_MX },
    { clock, log, names: createSourceNames(settings.hostname, deps) },
  );
  const underWay = new Set<AbortController>();

  async function route(domain: string, sources: readonly string[]): Promise<RouteResult> {
    if (relay) {
      const found = await relayExchange(relay, resolver, settings.relaySetting);
      return found.kind === 'found'
        ? { kind: 'hops', hops: hopsToRelay(found.exchanges, relay, WISHES[settings.tls]) }
        : nowhere(found);
    }
    const [found, policy] = await Promise.all([
      findExchanges(resolver, domain, allowed, ids.jitter),
      policies?.of(domain),
    ]);
    if (found.kind !== 'found') return nowhere(found);
    if (policy?.mode !== 'enforce')
      return { kind: 'hops', hops: hopsToExchanges(found.exchanges, settings.mxPort, WISHES[settings.tls], sources) };
    const listed = found.exchanges.filter(({ host }) => policyAllows(policy, host));
    if (listed.length === 0)
      return {
        kind: 'nowhere',
        reason: `the MTA-STS policy of ${domain} lists none of its mail hosts`,
        permanent: false,
      };
    return { kind: 'hops', hops: hopsToExchanges(listed, settings.mxPort, 'verified', sources) };
  }

  async function tryHops(domain: string, sending: SendAttempt): Promise<AttemptResult> {
    const routed = await route(domain, sending.sources);
    if (routed.kind === 'nowhere') return unanswered(routed.reason, routed.permanent);
    let last: AttemptResult = unanswered('no mail host has an address');
    for (const hop of routed.hops) {
      const visit = await sessions.visit(hop, sending);
      const ended = toEnded(visit, hop);
      if (isDecided(visit)) return ended;
      // Among failed hosts, the result of one that replied is preferred.
      if (ended.kind === 'answered' || last.kind !== 'answered') last = ended;
      if (sending.signal.aborted) break;
    }
    return last;
  }

  async function carry({ composed, recipient, sourceAddresses }: Mail): Promise<MailAttempt> {
    const started = clock.monotonic();
    const addressed = addressLetter(composed.mailFrom, recipient, composed.bytes);
    if ('answer' in addressed) return addressed.answer;
    const transcript = createTranscript(clock);
    const cut = new AbortController();
    const cancel = clock.after(settings.timeoutMs, () => cut.abort());
    underWay.add(cut);
    try {
      const sending = { letter: addressed.letter, sources: sourceAddresses, signal: cut.signal, transcript };
      const ended = await Promise.race([tryHops(addressed.domain, sending), cutOff(cut.signal)]);
      const relayed = relay && ended.kind === 'answered' && { relayed: true };
      return { ...ended, ...relayed, durationMs: Math.round(clock.monotonic() - started), detail: transcript.text };
    } finally {
      cancel();
      underWay.delete(cut);
    }
  }

  return frozen({
    send: (mail) =>
      carry(mail).catch((error: unknown): MailAttempt => {
        log.error('delivery.fault', { error });
        return { ...unanswered('internal error'), durationMs: 0 };
      }),
    async stop() {
      for (const cut of underWay) cut.abort();
      sessions.stop();
    },
  });
}

type AttemptResult = MailAttempt extends infer A ? (A extends MailAttempt ? Omit<A, 'durationMs'> : never) : never;

function unanswered(reason: string, permanent = false): Extract<AttemptResult, { kind: 'unanswered' }> {
  return { kind: 'unanswered', reason, permanent };
}

function nowhere(found: Exclude<Exchanges, { kind: 'found' }>): RouteResult {
  return { kind: 'nowhere', reason: found.reason, permanent: found.kind === 'failed' };
}

/**
 * Whether to try no other host, because a server replied to the message, or may have it. Earlier failures concern only
 * the host, and 421 means that this host accepts nothing now (RFC 5321 section 3.8).
 */
function isDecided(visit: HostResult): boolean {
  if (visit.kind === 'unopened') return false;
  return visit.given || (visit.kind === 'replied' && visit.code !== 421);
}

function toEnded(visit: HostResult, { host, address }: Hop): AttemptResult {
  if (visit.kind !== 'replied') {
    const given = visit.kind === 'lost' && visit.given;
    return { ...unanswered(`${host} (${address}): ${visit.reason}`), ...(given && { given }) };
  }
  const { code, diag, source, tls } = visit;
  return { kind: 'answered', code, diag, host, address, source, tls };
}

function cutOff(signal: AbortSignal): Promise<AttemptResult> {
  return new Promise((resolve) =>
    signal.addEventListener('abort', () => resolve(unanswered('timed out')), { once: true }),
  );
}

/** A reply that we generate ourselves, without asking a server. */
function ownAnswer(code: number, diag: string): MailAttempt {
  return { kind: 'answered', code, diag, host: '', address: '', source: null, tls: false, durationMs: 0 };
}

/** Characters that must not get into a command: they would end the line, the path, or the argument. */
const UNSAFE = /[\s<>\p{Cc}]/u;

/**
 * The message as its SMTP commands need it and the domain to deliver to, or the reply that rejects it. The domain is in
 * A-labels, so that it does not require SMTPUTF8.
 */
function addressLetter(
  mailFrom: string,
  recipient: string,
  bytes: Uint8Array,
): { readonly letter: SmtpMessage; readonly domain: string } | { readonly answer: MailAttempt } {
  const to = UNSAFE.test(recipient) ? undefined : parseAddress(recipient);
  if (!to || to.domain.startsWith('[')) return { answer: ownAnswer(553, '5.1.3 Bad recipient address syntax') };
  const from = mailFrom === '' ? '' : UNSAFE.test(mailFrom) ? undefined : parseAddress(mailFrom);
  if (from === undefined) return { answer: ownAnswer(553, '5.1.7 Bad sender address syntax') };
  return { domain: to.domain, letter: { mailFrom, recipient: toWire(to), bytes } };
}

type Way = Pick<TransportSettings, 'relay' | 'mxPort'>;

interface CarriersSettings extends Omit<TransportSettings, keyof Way | 'relaySetting'> {
  /** For notices: `mail.relay`, `mail.mx_port`. */
  readonly own: Way;
  /** For accounts' mail: `outbound.relay`, `outbound.mx_port`. */
  readonly accounts: Way;
  readonly mtaSts: boolean;
}

const HTTPS_PORT = 443;

/** Creates the carriers for notices and for accounts' mail; they share the MTA-STS policies. */
export function createMailTransports(
  { own, accounts, mtaSts, ...settings }: CarriersSettings,
  deps: Omit<TransportDeps, 'policies'>,
): { readonly own: MailTransport; readonly accounts: MailTransport } {
  const fetchPolicy = createPolicyFetch({ allowed: allowedNetworks(settings), port: HTTPS_PORT }, deps);
  const policies = mtaSts ? createPolicies({ ...deps, fetchPolicy }) : null;
  const carrierOf = (relaySetting: string, way: Way) =>
    createMailTransport({ ...settings, ...way, relaySetting }, { ...deps, policies });
  return { own: carrierOf('mail.relay', own), accounts: carrierOf('outbound.relay', accounts) };
}
