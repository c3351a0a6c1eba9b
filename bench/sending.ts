import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../test/support/free-port.ts';
import { startMongo } from '../test/support/mongo-server.ts';
import { startPostfix, whyNoPostfix } from '../test/support/postfix.ts';
import { readOptions, usually } from './options.ts';
import { cpuSeconds, run, sessionSeconds, start } from './processes.ts';

/**
 * Mail that is handed over and leaves: accepted per second, latency of the 250, delivered to a server of mail per
 * second, and processor time, against Debian's postfix with the same mail, the same sink and the same client, round by
 * round. With --copies: with and without copies of what waits, on a database, for endpoints that are well or not.
 */
const values = readOptions('node bench/sending.ts', 'Mail handed over by submission and delivered, beside postfix.', {
  rounds: usually(3, 'interleaved rounds'),
  messages: usually(3000, 'messages a round'),
  connections: usually(50, 'connections'),
  copies: {
    type: 'boolean',
    help: 'instead of postfix: queue.copies none and store on SecantusDB, and a webhook for each mail that was sent',
  },
  against: { type: 'string', placeholder: 'FOLDER', help: 'another checkout too, without copies' },
});
const messages = Number(values.messages);

/** How the mail server and the webhook answer: milliseconds, and null for one that does not. */
interface Endpoints {
  readonly name: string;
  readonly mailMs: number | null;
  readonly hookMs: number | null;
}
const HEALTHY: Endpoints = { name: 'healthy', mailMs: 0, hookMs: 0 };
const ENDPOINTS: readonly Endpoints[] = [
  HEALTHY,
  { name: 'both answer after 50 ms', mailMs: 50, hookMs: 50 },
  { name: 'the mail server is down', mailMs: null, hookMs: 0 },
  { name: 'the webhook never answers', mailMs: 0, hookMs: null },
];

const here = import.meta.dirname;
const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
const KEY = 'a-key-for-the-bench-22';

/** `marks`: what a mail of it must have, or it did not do what it is measured for. */
interface Contestant {
  readonly port: number;
  /** Where its API is. */
  readonly http?: string;
  readonly login: readonly string[];
  readonly marks: readonly RegExp[];
  cpu(): number;
  stop(): Promise<void>;
}

interface PosternOptions {
  readonly root?: string;
  readonly env?: () => Readonly<Record<string, string>>;
}

/**
 * Everything on that costs: the store's rows, DKIM, the open picture and every link of all parts. Only the quota is
 * off.
 */
async function startPostern(sink: number, { root = join(here, '..'), env }: PosternOptions = {}): Promise<Contestant> {
  const dir = mkdtempSync(join(work, 'data-'));
  const daemon = await start(
    [join(root, 'src/main.ts'), 'serve'],
    {
      POSTERN_DATA_DIR: dir,
      POSTERN_HOSTNAME: 'mx.sender.example',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_BOOTSTRAP__API_KEY: KEY,
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000',
      POSTERN_SMTP__MAX_MESSAGES_PER_SESSION: '1000000',
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink}`,
      POSTERN_OUTBOUND__QUOTA: 'false',
      POSTERN_OUTBOUND__SIGNING_DOMAIN: 'sender.example',
      POSTERN_OUTBOUND__TRACK_OPENS: 'true',
      POSTERN_OUTBOUND__TRACK_CLICKS: 'all',
      ...env?.(),
    },
    (line) => line.event === 'daemon.ready',
  );
  return {
    port: Number(String(daemon.first.submission[0]).split(':').at(-1)),
    http: String(daemon.first.http),
    login: [KEY],
    marks: [/^DKIM-Signature: /m, /\/track\/open\//, /\/track\/click\//],
    cpu: () => cpuSeconds(daemon.pid),
    async stop() {
      await daemon.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

/**
 * As Debian ships it, but that it never pauses its clients in favour of its own deliveries. No login, no signature, no
 * tracking.
 */
async function startHop(sink: number): Promise<Contestant> {
  const dir = mkdtempSync(join(tmpdir(), 'postern-bench-postfix-')); // not in `work`, which only its owner may enter
  const port = await freePort();
  const { pid, stop } = await startPostfix(dir, {
    listen: [`127.0.0.1:${port}`],
    next: sink,
    main: { in_flow_delay: '0' },
  });
  return {
    port,
    login: [],
    marks: [/^Received: .*/m],
    cpu: () => sessionSeconds(pid),
    async stop() {
      await stop();
      rmSync(dir, { recursive: true });
    },
  };
}

/** A newsletter of about 5 kB in two parts, with links to track. */
function letter(): string {
  const paragraph = (n: number) =>
    `<p>Offer ${n}: <a href="https://shop.example/offers/${n}?week=7">have a look</a>. ${'All of it fresh and made for you. '.repeat(8)}</p>`;
  return [
    'From: Ada <ada@sender.example>',
    'To: Bench <bench@in.example>',
    'Subject: Notes upon the memoir',
    'Date: Mon, 05 Jan 2026 12:00:01 +0000',
    'Message-ID: <b1c2d3e4@sender.example>',
    'MIME-Version: 1.0',
    'Content-Type: multipart/alternative; boundary="b7"',
    '',
    '--b7',
    'Content-Type: text/plain; charset=utf-8',
    '',
    ...Array<string>(14).fill('See https://shop.example/offers for what is new. All of it fresh, and made for you.'),
    '--b7',
    'Content-Type: text/html; charset=utf-8',
    '',
    '<html><body>',
    ...Array.from({ length: 9 }, (_, n) => paragraph(n)),
    '</body></html>',
    '--b7--',
    '',
  ].join('\r\n');
}

interface Figures {
  accepted: number;
  p50: number;
  p99: number;
  delivered: number;
  cpuMs: number;
}

async function measure(
  open: (sink: number) => Promise<Contestant>,
  file: string,
  { mailMs, hookMs }: Endpoints = HEALTHY,
): Promise<Figures> {
  const sink = await start([join(here, 'mail-sink.ts'), String(mailMs ?? 0)]);
  const hook = await start([join(here, 'sink.ts'), JSON.stringify([hookMs])]);
  const one = await open(mailMs === null ? await freePort() : sink.first.port);
  if (values.copies) await addWebhook(one, hook.first.port);
  const load = (count: number) =>
    run([join(here, 'load.ts'), String(one.port), file, values.connections, String(count), ...one.login]);
  const taken = async () =>
    (await (await fetch(`http://127.0.0.1:${sink.first.http}/`)).json()) as { count: number; last: string };
  const all = async (count: number) => {
    if (mailMs === null) return;
    while ((await taken()).count < count) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  try {
    const warm = Math.ceil(messages / 10);
    await load(warm);
    await all(warm);
    const mail = (await taken()).last.replaceAll('=\r\n', '');
    for (const mark of mailMs === null ? [] : one.marks)
      if (!mark.test(mail)) throw new Error(`${mark} is not in:\n${mail}`);
    const [from, before] = [performance.now(), one.cpu()];
    const seen = await load(messages);
    await all(warm + messages);
    const seconds = (performance.now() - from) / 1000;
    return {
      accepted: seen.sent / seen.seconds,
      p50: seen.p50,
      p99: seen.p99,
      delivered: mailMs === null ? Number.NaN : messages / seconds,
      cpuMs: ((one.cpu() - before) * 1000) / messages,
    };
  } finally {
    await one.stop();
    await sink.stop();
    await hook.stop();
  }
}

async function addWebhook({ http }: Contestant, port: number): Promise<void> {
  const body = JSON.stringify({ key: KEY, url: `http://127.0.0.1:${port}/hook`, events: ['send'] });
  const answer = await fetch(`http://${http}/api/1.0/webhooks/add`, { method: 'POST', body });
  if (!answer.ok) throw new Error(await answer.text());
}

const shown = (figure: string) => (figure === 'NaN' ? '–' : figure);
const median = (list: number[]) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;
const why = values.copies ? undefined : whyNoPostfix();
const database = values.copies ? await startMongo('secantus') : undefined;
let databases = 0;
const withStore = (copies: string) => (): Record<string, string> =>
  database
    ? {
        POSTERN_STORE__URL: database.url(`bench_${databases++}`),
        // It is slow, and under load slower than the default allows.
        POSTERN_STORE__TIMEOUT_MS: '60000',
        POSTERN_QUEUE__COPIES: copies,
      }
    : {};
const { against } = values;
const contestants: readonly { readonly name: string; open(sink: number): Promise<Contestant> }[] = [
  { name: 'postern', open: (sink) => startPostern(sink, { env: withStore('none') }) },
  ...(database
    ? [{ name: 'with copies', open: (sink: number) => startPostern(sink, { env: withStore('store') }) }]
    : []),
  ...(against
    ? [{ name: against, open: (sink: number) => startPostern(sink, { root: against, env: withStore('none') }) }]
    : []),
  ...(why === undefined && !database ? [{ name: 'postfix', open: startHop }] : []),
];
const file = join(work, 'letter.eml');
writeFileSync(file, letter());
console.log(
  `${cpus().length} processors (${cpus()[0]?.model}); ${messages} messages of ${letter().length} octets over ${values.connections} connections, median of ${values.rounds} interleaved rounds.`,
);
if (why !== undefined) console.log(`Without postfix: ${why}.`);
for (const endpoints of database ? ENDPOINTS : [HEALTHY]) {
  const results = contestants.map(({ name, open }) => ({ name, open, rounds: [] as Figures[] }));
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const { open, rounds } of results) rounds.push(await measure(open, file, endpoints));
  }
  if (database) console.log(`\n${endpoints.name}:`);
  console.log(
    '\n| | accepted/s | ratio | 250 p50 ms | 250 p99 ms | delivered/s | ratio | CPU ms/message |\n|---|---|---|---|---|---|---|---|',
  );
  const [mine] = results;
  for (const { name, rounds } of results) {
    const of = (field: keyof Figures, list = rounds) => median(list.map((figures) => figures[field]));
    const ratio = (field: keyof Figures) => (of(field, mine?.rounds) / of(field)).toFixed(2);
    console.log(
      `| ${name} | ${of('accepted').toFixed(0)} | ${ratio('accepted')} | ${of('p50').toFixed(1)} | ${of('p99').toFixed(1)} | ${shown(of('delivered').toFixed(0))} | ${shown(ratio('delivered'))} | ${of('cpuMs').toFixed(2)} |`,
    );
  }
}
console.log("\nRatio: Postern's figure over the other's.");
await database?.stop();
rmSync(work, { recursive: true, force: true });
process.exit(0);
