import { generateKeyPair } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { systemClock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createIds } from '../base/ids.ts';
import { createLog } from '../base/log.ts';
import { loadSettings } from '../config.ts';
import { mandrillSignature, standardSignature } from '../webhooks/signing.ts';
import { type Command, EXIT, type Io } from './command.ts';

const ONCE_MS = 12_000;

/** The sender domain of the demo's message. */
const SENDER_DOMAIN = 'example.org';
const SELECTOR = 'demo';

export const demo: Command = {
  name: 'demo',
  summary:
    'Shows the main path: a real message comes in by SMTP and goes out as a signed webhook POST. Needs no setup and leaves nothing behind.',
  options: {
    once: {
      type: 'boolean',
      help: 'exit after the first POST: 0 if it arrived, SPF, DKIM and DMARC pass and both signatures are valid, else 1',
    },
  },
  async run(call, io) {
    const folder = await mkdtemp(join(tmpdir(), 'postern-demo-'));
    try {
      return await runDemo(folder, call.flag('once'), io);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
};

async function runDemo(folder: string, once: boolean, io: Io): Promise<number> {
  const posts = queue<Caught>();
  const [catcher, zone] = await Promise.all([startCatcher(posts.push), startDemoZone()]);
  const { settings, shown } = demoSettings(folder, zone.server);
  const { openDaemon } = await import('../daemon.ts');
  const { createPrometheus } = await import('../base/prometheus.ts');
  const daemon = await openDaemon(settings, {
    role: 'daemon',
    shown,
    log: createLog('silent'),
    clock: systemClock,
    ids: createIds(systemClock),
    metrics: createPrometheus({ clock: systemClock }, { ofProcess: false }),
  });
  try {
    const {
      smtp: [place],
      http,
      firstKey,
    } = await daemon.start();
    if (!place || !firstKey) throw new Error('the daemon did not start');
    io.out(
      `1. Postern is running in a temporary folder: SMTP on ${place.host}:${place.port}, API on ${http.host}:${http.port}\n`,
    );
    const key = await addRoute(caller(`http://${http.host}:${http.port}/api/1.0`, firstKey.key), catcher.url, io);
    const { response } = await send(place, zone.privateKey);
    io.out(`3. A message from ${SENDER_DOMAIN}, signed with DKIM, was sent by SMTP; the reply was: ${response}\n`);

    const print = (caught: Caught) => report(caught, key, catcher.url, io);
    const caught = await posts.next(ONCE_MS);
    if (!caught) {
      io.err(`Nothing was posted within ${ONCE_MS / 1000} seconds.\n`);
      return EXIT.failed;
    }
    const good = print(caught);
    if (once) return good ? EXIT.ok : EXIT.failed;
    return await goOn(io, `${place.host}:${place.port}`, posts.next, print);
  } finally {
    await daemon.stop();
    await Promise.all([catcher.stop(), zone.stop()]);
  }
}

/** The defaults on free ports, without the operator's file, environment and name servers. */
function demoSettings(folder: string, nameServer: string) {
  return loadSettings(undefined, {
    POSTERN_DATA_DIR: folder,
    POSTERN_SMTP__LISTEN: '127.0.0.1:0',
    POSTERN_HTTP__LISTEN: '127.0.0.1:0',
    POSTERN_HOSTNAME: 'localhost',
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    POSTERN_DNS__SERVERS: nameServer,
  });
}

const ROUTE = z.object({ id: z.string() });
const KEY = z.object({ auth_key: z.string() });

/** Adds a route to the URL and returns the key that signs its posts. */
async function addRoute(call: Call, url: string, io: Io): Promise<string> {
  await call('/inbound/add-domain', { domain: 'demo.example' });
  const { id } = ROUTE.parse(await call('/inbound/add-route', { domain: 'demo.example', pattern: '*', url }));
  const { auth_key: key } = KEY.parse(await call('/inbound/route-key', { id }));
  io.out(`2. Route ${id} posts all mail for demo.example to ${url}\n`);
  return key;
}

type Call = (path: string, params: object) => Promise<unknown>;

function caller(base: string, key: string): Call {
  return async (path, params) => {
    const response = await fetch(`${base}${path}.json`, { method: 'POST', body: JSON.stringify({ key, ...params }) });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`${path} failed: ${JSON.stringify(answer)}`);
    return answer;
  };
}

async function send(
  { host, port }: { readonly host: string; readonly port: number },
  privateKey: string,
): Promise<{ response: string }> {
  const { createTransport } = await import('nodemailer');
  const dkim = { domainName: SENDER_DOMAIN, keySelector: SELECTOR, privateKey };
  const transport = createTransport({ host, port, ignoreTLS: true, name: `mail.${SENDER_DOMAIN}`, dkim });
  return transport.sendMail({
    from: `Ada Lovelace <ada@${SENDER_DOMAIN}>`,
    to: 'hello@demo.example',
    subject: 'Notes on the engine ✓',
    text: 'It can follow analysis; but it has no power of anticipating.\n',
    html: '<p>It can follow analysis; but it has no power of <b>anticipating</b>.</p>',
    attachments: [{ filename: 'note-g.csv', content: 'number,value\nB1,0.16667\n' }],
  });
}

const EVENTS = z
  .array(
    z.object({
      event: z.string(),
      msg: z.object({
        email: z.string(),
        from_email: z.string().optional(),
        subject: z.string().optional(),
        text: z.string().optional(),
        attachments: z.record(z.string(), z.object({ type: z.string() })).optional(),
        spf: z.object({ result: z.string(), detail: z.string() }),
        dkim: z.object({ signed: z.boolean(), valid: z.boolean() }),
        dmarc: z.object({ result: z.string(), policy: z.string().nullable(), aligned: z.boolean() }),
      }),
    }),
  )
  .min(1);

/** Prints what the webhook received; returns whether the verdicts pass and both signatures are valid. */
function report({ headers, body }: Caught, key: string, url: string, io: Io): boolean {
  const events = new URLSearchParams(body.toString()).get('mandrill_events') ?? '[]';
  const mandrill = headers['x-mandrill-signature'] === mandrillSignature(key, url, { mandrill_events: events });
  const standard =
    headers['webhook-signature'] ===
    standardSignature([key], String(headers['webhook-id']), Number(headers['webhook-timestamp']), body);
  const [event] = EVENTS.parse(JSON.parse(events));
  const msg = event?.msg;
  io.out(`4. The webhook received a POST of ${body.length} bytes, webhook-id ${headers['webhook-id']}\n`);
  const facts = {
    event: event?.event,
    email: msg?.email,
    from_email: msg?.from_email,
    subject: msg?.subject,
    text: msg?.text?.trim(),
    attachments: Object.keys(msg?.attachments ?? {}).join(', '),
    spf: `${msg?.spf.result} (${msg?.spf.detail})`,
    dkim: msg?.dkim.valid ? 'valid' : msg?.dkim.signed ? 'signed, not valid' : 'not signed',
    dmarc: `${msg?.dmarc.result} (policy ${msg?.dmarc.policy ?? 'none'})`,
  };
  for (const [name, value] of Object.entries(facts)) io.out(`     ${name.padEnd(12)} ${String(value)}\n`);
  io.out(
    `5. X-Mandrill-Signature ${mandrill ? 'is valid' : 'IS NOT VALID'}; webhook-signature (Standard Webhooks) ${standard ? 'is valid' : 'IS NOT VALID'}\n`,
  );
  const passed = msg?.spf.result === 'pass' && msg.dkim.valid && msg.dmarc.result === 'pass';
  return passed && mandrill && standard;
}

/** Shows every further POST until a signal ends the demo. */
async function goOn(
  io: Io,
  smtp: string,
  next: (ms: number) => Promise<Caught | undefined>,
  print: (caught: Caught) => boolean,
): Promise<number> {
  let stopped = false;
  io.onSignal(() => {
    stopped = true;
  });
  io.out(`\nSend more to anything@demo.example at ${smtp}; Ctrl-C ends the demo.\n`);
  while (!stopped) {
    const caught = await next(500);
    if (caught) print(caught);
  }
  return EXIT.ok;
}

/** A queue in memory; `next` waits at most `ms` milliseconds. */
function queue<T>() {
  const items: T[] = [];
  let wake = () => {};
  return {
    push(item: T) {
      items.push(item);
      wake();
    },
    async next(ms: number): Promise<T | undefined> {
      if (items.length === 0) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, ms);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
      return items.shift();
    },
  };
}

/** A POST as the receiver got it. */
interface Caught {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface Catcher {
  readonly url: string;
  stop(): Promise<void>;
}

/** The webhook receiver: answers 200 to everything and hands over each POST. */
function startCatcher(onPost: (caught: Caught) => void): Promise<Catcher> {
  const server = createHttpServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    response.end('ok');
    // Adding a route probes its URL with HEAD.
    if (request.method === 'POST') onPost({ headers: request.headers, body: Buffer.concat(chunks) });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      resolve({
        url: `http://127.0.0.1:${port}/hook`,
        stop: () =>
          new Promise((done) => {
            server.close(() => done());
            server.closeAllConnections();
          }),
      });
    });
  });
}

/** Text of a TXT record goes in strings of at most 255 octets (RFC 1035 section 3.3.14). */
const MAX_STRING = 255;
const TTL = 300;
const NXDOMAIN = 3;

/**
 * Starts a name server on loopback for the sender domain, with a new DKIM key, so that SPF, DKIM and DMARC pass on a
 * machine without a network. Every other name is NXDOMAIN.
 */
async function startDemoZone() {
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
    /** Of DKIM, as PEM. */
    privateKey,
    stop: () => server.close(),
  });
}
