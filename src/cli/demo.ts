import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createLog } from '../base/log.ts';
import { loadSettings } from '../config.ts';
import { mandrillSignature, standardSignature } from '../webhooks/signing.ts';
import { type Command, EXIT, type Invocation, type Io, UsageError } from './command.ts';
import { freePort } from './demo/free-port.ts';
import {
  type ApiCall,
  type Caught,
  caller,
  SENDER_DOMAIN,
  sendMail,
  startCatcher,
  startDemoZone,
} from './demo/services.ts';

const ONCE_MS = 12_000;

const LETTER = {
  to: 'hello@demo.example',
  subject: 'Notes on the engine ✓',
  text: 'It can follow analysis; but it has no power of anticipating.\n',
  html: '<p>It can follow analysis; but it has no power of <b>anticipating</b>.</p>',
  attachments: [{ filename: 'note-g.csv', content: 'number,value\nB1,0.16667\n' }],
};

const MAX_HOSTS = 9;
const COPIES = ['none', 'store'] as const;

export const demo: Command = {
  options: {
    once: {
      help:
        'exit after the first POST: 0 if it arrived, SPF, DKIM and DMARC pass and both signatures are valid, ' +
        'else 1. With --hosts: exit after the summary, 0 if nothing is lost, else 1',
    },
    hosts: {
      value: 'N',
      help: `run 2 to ${MAX_HOSTS} hosts over one database, lose one with its disk, and show what happens to its mail`,
    },
    copies: {
      value: 'none|store',
      values: COPIES,
      help: 'with --hosts: queue.copies; default: store. With none, the mail that waited on the lost host is lost',
    },
  },
  notes:
    '--hosts needs a database with the protocol of MongoDB: the server of MONGODB_URL, on which the demo uses a ' +
    'database of its own; else mongod is started, if it is on the PATH; else SecantusDB, which is fetched by pip in ' +
    'a clone of the sources.',
  async run(call, io) {
    const hosts = readHosts(call);
    if (hosts) {
      const { runHostsDemo } = await import('./demo/hosts.ts');
      return runHostsDemo({ ...hosts, once: call.flag('once') }, io);
    }
    const folder = await mkdtemp(join(tmpdir(), 'postern-demo-'));
    try {
      return await runDemo(folder, call.flag('once'), io);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
};

/** The options for several hosts; undefined for one host. */
function readHosts(call: Invocation) {
  const [given, [copies = 'store']] = [call.text('hosts'), call.known('copies', COPIES)];
  if (given === undefined && call.text('copies') !== undefined) throw new UsageError('--copies needs --hosts');
  if (given === undefined) return undefined;
  const count = Number(given);
  if (!Number.isInteger(count) || count < 2 || count > MAX_HOSTS)
    throw new UsageError(`--hosts must be a number from 2 to ${MAX_HOSTS}`);
  return { count, copies };
}

async function runDemo(folder: string, once: boolean, io: Io): Promise<number> {
  const posts = queue<Caught>();
  const [catcher, zone] = await Promise.all([
    startCatcher((caught) => {
      posts.push(caught);
      return 200;
    }),
    startDemoZone(),
  ]);
  const url = `${catcher.url}/hook`;
  const { settings, shown } = demoSettings(folder, zone.server, await freePort());
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
      smtp: [smtp],
      http,
      firstKey,
    } = await daemon.start();
    if (!smtp || !firstKey) throw new Error('the daemon did not start');
    io.out(
      `1. Postern is running in a temporary folder: SMTP on ${smtp.host}:${smtp.port}, API on ` +
        `${http.host}:${http.port}\n   Console: ${await daemon.enterLink()} (opens once, within an hour)\n`,
    );
    const key = await addRoute(caller(`http://${http.host}:${http.port}/api/1.0`, firstKey.key), url, io);
    const response = await sendMail(smtp, zone.privateKey, LETTER);
    io.out(`3. A message from ${SENDER_DOMAIN}, signed with DKIM, was sent by SMTP; the reply was: ${response}\n`);

    const print = (caught: Caught) => report(caught, key, url, io);
    const caught = await posts.next(ONCE_MS);
    if (!caught) {
      io.err(`Nothing was posted within ${ONCE_MS / 1000} seconds.\n`);
      return EXIT.failed;
    }
    const good = print(caught);
    if (once) return good ? EXIT.ok : EXIT.failed;
    return await goOn(io, `${smtp.host}:${smtp.port}`, posts.next, print);
  } finally {
    await daemon.stop();
    await Promise.all([catcher.stop(), zone.stop()]);
  }
}

/** The defaults on free ports, without the operator's file, environment and name servers. */
function demoSettings(folder: string, nameServer: string, httpPort: number) {
  return loadSettings(undefined, {
    POSTERN_DATA_DIR: folder,
    POSTERN_SMTP__LISTEN: '127.0.0.1:0',
    POSTERN_HTTP__LISTEN: `127.0.0.1:${httpPort}`, // not 0: links contain it
    POSTERN_HOSTNAME: 'localhost',
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    POSTERN_DNS__SERVERS: nameServer,
  });
}

const ROUTE = z.object({ id: z.string() });
const KEY = z.object({ auth_key: z.string() });

/** Adds a route to the URL and returns the key that signs its posts. */
async function addRoute(call: ApiCall, url: string, io: Io): Promise<string> {
  await call('/inbound/add-domain', { domain: 'demo.example' });
  const { id } = ROUTE.parse(await call('/inbound/add-route', { domain: 'demo.example', pattern: '*', url }));
  const { auth_key: key } = KEY.parse(await call('/inbound/route-key', { id }));
  io.out(`2. Route ${id} posts all mail for demo.example to ${url}\n`);
  return key;
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

/** Prints the received POST; returns whether the verdicts pass and both signatures are valid. */
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
    `5. X-Mandrill-Signature ${mandrill ? 'is valid' : 'IS NOT VALID'}; webhook-signature (Standard Webhooks) ` +
      `${standard ? 'is valid' : 'IS NOT VALID'}\n`,
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
