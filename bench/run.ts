import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startZone } from '../test/support/zone.ts';
import { compose, createSender } from './messages.ts';
import { cpuSeconds, memoryMb, run, start, type Running } from './processes.ts';

/**
 * Accepted-to-posted throughput, 250 latency, processor time and memory, in one interleaved run on one machine: every round
 * runs every contestant once on every size, so that a slow moment of the machine hits all alike.
 */
const { values } = parseArgs({ options: { rounds: { type: 'string', default: '3' }, quick: { type: 'boolean', default: false }, only: { type: 'string' }, size: { type: 'string' } } });

const here = import.meta.dirname;
const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
const sender = createSender();
const scale = values.quick ? 0.1 : 1;

const SIZES = [
  { name: '5 kB', bytes: 5_000, signed: false, connections: 50, messages: 6000 },
  { name: '5 kB, DKIM-signed', bytes: 5_000, signed: true, connections: 50, messages: 6000 },
  { name: '50 kB', bytes: 50_000, signed: false, connections: 50, messages: 1500 },
  { name: '10 MB', bytes: 10_000_000, signed: false, connections: 10, messages: 20 },
].filter(({ name }) => values.size === undefined || name === values.size);

interface Contestant { readonly name: string; start(sink: string): Promise<{ process: Running; port: number; end(): void }> }

const CONTESTANTS: Contestant[] = [
  { name: 'postern', start: startPostern },
  { name: 'by hand, fetch', start: (sink: string) => startHand('fetch', sink) },
  { name: 'by hand, undici', start: (sink: string) => startHand('undici', sink) },
].filter(({ name }) => values.only === undefined || name === values.only);

async function startHand(how: string, sink: string) {
  const process = await start([join(here, 'peers/hand.ts'), how, sink]);
  return { process, port: Number(process.first.port), end: () => {} };
}

async function startPostern(sink: string) {
  const dir = mkdtempSync(join(work, 'data-'));
  const zone = await startZone(sender.zone as Parameters<typeof startZone>[0]);
  const key = 'a-key-for-the-bench-22';
  const daemon = await start([join(here, '../src/main.ts'), 'serve'], {
    POSTERN_DATA_DIR: dir, POSTERN_SMTP__LISTEN: '127.0.0.1:0', POSTERN_HTTP__LISTEN: '127.0.0.1:0', POSTERN_BOOTSTRAP__API_KEY: key,
    POSTERN_DNS__SERVERS: zone.server, POSTERN_SPOOL__MIN_FREE_PERCENT: '0', POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000', POSTERN_SMTP__MAX_MESSAGES_PER_SESSION: '1000000', POSTERN_LOG__LEVEL: 'info',
  }, (line) => line.event === 'daemon.ready');
  const api = `http://${daemon.first.http}/api/1.0`;
  const call = (path: string, params: object) => fetch(`${api}${path}.json`, { method: 'POST', body: JSON.stringify({ key, ...params }) });
  await call('/inbound/add-domain', { domain: 'in.example' });
  const route = await call('/inbound/add-route', { domain: 'in.example', pattern: '*', url: sink });
  if (!route.ok) throw new Error(await route.text());
  return { process: daemon, port: Number(String(daemon.first.smtp[0]).split(':').at(-1)), end: () => { void zone.stop(); rmSync(dir, { recursive: true }); } };
}

interface Figures { rate: number; p50: number; p99: number; cpuMs: number; peakMb: number; grownMb: number }

async function measure(contestant: Contestant, size: (typeof SIZES)[number], file: string): Promise<Figures> {
  const sink = await start([join(here, 'sink.ts')]);
  const url = `http://127.0.0.1:${sink.first.port}/hook`;
  const one = await contestant.start(url);
  const messages = Math.max(10, Math.round(size.messages * scale));
  const load = (count: number) => run([join(here, 'load.ts'), String(one.port), file, String(Math.min(count, size.connections)), String(count)]);
  const posted = async () => (await (await fetch(url)).json() as { count: number }).count;
  const all = async (count: number) => { while (await posted() < count) await new Promise((resolve) => setTimeout(resolve, 10)); };
  try {
    const warm = Math.ceil(messages / 10);
    await load(warm);
    await all(warm);
    const before = { cpu: cpuSeconds(one.process.pid), memory: memoryMb(one.process.pid).now };
    const from = performance.now();
    const seen = await load(messages);
    await all(warm + messages);
    const seconds = (performance.now() - from) / 1000;
    const memory = memoryMb(one.process.pid);
    return { rate: messages / seconds, p50: seen.p50, p99: seen.p99, cpuMs: (cpuSeconds(one.process.pid) - before.cpu) * 1000 / messages, peakMb: memory.peak, grownMb: memory.peak - before.memory };
  } finally {
    await one.process.stop();
    await sink.stop();
    one.end();
  }
}

const median = (list: number[]) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;
const lines: string[] = [];
const say = (line: string) => { lines.push(line); console.log(line); };

say(`# Benchmark\n\nNode ${process.version}, ${cpus().length} processors (${cpus()[0]?.model}); median of ${values.rounds} interleaved rounds${values.quick ? ', a tenth of the messages' : ''}.`);
say('Postern writes every message to disk and syncs before its 250, takes SPF, DKIM, DMARC and ARC verdicts, and signs its posts; the others do none of that.');
for (const size of SIZES) {
  const file = join(work, 'message.eml');
  writeFileSync(file, await compose(size.bytes, size.signed ? sender : undefined));
  const results = new Map<string, Figures[]>(CONTESTANTS.map(({ name }) => [name, []]));
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const contestant of CONTESTANTS) results.get(contestant.name)?.push(await measure(contestant, size, file));
  }
  const of = (name: string, field: keyof Figures) => median((results.get(name) ?? []).map((figures) => figures[field]));
  say(`\n## ${size.name}, ${size.connections} connections\n\n| | messages/s | ratio | 250 p50 ms | 250 p99 ms | CPU ms/message | peak MB | grown MB |\n|---|---|---|---|---|---|---|---|`);
  const mine = of('postern', 'rate');
  for (const { name } of CONTESTANTS) {
    const cell = (field: keyof Figures, digits: number) => of(name, field).toFixed(digits);
    say(`| ${name} | ${cell('rate', size.bytes > 1e6 ? 1 : 0)} | ${name === 'postern' ? '1' : (mine / of(name, 'rate')).toFixed(2)} | ${cell('p50', 1)} | ${cell('p99', 1)} | ${cell('cpuMs', 2)} | ${cell('peakMb', 0)} | ${cell('grownMb', 0)} |`);
  }
}
say('\nRatio: Postern\'s messages per second over the other\'s. Again: `npm run bench`.');
if (!values.quick && values.only === undefined && values.size === undefined) writeFileSync(join(here, 'results.md'), lines.join('\n') + '\n');
rmSync(work, { recursive: true, force: true });
process.exit(0);
