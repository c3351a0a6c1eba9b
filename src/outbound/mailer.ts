import { createTransport } from 'nodemailer';
import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import { allowedNetworks, type OpenNetworks } from '../base/networks.ts';
import type { Resolver } from '../dns/types.ts';
import { openConnection } from './connection.ts';
import { findExchanges } from './exchanges.ts';
import { type Hop, hopsTo, relayExchange } from './hops.ts';
import { parseRelay } from './relay.ts';
import { isElsewhere, isTlsFault, toOutcome } from './smtp-faults.ts';
import type { Mail, Mailer, MailOutcome } from './types.ts';

export interface MailerSettings extends OpenNetworks {
  /** What we call ourselves in EHLO, and what Message-IDs end in. */
  readonly hostname: string;
  /** The sender, in the header and in the envelope. */
  readonly from: string;
  /** `smtp://[user:password@]host:port`; empty: mail goes to the MX of its recipient. */
  readonly relay: string;
  /** Where an MX listens: 25. */
  readonly mxPort: number;
}

export interface MailerDeps {
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly ids: Ids;
}

/** For everything: names, all hosts, all addresses, TLS and the message. */
const DEADLINE_MS = 120_000;

/** Sends mail to the MX of its recipient, or through a relay. */
export function createMailer(settings: MailerSettings, deps: MailerDeps): Mailer {
  const allowed = allowedNetworks(settings);
  const relay = settings.relay === '' ? undefined : parseRelay(settings.relay);
  if (settings.relay !== '' && !relay) throw new Error('mail.relay is no smtp URL');
  const underWay = new Set<AbortController>();

  async function send(mail: Mail): Promise<MailOutcome> {
    const cut = new AbortController();
    const cancel = deps.clock.after(DEADLINE_MS, () => cut.abort());
    underWay.add(cut);
    try {
      return await Promise.race([carry(mail, cut.signal), cutOff(cut.signal)]);
    } finally {
      cancel();
      underWay.delete(cut);
    }
  }

  async function carry(mail: Mail, signal: AbortSignal): Promise<MailOutcome> {
    const domain = mail.to.slice(mail.to.lastIndexOf('@') + 1);
    const found = relay ? await relayExchange(relay, deps.resolver) : await findExchanges(deps.resolver, domain, allowed, deps.ids.jitter);
    if (found.kind !== 'found') return found;
    let last: MailOutcome = { kind: 'deferred', reason: 'no mail host has an address' };
    for (const hop of hopsTo(found.exchanges, relay, settings.mxPort)) {
      const outcome = await attempt(mail, hop, signal);
      if (outcome.kind !== 'elsewhere') return outcome;
      last = { kind: 'deferred', reason: outcome.reason };
      if (signal.aborted) break;
    }
    return last;
  }

  async function attempt(mail: Mail, hop: Hop, signal: AbortSignal): Promise<MailOutcome | { kind: 'elsewhere'; reason: string }> {
    try {
      await handOver(mail, hop, settings, deps.clock, signal);
      return { kind: 'sent' };
    } catch (error) {
      if (hop.tls === 'any' && isTlsFault(error) && !signal.aborted) return attempt(mail, { ...hop, tls: 'none' }, signal);
      const outcome = toOutcome(error, `${hop.host} (${hop.address})`);
      return isElsewhere(error) ? { kind: 'elsewhere', reason: outcome.reason } : outcome;
    }
  }

  return Object.freeze({
    send,
    stop() {
      for (const cut of underWay) cut.abort();
    },
  });
}

function cutOff(signal: AbortSignal): Promise<MailOutcome> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve({ kind: 'deferred', reason: 'it took too long' }), { once: true }));
}

/** One session with one server. Throws what nodemailer throws. */
async function handOver(mail: Mail, hop: Hop, { hostname, from }: MailerSettings, clock: Clock, signal: AbortSignal): Promise<void> {
  const socket = await openConnection(hop, clock, signal);
  const transport = createTransport({
    host: hop.host, port: hop.port, connection: socket, name: hostname, secure: hop.secure,
    ...(hop.tls === 'verified' ? { requireTLS: !hop.secure } : hop.tls === 'any' ? { opportunisticTLS: true } : { ignoreTLS: true }),
    tls: { rejectUnauthorized: hop.tls === 'verified' },
    ...(hop.auth && { auth: { ...hop.auth } }),
    disableFileAccess: true, disableUrlAccess: true, logger: false,
  });
  try {
    await transport.sendMail({
      from, to: mail.to, subject: mail.subject, text: mail.text, date: mail.at, messageId: `<${mail.id}@${hostname}>`,
      envelope: { from, to: mail.to },
      // RFC 3834 section 5: no vacation notices, please.
      headers: { 'Auto-Submitted': 'auto-generated' },
    });
  } finally {
    transport.close();
    socket.destroySoon();
  }
}
