import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { toPlot } from './figures.ts';
import { CELLS, type Cell, SECONDS, titleOf, type Variant } from './matrix.ts';
import { type Figures, measure } from './measure.ts';
import { compose, createSender } from './messages.ts';
import { readOptions, refuse } from './options.ts';
import { aiosmtpd } from './peers/aiosmtpd.ts';
import { createByHand } from './peers/by-hand.ts';
import { haraka } from './peers/haraka.ts';
import type { Peer } from './peers/peer.ts';
import { createPostern } from './peers/postern.ts';
import { postfix } from './peers/postfix.ts';
import { interrupted } from './processes.ts';
import { type CellOutcome, toPeers, toSummary, toTable } from './report.ts';

const COMMAND = 'npm run bench --';
const several = { type: 'string', multiple: true } as const;
const off = { type: 'boolean', default: false } as const;
/**
 * Postern against what people build and what Debian has, on the same messages in one run on one machine. In every cell
 * each round runs every contestant once, so that a slow moment of the machine hits all alike. README.md beside this
 * says how to read it.
 */
const values = readOptions(COMMAND, 'Measures Postern beside others; writes bench/results.md and results.svg.', {
  quick: { ...off, help: 'two minutes: the main cells, one round, a quarter of the messages; writes nothing' },
  rounds: { type: 'string', number: true, placeholder: 'N', help: 'rounds of each cell; 3, of details 2, quick 1' },
  only: { ...several, placeholder: 'NAME', help: 'this contestant only; may be given several times, as all below' },
  against: { ...several, placeholder: 'FOLDER', help: 'another checkout of Postern as a contestant' },
  consoles: { type: 'string', number: true, placeholder: 'N', help: 'Postern with so many open consoles beside it' },
  copies: { ...off, help: 'Postern over a database, that of the tests or MONGODB_URL, without and with copies' },
  cell: {
    ...several,
    placeholder: 'TEXT',
    help: 'cells with this in their titles, as "STARTTLS" or "1,000 messages/s"',
  },
  size: { ...several, placeholder: 'SIZE', help: 'ordinary cells of this size, as "5 kB"' },
  connections: { ...several, placeholder: 'N', help: 'ordinary cells with so many connections' },
  out: { type: 'string', placeholder: 'FOLDER', help: 'write results.md and results.svg there' },
  long: { ...off, help: 'ten minutes more: rate and memory every ten seconds (node bench/long.ts)' },
  'no-growth': { ...off, help: 'without the cost of a message by what waits (node bench/growth.ts)' },
  'no-install': { ...off, help: 'install nothing; what is missing is left out' },
});
/** Details are measured once less: that leaves more time to what the report begins with. */
const roundsOf = ({ lead }: Cell) => Number(values.rounds ?? (values.quick ? 1 : lead ? 3 : 2));
const chosen = [values.only, values.against, values.consoles, values.cell, values.size, values.connections];
const whole = !values.quick && !values.copies && chosen.every((choice) => choice === undefined);
const out = values.out ?? (whole ? import.meta.dirname : undefined);
const scale = values.quick ? 0.25 : 1;

const within = (list: readonly string[] | undefined, value: string) => list === undefined || list.includes(value);
const cells = CELLS.filter((cell) => {
  if (values.cell) return values.cell.some((text) => titleOf(cell).includes(text));
  const { name, size, connections, quick } = cell;
  if (values.size || values.connections)
    return (
      name === undefined &&
      within(values.size, size) &&
      within(values.connections, String(connections)) &&
      (quick || !values.quick)
    );
  return quick || !values.quick;
});
const sender = createSender();
const contestants = [
  createPostern(sender),
  createPostern(sender, { name: 'postern, batches', route: { batch_events: 50 } }),
  createByHand('fetch'),
  createByHand('undici'),
  createByHand('durable'),
  haraka,
  aiosmtpd,
  postfix,
];
const unknown = values.only?.find((name) => !contestants.some((peer) => peer.name === name));
if (unknown !== undefined)
  refuse(COMMAND, `no contestant is named ${unknown}: there are ${contestants.map(({ name }) => name).join('; ')}`);
if (cells.length === 0) refuse(COMMAND, 'no such cell');
let stopDatabase = async () => {};
const all = [
  ...contestants.filter(({ name }) => within(values.only, name)),
  ...(values.consoles === undefined ? [] : [withConsoles(Number(values.consoles))]),
  ...(values.copies ? await withDatabase() : []),
  ...(values.against ?? []).map((root) => createPostern(sender, { root: resolve(root) })),
];

function withConsoles(consoles: number): Peer {
  return createPostern(sender, { name: `postern of ${consoles} open consoles`, consoles });
}

/** Two that differ only in their copies. */
async function withDatabase(): Promise<readonly Peer[]> {
  const { mongoKind, requireMongo, startMongo } = await import('../test/support/mongo-server.ts');
  requireMongo();
  const kind = mongoKind();
  if (!kind) return refuse(COMMAND, '--copies needs a database');
  const server = await startMongo(kind);
  stopDatabase = server.stop;
  let databases = 0;
  return (['none', 'store'] as const).map((copies) =>
    createPostern(sender, {
      name: `postern of a database, copies: ${copies}`,
      shared: { url: () => server.url(`bench_${process.pid}_${databases++}`), copies },
    }),
  );
}

async function choose(): Promise<{ peers: Peer[]; missing: { name: string; why: string }[] }> {
  const looked: { peer: Peer; why: string | undefined }[] = [];
  for (const peer of all) looked.push({ peer, why: await peer.missing(!values['no-install']) });
  return {
    peers: looked.filter(({ why }) => why === undefined).map(({ peer }) => peer),
    missing: looked.flatMap(({ peer: { name }, why }) => (why === undefined ? [] : [{ name, why }])),
  };
}

async function measureCell(peers: readonly Peer[], cell: Cell, file: string): Promise<CellOutcome> {
  const variants: readonly (Variant | undefined)[] = cell.variants ?? [undefined];
  const entries = peers
    .filter(({ name }) => name === 'postern' || name.startsWith('postern of') || within(cell.who, name))
    .flatMap((peer) => variants.map((variant) => ({ peer, variant, rounds: [] as Figures[], fault: '' })));
  const { connections, perSession, rate, warm } = cell;
  const count = (messages: number) => Math.max(10, Math.round(messages * scale));
  const seconds = (cell.seconds ?? SECONDS) * scale;
  const rounds = roundsOf(cell);
  const load = {
    file,
    connections,
    messages: count(cell.messages),
    seconds,
    ...(perSession !== undefined && { perSession }),
    ...(rate !== undefined && { rate }),
    ...(warm !== undefined && { warm: { messages: count(warm), seconds } }),
  };
  for (let round = 1; round <= rounds; round++) {
    // Each round begins with another one: who comes first may find the machine in another state.
    const from = (round - 1) % entries.length;
    for (const entry of [...entries.slice(from), ...entries.slice(0, from)]) {
      if (entry.fault !== '') continue;
      try {
        entry.rounds.push(await measure(entry.peer, load, { ...cell, ...entry.variant }));
      } catch (error) {
        if (interrupted()) process.exit(130);
        entry.fault = String(error).split('\n', 1).join();
        console.error(`${entry.peer.name}: ${String(error)}`);
      }
    }
    process.stderr.write(`${titleOf(cell)}: round ${round} of ${rounds}\n`);
  }
  return {
    cell,
    outcomes: entries.map(({ peer: { name }, variant, rounds, fault }) => ({
      name,
      rounds,
      ...(variant && { variant: variant.label }),
      ...(fault !== '' && { fault }),
    })),
  };
}

const began = performance.now();
if (out !== undefined) mkdirSync(out, { recursive: true }); // before what takes half an hour, not after
const { peers, missing } = await choose();
const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
process.once('exit', () => rmSync(work, { recursive: true, force: true }));
const results: CellOutcome[] = [];
for (const cell of cells) {
  const file = join(work, 'message.eml');
  writeFileSync(file, await compose(cell.bytes, cell.signed ? sender : undefined));
  const result = await measureCell(peers, cell, file);
  if (result.outcomes.length === 0) continue;
  results.push(result);
  // Seen at once; in the report the summary comes first.
  console.log(toTable(result, roundsOf(result.cell)));
}
const further: string[] = [];
// What fails here must not take the tables with it.
const add = async (title: string, section: Promise<string>) =>
  further.push(await section.catch((error) => `## ${title}\n\n${String(error)}\n`));
if (whole && !values['no-growth']) {
  const { measureGrowth } = await import('./growth.ts');
  await add('Growth', measureGrowth({ rounds: Number(values.rounds ?? 2), scale: 1, seconds: SECONDS }));
}
if (values.long) {
  const { measureLong } = await import('./long.ts');
  await add('Ten minutes', measureLong({ peer: createPostern(sender), minutes: 10, size: 5000, connections: 50 }));
}
const names = peers.map(({ name }) => name);
const minutes = ((performance.now() - began) / 60_000).toFixed(0);
const head = [
  [
    `# Benchmark\n\nNode ${process.version}, ${cpus().length} processors (${cpus()[0]?.model}), shared with the load generator and the sink.`,
    `Each figure is the median of interleaved rounds, with the lowest and highest in brackets. ${values.quick ? 'A quick run: a quarter of the messages. ' : ''}The run took ${minutes} minutes;`,
    '`npm run bench` repeats it. [README.md](README.md) explains how to read it.\n',
  ].join(' '),
  [
    "## With default settings\n\n**Bold** is Postern's messages/s over the other's. *by hand, durable* keeps accepted messages, as Postern does, but does not check",
    'senders, does not sign and tries each post once. *by hand, undici* loses accepted messages when its process ends. *postfix* writes its queue, and neither parses nor posts.\n',
  ].join('\n'),
  toSummary(results, names),
  ...(out === undefined ? [] : ["![Messages per second as shares of Postern's](results.svg)\n"]),
  `## What each server does\n\n${toPeers(peers, missing)}`,
];
const cellByCell = [
  "## All cases\n\nmessages/s: accepted and posted (only accepted if nothing is posted). Ratio: Postern's messages/s over the other's.",
  'grown: peak minus the memory before the load.\n',
].join(' ');
const tables = results.map((result) => toTable(result, roundsOf(result.cell)));
console.log([...head, ...further].join('\n'));
if (out !== undefined) {
  const report = [...head, cellByCell, ...tables, ...further].join('\n');
  writeFileSync(join(out, 'results.md'), `${report.trimEnd()}\n`);
  writeFileSync(join(out, 'results.svg'), toPlot(names, results));
}
await stopDatabase();
process.exit(0);
