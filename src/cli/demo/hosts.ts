import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { EXIT, type Io, toTable } from '../command.ts';
import { type Cleanup, createCleanup } from './cleanup.ts';
import { openDemoDatabase } from './database.ts';
import { type DemoHost, startDemoHost } from './host.ts';
import { createLedger, type Ledger } from './ledger.ts';
import { sendMail, startCatcher, startDemoZone, startMailServer } from './services.ts';

interface HostsDemo {
  readonly count: number;
  readonly once: boolean;
  /** The value of `queue.copies`. */
  readonly copies: 'none' | 'store';
}

const DOMAIN = 'demo.example';
/** Messages of each sort that go through each host. */
const EACH = 3;
/** When scheduled mail is due: after its host is killed. Milliseconds. */
const SCHEDULED_MS = 12_000;
/** The time limit of waits, and the interval of checks. Milliseconds. */
const PATIENCE_MS = 120_000;
const LOOK_MS = 50;
const RETRY_MS = 1000;

const SENT = z.tuple([z.object({ _id: z.string() })]);
const INFO = z.object({ state: z.string() });

/** Several hosts over one database. One is lost with its disk, and another delivers its mail. */
export async function runHostsDemo(demo: HostsDemo, io: Io): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'postern-demo-'));
  const cleanup = createCleanup(folder);
  const stopped = Promise.withResolvers<undefined>();
  const ending = new AbortController();
  io.onSignal(() => {
    ending.abort();
    stopped.resolve(undefined);
  });
  try {
    const telling = tell({ ...demo, folder, cleanup, io, ending: ending.signal });
    telling.catch(() => undefined); // after a signal it fails as its hosts end
    const told = await Promise.race([telling, stopped.promise]);
    if (!told) return EXIT.failed;
    if (demo.once) return told.isWhole ? EXIT.ok : EXIT.failed;
    io.out(whatToTry(told));
    await stopped.promise;
    io.out('Stopping\n');
    return EXIT.ok;
  } finally {
    await cleanup.close();
  }
}

interface Story extends HostsDemo {
  readonly folder: string;
  readonly cleanup: Cleanup;
  readonly io: Io;
  readonly ending: AbortSignal;
}

type Told = Awaited<ReturnType<typeof tell>>;

async function tell(story: Story) {
  const { io, cleanup, count, copies } = story;
  const database = await openDemoDatabase(story.folder, cleanup, io, story.ending);
  const ledger = createLedger((what) => io.out(`   arrived: ${what}\n`));
  const around = await startAround(ledger, cleanup);
  const key = randomBytes(16).toString('base64url');
  const [first, ...others] = await startHosts(story, around, { url: database.url, key });
  const lost = others.at(-1) ?? first;
  const hosts = [first, ...others];
  const left = hosts.filter((host) => host !== lost);
  const table = toTable(['hostname', 'SMTP', 'API', 'process'], hosts.map(toRow));
  io.out(
    `${count} hosts of Postern share one database (${database.name}). Each has a queue of its own:\n\n` +
      `${indent(table)}\n`,
  );
  const say = createSteps(io);
  say(
    `Two routes were added on ${first.name}. Mail to up@${DOMAIN} goes to a webhook that answers, and mail to`,
    `down@${DOMAIN} to one that is down. The webhook for events of sent mail is down too.`,
  );
  await receive(story, hosts, around, ledger);
  say(
    `Each host received ${2 * EACH} messages by SMTP: ${EACH} were posted at once, ${EACH} wait for the webhook that ` +
      'is down.',
  );
  const due = await submit(story, hosts, ledger);
  say(
    `Each host accepted ${2 * EACH} messages to send by its API: ${EACH} were delivered, ${EACH} are scheduled for ` +
      `${due.slice(11)} UTC.`,
  );
  await lost.lose();
  const gone = ledger.lose(lost.name);
  say(
    `${lost.name} was killed (SIGKILL) and its folder deleted. On its queue were ${gone.received} received messages,`,
    `${gone.sent} scheduled messages, and ${gone.events} events.`,
  );
  await adopt(story, lost, first);
  around.fail(false);
  await untilDelivered(story, left, around.webhook, () => ledger.missing(copies === 'none') === 0);
  say('The webhooks answer again, and the time of the scheduled mail has come.');

  const summary = toTable(['', 'total', 'delivered', 'adopted', 'lost', 'twice'], ledger.rows().map(Object.values));
  io.out(`\n${indent(summary)}\n`);
  const missing = ledger.missing();
  io.out(
    missing === 0
      ? `Nothing is lost: ${first.name} delivered what waited on ${lost.name}.\n`
      : `${missing} are lost with the disk of ${lost.name}${copies === 'none' ? ' (queue.copies: none)' : ''}.\n`,
  );
  /** `hosts`: those that still run. */
  return { hosts: left, lost, key, isWhole: missing === 0 };
}

type DemoServices = Awaited<ReturnType<typeof startAround>>;

/** The first host gets the domain, the routes and the webhook; the others read them when they start. */
async function startHosts(
  story: Story,
  { relay, zone, webhook, fail }: DemoServices,
  { url, key }: { readonly url: string; readonly key: string },
): Promise<readonly [DemoHost, ...DemoHost[]]> {
  const [firstName = '', ...others] = Array.from({ length: story.count }, (_, n) => `mx${n + 1}.${DOMAIN}`);
  const settings = {
    store: { url },
    queue: { copies: story.copies },
    inbound: { mx_hosts: [firstName, ...others] },
    outbound: { relay },
    mail: { relay },
    dns: { servers: [zone.server] },
  };
  const begin = (name: string) => startDemoHost({ ...story, name, key, settings });
  const first = await begin(firstName);
  await first.call('/inbound/add-domain', { domain: DOMAIN });
  for (const box of ['up', 'down'])
    await first.call('/inbound/add-route', { domain: DOMAIN, pattern: box, url: `${webhook}/${box}` });
  await first.call('/webhooks/add', { url: `${webhook}/events`, events: ['send'] });
  fail(true);
  return [first, ...(await Promise.all(others.map(begin)))];
}

/** Sends mail to each host by SMTP, for both webhooks. */
async function receive(
  story: Story,
  hosts: readonly DemoHost[],
  { zone }: DemoServices,
  ledger: Ledger,
): Promise<void> {
  await throughEach(hosts, async ({ name, smtp }, n) => {
    for (const box of ['up', 'down']) {
      const subject = `${box} ${n} at ${name}`;
      ledger.comesIn(name, subject);
      await sendMail(smtp, zone.privateKey, { to: `${box}@${DOMAIN}`, subject, text: 'Hello.\n' });
    }
  });
  await until(story, 'mail for the webhook that answers', () => ledger.countOf('received') >= hosts.length * EACH);
}

/** Submits mail to each host, immediate and scheduled. Returns the scheduled time. */
async function submit(story: Story, hosts: readonly DemoHost[], ledger: Ledger): Promise<string> {
  const due = toTimestamp(new Date(Date.now() + SCHEDULED_MS));
  await throughEach(hosts, async ({ name, call }, n) => {
    const send = async (sort: string, when: object) => {
      const subject = `${sort} ${n} from ${name}`;
      ledger.goesOut(name, subject);
      const message = { from_email: `news@${DOMAIN}`, to: [{ email: 'jo@example.net' }], subject, text: 'Hello.' };
      return SENT.parse(await call('/messages/send', { message, ...when }))[0];
    };
    const now = await send('now', {});
    await send('later', { send_at: due });
    // After its host has recorded the result: mail that is just being sent could be sent twice.
    const isRecorded = async () => INFO.parse(await call('/messages/info', { id: now._id })).state === 'sent';
    await until(story, 'mail that is sent at once', isRecorded);
  });
  return due;
}

/** The webhooks, the mail server and the name server of the demo. */
async function startAround(ledger: Ledger, cleanup: Cleanup) {
  let isDown = false;
  const webhook = await startCatcher(({ path, body }) => {
    if (isDown && path !== '/up') return 503;
    ledger.posted(body);
    return 200;
  });
  cleanup.add(webhook.stop);
  const mailServer = await startMailServer(ledger.mailed);
  cleanup.add(mailServer.stop);
  const zone = await startDemoZone();
  cleanup.add(async () => zone.stop());
  return {
    webhook: webhook.url,
    relay: `smtp://127.0.0.1:${mailServer.port}`,
    zone,
    /** Whether all webhooks but one are down. */
    fail(down: boolean) {
      isDown = down;
    },
  };
}

/** Runs `postern host adopt` as an operator would. */
async function adopt({ cleanup, io }: Story, lost: DemoHost, by: DemoHost): Promise<void> {
  const argv = ['host', 'adopt', lost.name, '--config', by.file];
  io.out(`   Another host can take them over after 16 seconds of silence …\n   postern ${argv.join(' ')}\n`);
  const child = spawn(process.execPath, [...by.program, ...argv], {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env: by.env,
  });
  cleanup.addProcess(child, 'SIGKILL');
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      said += String(chunk);
    });
  const code = await new Promise((resolve) => child.once('close', resolve));
  if (code !== EXIT.ok) throw new Error(said.trim() || 'the takeover was interrupted');
  io.out(indent(said));
}

/** Runs the work a few times with each host, all concurrently. */
function throughEach(
  hosts: readonly DemoHost[],
  work: (host: DemoHost, n: number) => Promise<unknown>,
): Promise<unknown> {
  return Promise.all(hosts.flatMap((host) => Array.from({ length: EACH }, (_, n) => work(host, n + 1))));
}

async function until({ ending }: Story, what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const late = performance.now() + PATIENCE_MS;
  while (!(await isSo())) {
    ending.throwIfAborted();
    if (performance.now() > late) throw new Error(`waited for ${PATIENCE_MS / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** Retries deliveries to the webhooks, as accounts could; the hosts would do so later. */
async function untilDelivered(
  story: Story,
  hosts: readonly DemoHost[],
  webhook: string,
  isDone: () => boolean,
): Promise<void> {
  let last = Number.NEGATIVE_INFINITY;
  await until(story, 'all that can be delivered', async () => {
    if (isDone()) return true;
    if (performance.now() - last < RETRY_MS) return false;
    last = performance.now();
    for (const { call } of hosts)
      for (const path of ['down', 'events'])
        await call('/endpoints/retry', { url: `${webhook}/${path}` }).catch(() => undefined); // it has nothing for it
    return false;
  });
}

function createSteps({ out }: Io): (...lines: readonly string[]) => void {
  let step = 0;
  return (...lines) => out(`${++step}. ${lines.join('\n   ')}\n`);
}

const indent = (text: string): string => text.replaceAll(/^(?=.)/gm, '   ');

const toRow = ({ name, smtp, url, pid }: DemoHost) => [name, `${smtp.host}:${smtp.port}`, url, pid];

const lose = (host: DemoHost, by: DemoHost): readonly [string, string] => [
  `Lose ${host.name}, too`,
  `kill -9 ${host.pid}; npx postern host adopt ${host.name} --config ${by.file}`,
];

function whatToTry({ hosts, lost, key }: Told): string {
  const [one, other] = hosts;
  if (!one) return '';
  const message = `{"from_email":"news@${DOMAIN}","to":[{"email":"jo@example.net"}],"subject":"Hi","text":"Hello"}`;
  const tries: readonly (readonly [string, string])[] = [
    ['List the hosts and their waiting mail', `npx postern host list --config ${one.file}`],
    ['Create a link to the console', `npx postern console link --config ${one.file}`],
    ['The key for the API', key],
    ['Send a message', `curl -sS -d '{"key":"${key}","message":${message}}' ${one.url}/api/1.0/messages/send.json`],
    [
      'Receive a message',
      `printf 'Subject: Hi\\r\\n\\r\\nHello\\r\\n' | curl -sS smtp://${one.smtp.host}:${one.smtp.port} ` +
        `--mail-from ada@example.org --mail-rcpt up@${DOMAIN} -T -`,
    ],
    [`Start a new machine for ${lost.name}`, `npx postern serve --config ${lost.file}`],
    ...(other ? [lose(other, one)] : []),
    ['The logs', hosts.map(({ log }) => log).join(' ')],
  ];
  return (
    `\nThe other hosts keep running. Try, in another terminal:\n\n` +
    `${tries.map(([what, command]) => `   # ${what}\n   ${command}\n`).join('\n')}\n` +
    'Ctrl-C stops all of it and removes its files.\n'
  );
}
