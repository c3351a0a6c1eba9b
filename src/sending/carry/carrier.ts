import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { allowedNetworks, type OpenNetworks } from '../../base/networks.ts';
import type { Resolver } from '../../dns/types.ts';
import { parseAddress } from '../../mail/address.ts';
import type { MailAttempt } from '../../queue/settle.ts';
import type { MailCarrier } from '../types.ts';
import {
  type Exchanges,
  findExchanges,
  type Hop,
  hopsToExchanges,
  hopsToRelay,
  parseRelay,
  relayExchange,
  type TlsWish,
} from './hops.ts';
import { createPolicies, createPolicyFetch, type Policies, policyAllows } from './mta-sts.ts';

import type { Letter } from './session.ts';
import { createSessions, type Visit } from './sessions.ts';
import { createSourceNames } from './sources.ts';

export interface CarrierSettings extends OpenNetworks {
  /** What we call ourselves in EHLO, unless we come from an address with a name of its own. */
  readonly hostname: string;
  /** `smtp://[user:password@]host:port`; empty: mail goes to the MX of its recipient. */
  readonly relay: string;
  /** What the operator calls the relay: `outbound.relay`. */
  readonly relaySetting: string;
  /** Where an MX listens: 25. */
  readonly mxPort: number;
  /** For everything: names, all hosts, all addresses, TLS and the message. */
  readonly timeoutMs: number;
  /** For one address to come as far as MAIL FROM. */
  readonly hostTimeoutMs: number;
  readonly tls: 'opportunistic' | 'required' | 'off';
}

interface CarrierDeps {
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly ids: Pick<Ids, 'jitter'>;
  readonly log: Log;
  /** Null: MTA-STS is off. */
  readonly policies: Policies | null;
}

type Mail = Parameters<MailCarrier['carry']>[0];
type RouteResult =
  | { readonly kind: 'hops'; readonly hops: Iterable<Hop> }
  | { readonly kind: 'nowhere'; readonly reason: string; readonly permanent: boolean };

const WISHES: Readonly<Record<CarrierSettings['tls'], TlsWish>> = {
  opportunistic: 'any',
  required: 'encrypted',
  off: 'none',
};

/** Idle sessions are a place taken at somebody else's; a relay is the operator's own, and takes everything. */
const KEPT_TO_MX = 5;
const KEPT_TO_RELAY = 20;

/** Carries mail to the MX hosts of its recipients, or to a relay. Throws when `relay` is no URL of one. */
export function createMailCarrier(settings: CarrierSettings, deps: CarrierDeps): MailCarrier {
  const { resolver, clock, ids, log, policies } = deps;
  const allowed = allowedNetworks(settings);
  const relay = settings.relay === '' ? undefined : parseRelay(settings.relay);
  if (settings.relay !== '' && !relay) throw new Error(`${settings.relaySetting} is not an smtp:// or smtps:// URL`);
  const sessions = createSessions(
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

  async function travel(
    domain: string,
    letter: Letter,
    sources: readonly string[],
    signal: AbortSignal,
  ): Promise<AttemptResult> {
    const routed = await route(domain, sources);
    if (routed.kind === 'nowhere') return unanswered(routed.reason, routed.permanent);
    let last: AttemptResult = unanswered('no mail host has an address');
    for (const hop of routed.hops) {
      const visit = await sessions.visit(hop, letter, sources, signal);
      const ended = toEnded(visit, hop);
      if (isDecided(visit)) return ended;
      // Of hosts that would not, the one that said so is worth more than one that was silent.
      if (ended.kind === 'answered' || last.kind !== 'answered') last = ended;
      if (signal.aborted) break;
    }
    return last;
  }

  async function carry({ composed, recipient, sourceAddresses }: Mail): Promise<MailAttempt> {
    const started = clock.monotonic();
    const addressed = addressLetter(composed.mailFrom, recipient, composed.bytes);
    if ('answer' in addressed) return addressed.answer;
    const cut = new AbortController();
    const cancel = clock.after(settings.timeoutMs, () => cut.abort());
    underWay.add(cut);
    try {
      const ended = await Promise.race([
        travel(addressed.domain, addressed.letter, sourceAddresses, cut.signal),
        cutOff(cut.signal),
      ]);
      return { ...ended, durationMs: Math.round(clock.monotonic() - started) };
    } finally {
      cancel();
      underWay.delete(cut);
    }
  }

  return frozen({
    carry: (mail) =>
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
 * Whether no other host is tried: a server replied to the message, or may have it. What kept it from coming so far is
 * of the host, and 421 says that this host takes nothing now (RFC 5321 section 3.8).
 */
function isDecided(visit: Visit): boolean {
  if (visit.kind === 'unopened') return false;
  return visit.given || (visit.kind === 'replied' && visit.code !== 421);
}

function toEnded(visit: Visit, { host, address }: Hop): AttemptResult {
  if (visit.kind !== 'replied') return unanswered(`${host} (${address}): ${visit.reason}`);
  const { code, diag, source, tls } = visit;
  return { kind: 'answered', code, diag, host, address, source, tls };
}

function cutOff(signal: AbortSignal): Promise<AttemptResult> {
  return new Promise((resolve) =>
    signal.addEventListener('abort', () => resolve(unanswered('timed out')), { once: true }),
  );
}

/** A reply that we give ourselves, because no server needs to be asked. */
function ownAnswer(code: number, diag: string): MailAttempt {
  return { kind: 'answered', code, diag, host: '', address: '', source: null, tls: false, durationMs: 0 };
}

/** What must not get into a command: it would end the line, the path, or the argument. */
const UNSAFE = /[\s<>\p{Cc}]/u;

/**
 * The letter as the commands will say it, and the domain to carry it to; or why there is none. A domain is written in
 * A-labels, so that its letters alone need no SMTPUTF8.
 */
function addressLetter(
  mailFrom: string,
  recipient: string,
  bytes: Uint8Array,
): { readonly letter: Letter; readonly domain: string } | { readonly answer: MailAttempt } {
  const to = UNSAFE.test(recipient) ? undefined : parseAddress(recipient);
  if (!to || to.domain.startsWith('[')) return { answer: ownAnswer(553, '5.1.3 Bad recipient address syntax') };
  const from = mailFrom === '' ? '' : UNSAFE.test(mailFrom) ? undefined : parseAddress(mailFrom);
  if (from === undefined) return { answer: ownAnswer(553, '5.1.7 Bad sender address syntax') };
  const local = recipient.slice(0, recipient.lastIndexOf('@'));
  return { domain: to.domain, letter: { mailFrom, recipient: `${local}@${to.domain}`, bytes } };
}

type Way = Pick<CarrierSettings, 'relay' | 'mxPort'>;

interface CarriersSettings extends Omit<CarrierSettings, keyof Way | 'relaySetting'> {
  /** For mail of our own: `mail.relay`, `mail.mx_port`. */
  readonly own: Way;
  /** For mail of accounts: `outbound.relay`, `outbound.mx_port`. */
  readonly accounts: Way;
  readonly mtaSts: boolean;
}

const HTTPS_PORT = 443;

/** The carriers of our own mail and of that of accounts, which know the same policies. */
export function createMailCarriers(
  { own, accounts, mtaSts, ...settings }: CarriersSettings,
  deps: Omit<CarrierDeps, 'policies'>,
): { readonly own: MailCarrier; readonly accounts: MailCarrier } {
  const fetchPolicy = createPolicyFetch({ allowed: allowedNetworks(settings), port: HTTPS_PORT }, deps);
  const policies = mtaSts ? createPolicies({ ...deps, fetchPolicy }) : null;
  const carrierOf = (relaySetting: string, way: Way) =>
    createMailCarrier({ ...settings, ...way, relaySetting }, { ...deps, policies });
  return { own: carrierOf('mail.relay', own), accounts: carrierOf('outbound.relay', accounts) };
}
