import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { BSON, MongoClient } from 'mongodb';
import { type Command, type MongoProxy, startMongoProxy } from '../test/support/mongo-proxy.ts';
import { type MongoServer, mongoKind, requireMongo, startMongo } from '../test/support/mongo-server.ts';
import { readOptions, usually } from './options.ts';
import { cpuSeconds, start as launch, memoryMb, type Running } from './processes.ts';

/**
 * What one host asks of the database that several share: commands and bytes on the wire for each mail and at rest,
 * connections, and the size of rows. docs/scale.md computes with these figures.
 */
const values = readOptions('node bench/store.ts', 'Commands and bytes on the wire between a host and its database.', {
  mails: usually(200, 'mails a cell'),
  rest: usually(60, 'seconds at rest'),
  'at-once': usually(8, 'mails that are under way at a time'),
  only: { type: 'string', placeholder: 'TEXT', help: 'cells with this in their names' },
});
const mails = Number(values.mails);
const KEY = 'a-key-for-the-bench-22';
const DOMAIN = 'in.example';
const TEXT = 'All of it fresh, and made for you.\r\n'.repeat(135); // 5 kB with its header
const HTML_BYTES = 12_000;
const LATER_MS = 3_600_000;
const WRITING_S = 5;

interface Cell {
  readonly name: string;
  readonly copies: 'none' | 'store';
  readonly road: 'in' | 'out';
  /** Milliseconds until the endpoint of inbound mail answers; null: it does not. */
  readonly endpointMs?: number | null;
  /** Whether sent mail is told to a webhook. */
  readonly webhook?: boolean;
  /** Sent with send_at, and looked at while it waits. */
  readonly later?: boolean;
}

const CELLS: readonly Cell[] = [
  { name: 'in, no copies', road: 'in', copies: 'none', endpointMs: 0 },
  { name: 'in, copies, the endpoint is quick', road: 'in', copies: 'store', endpointMs: 0 },
  { name: 'in, copies, the endpoint takes 400 ms', road: 'in', copies: 'store', endpointMs: 400 },
  { name: 'in, copies, the endpoint does not answer', road: 'in', copies: 'store', endpointMs: null },
  { name: 'out, no copies', road: 'out', copies: 'none' },
  { name: 'out, copies', road: 'out', copies: 'store' },
  { name: 'out, no copies, with a webhook', road: 'out', copies: 'none', webhook: true },
  { name: 'out, copies, with a webhook', road: 'out', copies: 'store', webhook: true },
  { name: 'out, no copies, scheduled', road: 'out', copies: 'none', later: true },
  { name: 'out, copies, scheduled', road: 'out', copies: 'store', later: true },
];

interface World {
  readonly daemon: Running;
  readonly proxy: MongoProxy;
  readonly url: string;
  call(path: string, params: object): Promise<any>;
  stop(): Promise<void>;
}

const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
const here = import.meta.dirname;
let databases = 0;

/** Processes that run until they are stopped, or until this one ends. */
const running = new Set<number>();
const start: typeof launch = async (...given) => {
  const one = await launch(...given);
  running.add(one.pid);
  return {
    ...one,
    stop: () => {
      running.delete(one.pid);
      return one.stop();
    },
  };
};

async function startWorld(server: MongoServer, env: Readonly<Record<string, string>>): Promise<World> {
  const database = `bench_${databases++}`;
  const proxy = await startMongoProxy(server.address);
  const daemon = await start(
    [join(here, '../src/main.ts'), 'serve'],
    {
      POSTERN_DATA_DIR: mkdtempSync(join(work, 'data-')),
      POSTERN_HOSTNAME: 'mx.sender.example',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_BOOTSTRAP__API_KEY: KEY,
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_DNS__TIMEOUT_MS: '100',
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_OUTBOUND__QUOTA: 'false',
      POSTERN_STORE__URL: server.url(database, proxy.address),
      POSTERN_STORE__TIMEOUT_MS: '60000',
      ...env,
    },
    (line) => line.event === 'daemon.ready',
  );
  return {
    daemon,
    proxy,
    url: server.url(database),
    async call(path, params) {
      const body = JSON.stringify({ key: KEY, ...params });
      const answer = await fetch(`http://${daemon.first.http}/api/1.0${path}.json`, { method: 'POST', body });
      if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
      return answer.json();
    },
    async stop() {
      await daemon.stop();
      await proxy.close();
    },
  };
}

/** `find messages`; what several rows share is one command. */
const nameOf = ({ name, collection }: Command) => `${name} ${collection}`;

function tally(commands: readonly Command[]): Map<string, { count: number; bytes: number }> {
  const sums = new Map<string, { count: number; bytes: number }>();
  for (const command of commands) {
    const sum = sums.get(nameOf(command)) ?? { count: 0, bytes: 0 };
    sums.set(nameOf(command), { count: sum.count + 1, bytes: sum.bytes + command.bytes });
  }
  return sums;
}

const WRITES = /^(?:insert|update|delete|findAndModify) /;
/** What a host asks and writes whether there is mail or not: beats, revisions, and tasks of each minute. */
const AT_REST =
  /^(?:\w+ (?:hosts|revisions|leases|routing_changes|exports|ip_requests|ips|notices|verifications|tag_removals|quotas|sender_domains)|find (?:accounts|rejects|whitelists))$/;

/** Until nothing was written for two seconds, but what is written at rest. */
async function untilQuiet({ proxy }: World): Promise<void> {
  for (let last = performance.now(), seen = proxy.commands.length; performance.now() - last < 2000; await wait(50)) {
    const fresh = proxy.commands.slice(seen).map(nameOf);
    seen += fresh.length;
    if (fresh.some((name) => WRITES.test(name) && !AT_REST.test(name))) last = performance.now();
  }
}

function print(commands: readonly Command[], received: number, per: number, unit: string): void {
  const sums = tally(commands);
  const total = [...sums].reduce((sum, [, { count }]) => sum + count, 0);
  const writes = [...sums].filter(([name]) => WRITES.test(name)).reduce((sum, [, { count }]) => sum + count, 0);
  const sent = [...sums].reduce((sum, [, { bytes }]) => sum + bytes, 0);
  console.log(
    `${(total / per).toFixed(2)} commands ${unit}, ${(writes / per).toFixed(2)} of them writes; ` +
      `${(sent / per).toFixed(0)} bytes to the database, ${(received / per).toFixed(0)} back\n`,
  );
  console.log(`| command | ${unit} | bytes each |\n|---|---|---|`);
  for (const [name, { count, bytes }] of [...sums].toSorted((a, b) => b[1].count - a[1].count))
    if (count / per >= 0.005) console.log(`| ${name} | ${(count / per).toFixed(2)} | ${(bytes / count).toFixed(0)} |`);
}

async function measure(server: MongoServer, cell: Cell): Promise<void> {
  const { road, endpointMs = 0, webhook = false, later = false } = cell;
  const sink = await start([join(here, 'mail-sink.ts'), '0']);
  const hook = await start([join(here, 'sink.ts'), JSON.stringify([endpointMs])]);
  const relay = `smtp://127.0.0.1:${sink.first.port}`;
  const world = await startWorld(server, { POSTERN_QUEUE__COPIES: cell.copies, POSTERN_OUTBOUND__RELAY: relay });
  const { call, proxy, daemon } = world;
  const url = `http://127.0.0.1:${hook.first.port}/hook`;
  await call('/inbound/add-domain', { domain: DOMAIN });
  await call('/inbound/add-route', { domain: DOMAIN, pattern: '*', url });
  if (webhook) await call('/webhooks/add', { url, events: ['send'] });
  const { transport, close } = await openTransport(daemon);

  async function one(n: number): Promise<void> {
    if (road === 'in')
      return transport({ from: 'ada@sender.example', to: `bench@${DOMAIN}`, subject: `Mail ${n}`, text: TEXT });
    const to = [{ email: `person-${n}@to.example` }];
    const message = { from_email: 'news@sender.example', to, subject: `Mail ${n}`, text: TEXT };
    const at = new Date(Date.now() + LATER_MS).toISOString().slice(0, 19).replace('T', ' ');
    await call('/messages/send', { message, ...(later && { send_at: at }) });
  }
  let expected = 0;
  async function all(count: number): Promise<void> {
    let next = 0;
    const lane = async () => {
      while (next < count) await one(next++);
    };
    await Promise.all(Array.from({ length: Number(values['at-once']) }, lane));
    expected += count;
    // What a host that waits for a slow database does later belongs to its mails, too.
    if (endpointMs !== null && !later)
      while ((await countOf(road === 'in' ? hook.first.port : sink.first.http)) < expected) await wait(50);
    await untilQuiet(world);
  }

  try {
    await all(Math.ceil(mails / 4));
    const [from, received, cpu] = [proxy.commands.length, proxy.received(), cpuSeconds(daemon.pid)];
    const began = performance.now();
    await all(mails);
    const seconds = (performance.now() - began) / 1000;
    const commands = proxy.commands.slice(from);
    const ofMail = commands.filter((command) => !AT_REST.test(nameOf(command)));
    console.log(`\n### ${cell.name}\n`);
    print(ofMail, proxy.received() - received, mails, 'a mail');
    console.log(
      `\n${(((cpuSeconds(daemon.pid) - cpu) * 1000) / mails).toFixed(1)} ms of processor a mail; ` +
        `${mails} mails in ${seconds.toFixed(1)} s; ${proxy.connections()} connections; ` +
        `${memoryMb(daemon.pid).peak.toFixed(0)} MB of memory at most`,
    );
    if (road === 'out' || endpointMs === null) await printRows(world);
  } finally {
    close();
    await world.stop();
    await hook.stop();
    await sink.stop();
  }
}

/** What a sink has taken so far. */
async function countOf(port: number): Promise<number> {
  const { count } = (await (await fetch(`http://127.0.0.1:${port}/`)).json()) as { readonly count: number };
  return count;
}

async function openTransport(daemon: Running) {
  const { createTransport } = await import('nodemailer');
  const port = Number(String(daemon.first.smtp[0]).split(':').at(-1));
  const transport = createTransport({ host: '127.0.0.1', port, ignoreTLS: true, pool: true, maxConnections: 20 });
  return {
    transport: async (mail: object) => {
      await transport.sendMail(mail);
    },
    close: () => transport.close(),
  };
}

/** The rows of each collection, and their mean size. */
async function printRows({ url, call }: World): Promise<void> {
  await call('/templates/add', { name: 'large', code: '<p>'.padEnd(HTML_BYTES, 'x') });
  await call('/rejects/add', { email: 'no@to.example', comment: 'asked us to stop' });
  const client = new MongoClient(url);
  console.log('\n| collection | rows | bytes a row |\n|---|---|---|');
  for (const { name } of (await client.db().listCollections().toArray()).toSorted((a, b) =>
    a.name.localeCompare(b.name),
  )) {
    const rows = await client.db().collection(name).find().toArray();
    if (rows.length === 0) continue;
    const bytes = rows.reduce((sum, row) => sum + BSON.calculateObjectSize(row), 0);
    const sorts = name === 'counters' ? ` (${countersBy(rows)})` : '';
    console.log(`| ${name}${sorts} | ${rows.length} | ${(bytes / rows.length).toFixed(0)} |`);
  }
  await client.close();
}

function countersBy(rows: readonly { readonly [name: string]: unknown }[]): string {
  const groups = Map.groupBy(rows, ({ kind, span }) => `${kind} ${span}`);
  return [...groups].map(([group, { length }]) => `${group} ${length}`).join(', ');
}

/** Writes of one row, as many at a time as a host may have, to see what the database can take. */
async function writes(server: MongoServer): Promise<void> {
  const client = new MongoClient(server.url(`bench_${databases++}`));
  const rows = client.db().collection<{ _id: string }>('rows', { writeConcern: { w: 'majority', j: true } });
  console.log(`\n### writes of 500 bytes with w: majority, ${WRITING_S} s each\n`);
  console.log('| at a time | inserts a second | changes a second, each of its own row |\n|---|---|---|');
  for (const lanes of [1, 16, 64]) {
    const rate = async (write: (lane: number, n: number) => Promise<unknown>) => {
      const until = performance.now() + WRITING_S * 1000;
      let count = 0;
      const work = async (_: unknown, lane: number) => {
        while (performance.now() < until) await write(lane, count++);
      };
      await Promise.all(Array.from({ length: lanes }, work));
      return (count / WRITING_S).toFixed(0);
    };
    const text = 'x'.repeat(450);
    const inserts = await rate((lane, n) => rows.insertOne({ _id: `${lanes} ${lane} ${n}`, text } as { _id: string }));
    const changes = await rate((lane, n) =>
      rows.findOneAndUpdate({ _id: `lane ${lane}` }, { $set: { text, n } }, { upsert: true }),
    );
    console.log(`| ${lanes} | ${inserts} | ${changes} |`);
  }
  await client.close();
}

async function rest(server: MongoServer): Promise<void> {
  const world = await startWorld(server, { POSTERN_QUEUE__COPIES: 'store' });
  const seconds = Number(values.rest);
  await world.call('/users/ping2', {});
  await wait(5000); // what it does once at its start
  const [from, received, cpu] = [world.proxy.commands.length, world.proxy.received(), cpuSeconds(world.daemon.pid)];
  await wait(seconds * 1000);
  console.log(`\n### at rest, ${seconds} s\n`);
  print(world.proxy.commands.slice(from), world.proxy.received() - received, seconds, 'a second');
  const used = (cpuSeconds(world.daemon.pid) - cpu) / seconds;
  console.log(
    `\n${(used * 100).toFixed(1)} % of a processor; ${world.proxy.connections()} connections; ` +
      `${memoryMb(world.daemon.pid).now.toFixed(0)} MB of memory`,
  );
  await world.stop();
}

process.once('exit', () => {
  for (const pid of running) process.kill(pid);
  rmSync(work, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
requireMongo();
const kind = mongoKind();
if (!kind) throw new Error('no server');
const server = await startMongo(kind);
console.log(
  `${cpus().length} processors (${cpus()[0]?.model}), ${kind}; ${mails} mails of 5 kB a cell, ${values['at-once']} at a time`,
);
const wanted = ({ name }: Pick<Cell, 'name'>) => name.includes(values.only ?? '');
try {
  for (const cell of CELLS.filter(wanted)) await measure(server, cell);
  if (wanted({ name: 'at rest' })) await rest(server);
  if (wanted({ name: 'writes' })) await writes(server);
} finally {
  await server.stop();
}
process.exit(0);
