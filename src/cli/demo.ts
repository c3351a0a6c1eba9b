import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';
import { z } from 'zod';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog } from '../base/log.ts';
import { createPrometheus } from '../base/prometheus.ts';
import { loadSettings } from '../config.ts';
import { openDaemon } from '../daemon.ts';
import { mandrillSignature, standardSignature } from '../webhooks/signing.ts';
import { type Command, EXIT, type Io } from './command.ts';
import { SELECTOR, SENDER_DOMAIN, startDemoZone } from './demo-zone.ts';

const ONCE_MS = 12_000;

export const demo: Command = {
  name: 'demo',
  summary:
    'Shows the main job: a real message goes in by SMTP and comes out as a signed webhook post. Needs nothing and leaves nothing.',
  options: {
    once: {
      type: 'boolean',
      help: 'end after the first post: exit 0 when it arrived, SPF, DKIM and DMARC pass and its signatures hold, 1 otherwise',
    },
  },
  async run(call, io) {
    const folder = await mkdtemp(join(tmpdir(), 'postern-demo-'));
    try {
      return await show(folder, call.flag('once'), io);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
};

async function show(folder: string, once: boolean, io: Io): Promise<number> {
  const posts = queue<Caught>();
  const [catcher, zone] = await Promise.all([startCatcher(posts.push), startDemoZone()]);
  const daemon = await openDaemon(demoSettings(folder, zone.server), {
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
    if (!place || !firstKey) throw new Error('the daemon did not start as it should');
    io.out(
      `1. Postern runs in a temporary folder: SMTP on ${place.host}:${place.port}, API on ${http.host}:${http.port}\n`,
    );
    const key = await addRoute(caller(`http://${http.host}:${http.port}/api/1.0`, firstKey.key), catcher.url, io);
    const { response } = await send(place, zone.privateKey);
    io.out(`3. A message of ${SENDER_DOMAIN}, signed with DKIM, went in by SMTP; the answer was: ${response}\n`);

    const tell = (caught: Caught) => report(caught, key, catcher.url, io);
    const caught = await posts.next(ONCE_MS);
    if (!caught) {
      io.err(`Nothing was posted within ${ONCE_MS / 1000} seconds.\n`);
      return EXIT.failed;
    }
    const good = tell(caught);
    if (once) return good ? EXIT.ok : EXIT.failed;
    return await goOn(io, `${place.host}:${place.port}`, posts.next, tell);
  } finally {
    await daemon.stop();
    await Promise.all([catcher.stop(), zone.stop()]);
  }
}

/** The defaults alone, on free ports: the operator's file, environment and name servers are not for a demo. */
function demoSettings(folder: string, nameServer: string) {
  return loadSettings(undefined, {
    POSTERN_DATA_DIR: folder,
    POSTERN_SMTP__LISTEN: '127.0.0.1:0',
    POSTERN_HTTP__LISTEN: '127.0.0.1:0',
    POSTERN_HOSTNAME: 'localhost',
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    POSTERN_DNS__SERVERS: nameServer,
  }).settings;
}

const ROUTE = z.object({ id: z.string() });
const KEY = z.object({ auth_key: z.string() });

/** Answers the key that posts to the URL are signed with. */
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

function send(
  { host, port }: { readonly host: string; readonly port: number },
  privateKey: string,
): Promise<{ response: string }> {
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

/** Prints what the webhook got; answers whether its verdicts pass and its two signatures hold. */
function report({ headers, body }: Caught, key: string, url: string, io: Io): boolean {
  const events = new URLSearchParams(body.toString()).get('mandrill_events') ?? '[]';
  const mandrill = headers['x-mandrill-signature'] === mandrillSignature(key, url, { mandrill_events: events });
  const standard =
    headers['webhook-signature'] ===
    standardSignature([key], String(headers['webhook-id']), Number(headers['webhook-timestamp']), body);
  const [event] = EVENTS.parse(JSON.parse(events));
  const msg = event?.msg;
  io.out(`4. The webhook got a POST of ${body.length} bytes, webhook-id ${headers['webhook-id']}\n`);
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
    `5. X-Mandrill-Signature ${mandrill ? 'holds' : 'DOES NOT HOLD'}; webhook-signature (Standard Webhooks) ${standard ? 'holds' : 'DOES NOT HOLD'}\n`,
  );
  const passed = msg?.spf.result === 'pass' && msg.dkim.valid && msg.dmarc.result === 'pass';
  return passed && mandrill && standard;
}

/** Shows every further post until the process is told to stop. */
async function goOn(
  io: Io,
  smtp: string,
  next: (ms: number) => Promise<Caught | undefined>,
  show: (caught: Caught) => boolean,
): Promise<number> {
  let stopped = false;
  io.onSignal(() => {
    stopped = true;
  });
  io.out(`\nSend more to anything@demo.example at ${smtp}; Ctrl-C ends the demo.\n`);
  while (!stopped) {
    const caught = await next(500);
    if (caught) show(caught);
  }
  return EXIT.ok;
}

/** Hands over in order what is pushed; `next` gives up after some milliseconds. */
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

/** A POST as the catcher got it. */
export interface Caught {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface Catcher {
  readonly url: string;
  stop(): Promise<void>;
}

/** A webhook receiver for the demo: answers 200 to everything and hands over each POST that carries events. */
export function startCatcher(onPost: (caught: Caught) => void): Promise<Catcher> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    response.end('ok');
    // When a route is made, its URL is asked by HEAD; that is no event.
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
