import { generateKeyPair } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingHttpHeaders } from 'node:http';
import type { Server } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { frozen } from '../../base/frozen.ts';
import type { HostPort } from '../../base/networks.ts';

// The environment of a demo: a webhook receiver, a mail server, a name server, and clients.

/** The sender domain of the mail that comes in. */
export const SENDER_DOMAIN = 'example.org';
const SELECTOR = 'demo';

export type ApiCall = (path: string, params: object) => Promise<unknown>;

/** Calls operations of the API at a base URL. */
export function caller(base: string, key: string): ApiCall {
  return async (path, params) => {
    const response = await fetch(`${base}${path}.json`, { method: 'POST', body: JSON.stringify({ key, ...params }) });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`${path} failed: ${JSON.stringify(answer)}`);
    return answer;
  };
}

interface Letter {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html?: string;
  readonly attachments?: { readonly filename: string; readonly content: string }[];
}

/** How long, and at which interval, mail is sent again after a temporary refusal. Milliseconds. */
const RESEND_FOR_MS = 60_000;
const RESEND_EVERY_MS = 1000;

/** Sends a message by SMTP, signed for the sender domain. Tries again after a 4xx reply, like any mail server. */
export async function sendMail({ host, port }: HostPort, privateKey: string, letter: Letter): Promise<string> {
  const { createTransport } = await import('nodemailer');
  const dkim = { domainName: SENDER_DOMAIN, keySelector: SELECTOR, privateKey };
  const transport = createTransport({ host, port, ignoreTLS: true, name: `mail.${SENDER_DOMAIN}`, dkim });
  const late = performance.now() + RESEND_FOR_MS;
  for (;;) {
    try {
      const { response } = await transport.sendMail({ from: `Ada Lovelace <ada@${SENDER_DOMAIN}>`, ...letter });
      return response;
    } catch (error) {
      if (!isTemporary(error) || performance.now() > late) throw error;
      await setTimeout(RESEND_EVERY_MS);
    }
  }
}

const isTemporary = (error: unknown): boolean =>
  error instanceof Error && 'responseCode' in error && String(error.responseCode).startsWith('4');

/** A received POST. */
export interface Caught {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** The webhook receiver: answers a POST with the status from `onPost`, other requests with 200. */
export async function startCatcher(onPost: (caught: Caught) => number) {
  const server = createHttpServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    // Adding a route probes its URL with HEAD.
    if (request.method === 'POST')
      response.statusCode = onPost({ path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) });
    response.end(response.statusCode === 200 ? 'ok' : 'down');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    async stop(): Promise<void> {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** The mail server of the recipients, which accepts all mail. */
export async function startMailServer(onMail: (raw: string) => void) {
  const { SMTPServer } = await import('smtp-server');
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    disableReverseLookup: true,
    logger: false,
    closeTimeout: 0,
    onData(stream, _session, done) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        onMail(Buffer.concat(chunks).toString());
        done();
      });
    },
  });
  server.on('error', () => {}); // a host that is killed leaves its sessions
  const listening = server.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  return { port: portOf(listening), stop: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

/** Text of a TXT record goes in strings of at most 255 octets (RFC 1035 section 3.3.14). */
const MAX_STRING = 255;
const TTL = 300;
const NXDOMAIN = 3;

/**
 * Starts a name server on loopback for the sender domain, with a new DKIM key, so that SPF, DKIM and DMARC pass on a
 * machine without a network. Every other name is NXDOMAIN.
 */
export async function startDemoZone() {
  const { publicKey, privateKey } = await promisify(generateKeyPair)('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  const texts: ReadonlyMap<string, string> = new Map([
    [SENDER_DOMAIN, 'v=spf1 ip4:127.0.0.1 -all'],
    [`${SELECTOR}._domainkey.${SENDER_DOMAIN}`, `v=DKIM1; k=rsa; p=${publicKey.toString('base64')}`],
    [`_dmarc.${SENDER_DOMAIN}`, 'v=DMARC1; p=reject'],
  ]);
  const { createServer, Packet } = await import('dns2');
  const toRecord = (name: string, data: string) => {
    const strings = data.match(new RegExp(`.{1,${MAX_STRING}}`, 'g')) ?? [];
    return Object.assign(new Packet.Resource(name, Packet.TYPE.TXT, Packet.CLASS.IN, TTL), { data: strings });
  };
  const server = createServer({
    udp: true,
    handle(request, send) {
      const answer = Packet.createResponseFromRequest(request);
      const [question] = request.questions;
      const text = texts.get(question?.name.toLowerCase() ?? '');
      if (text === undefined) answer.header.rcode = NXDOMAIN;
      else if (question?.type === Packet.TYPE.TXT) answer.answers.push(toRecord(question.name, text));
      // The client may be gone at the end of the demo.
      void send(answer).catch(() => {});
    },
  });
  const { udp } = await server.listen({ udp: { port: 0, address: '127.0.0.1' } });
  return frozen({
    /** `127.0.0.1:port`, for `dns.servers`. */
    server: `127.0.0.1:${udp?.port ?? 0}`,
    /** The DKIM key, as PEM. */
    privateKey,
    stop: () => server.close(),
  });
}
