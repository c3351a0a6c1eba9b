import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import type { MailAttempt } from '../../src/queue/settle.ts';
import { createMailTransport, type TransportSettings } from '../../src/sending/transport/mail-transport.ts';
import type { Policies } from '../../src/sending/transport/mta-sts.ts';
import type { MailTransport } from '../../src/sending/types.ts';
import { createTestLog } from './log.ts';
import { type Script, type ScriptedOptions, type ScriptedServer, startScriptedSmtp } from './scripted-smtp.ts';
import { type ZoneRecords, zoneResolver } from './zone.ts';

export const HELLO = 'From: a@sender.example\r\nTo: b@example.com\r\nSubject: hello\r\n\r\nhello\r\n';

/** One host, on 127.0.0.1. */
export const ONE_MX: ZoneRecords = {
  'example.com': { MX: [{ exchange: 'mx.example.com', priority: 10 }] },
  'mx.example.com': { A: ['127.0.0.1'] },
};

/** A preferred host on 127.0.0.1 and another on 127.0.0.11, both on one port. */
export const TWO_MX: ZoneRecords = {
  'example.com': {
    MX: [
      { exchange: 'second.example.com', priority: 20 },
      { exchange: 'mx.example.com', priority: 10 },
    ],
  },
  'mx.example.com': { A: ['127.0.0.1'] },
  'second.example.com': { A: ['127.0.0.11'] },
};

interface Wanted extends Partial<TransportSettings> {
  readonly zone?: ZoneRecords;
  readonly clock?: Clock;
  readonly policies?: Policies;
}

/** Servers and carriers of one test, ended together. */
export function createCarrierWorld() {
  const servers: ScriptedServer[] = [];
  const transports: MailTransport[] = [];
  const log = createTestLog();
  return {
    log,
    async server(script?: Script, options?: ScriptedOptions): Promise<ScriptedServer> {
      const server = await startScriptedSmtp(script, options);
      servers.push(server);
      return server;
    },
    /** A carrier to the port of the first server. */
    carrier({ zone = ONE_MX, clock = systemClock, policies, ...settings }: Wanted = {}): MailTransport {
      const carrier = createMailTransport(
        {
          hostname: 'out.postern.test',
          relay: '',
          relaySetting: 'outbound.relay',
          mxPort: servers[0]?.port ?? 25,
          timeoutMs: 60_000,
          hostTimeoutMs: 30_000,
          tls: 'opportunistic',
          allowPrivate: ['127.0.0.0/8'],
          loopbackOnly: false,
          ...settings,
        },
        { resolver: zoneResolver(zone), clock, ids: createIds(clock), log, policies: policies ?? null },
      );
      transports.push(carrier);
      return carrier;
    },
    async stop(): Promise<void> {
      await Promise.all(transports.splice(0).map((carrier) => carrier.stop()));
      await Promise.all(servers.splice(0).map((server) => server.stop()));
    },
  };
}

/** Carries one message; what is not said is that of a plain one. */
export function carry(
  carrier: MailTransport,
  mail: { text?: string | Uint8Array; mailFrom?: string; recipient?: string; sources?: readonly string[] } = {},
): Promise<MailAttempt> {
  const { text = HELLO, mailFrom = 'bounce@sender.example', recipient = 'b@example.com', sources = [] } = mail;
  return carrier.send({
    composed: { bytes: typeof text === 'string' ? Buffer.from(text) : text, mailFrom, links: [] },
    recipient,
    sourceAddresses: sources,
  });
}
