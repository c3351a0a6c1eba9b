import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { toPlot } from './figures.ts';
import { CELLS, type Cell, SECONDS, titleOf } from './matrix.ts';
import { type Figures, measure } from './measure.ts';
import { compose, createSender } from './messages.ts';
import { aiosmtpd } from './peers/aiosmtpd.ts';
import { createByHand } from './peers/by-hand.ts';
import { haraka } from './peers/haraka.ts';
import type { Peer } from './peers/peer.ts';
import { createPostern } from './peers/postern.ts';
import { postfix } from './peers/postfix.ts';
import { type CellOutcome, toPeers, toTable } from './report.ts';

/**
 * Postern against what people build and what Debian has, on the same messages in one run on one machine. In every cell
 * each round runs every contestant once, so that a slow moment of the machine hits all alike. README.md beside this
 * says how to read it.
 */
const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    only: { type: 'string', multiple: true },
    against: { type: 'string' },
    size: { type: 'string', multiple: true },
    connections: { type: 'string', multiple: true },
    out: { type: 'string' },
    'no-install': { type: 'boolean', default: false },
    'no-growth': { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds ?? (values.quick ? 1 : 3));
const whole =
  !values.quick &&
  values.only === undefined &&
  values.against === undefined &&
  values.size === undefined &&
  values.connections === undefined;
const out = values.out ?? (whole ? import.meta.dirname : undefined);
const scale = values.quick ? 0.25 : 1;
let interrupted = false;

const within = (list: readonly string[] | undefined, value: string) => list === undefined || list.includes(value);
const cells = CELLS.filter(
  ({ size, connections, typical }) =>
    within(values.size, size) && within(values.connections, String(connections)) && (typical || !values.quick),
);
const sender = createSender();
const contestants = [createPostern(sender), createByHand('fetch'), createByHand('undici'), haraka, aiosmtpd, postfix];
const all = contestants.filter(({ name }) => within(values.only, name));
if (values.against !== undefined) all.push(createPostern(sender, resolve(values.against)));

async function choose(): Promise<{ peers: Peer[]; missing: { name: string; why: string }[] }> {
  const looked: { peer: Peer; why: string | undefined }[] = [];
  for (const peer of all) looked.push({ peer, why: await peer.missing(!values['no-install']) });
  return {
    peers: looked.filter(({ why }) => why === undefined).map(({ peer }) => peer),
    missing: looked.flatMap(({ peer: { name }, why }) => (why === undefined ? [] : [{ name, why }])),
  };
}

async function measureCell(peers: readonly Peer[], cell: Cell, file: string): Promise<CellOutcome> {
  const outcomes = peers.map(({ name }) => ({ name, rounds: [] as Figures[], fault: undefined as string | undefined }));
  const { connections, perSession, warm } = cell;
  const count = (messages: number) => Math.max(10, Math.round(messages * scale));
  const seconds = SECONDS * scale;
  const load = {
    file,
    connections,
    messages: count(cell.messages),
    seconds,
    ...(perSession !== undefined && { perSession }),
    ...(warm !== undefined && { warm: { messages: count(warm), seconds } }),
  };
  for (let round = 1; round <= rounds; round++) {
    for (const [i, peer] of peers.entries()) {
      const outcome = outcomes[i];
      if (!outcome || outcome.fault !== undefined) continue;
      try {
        outcome.rounds.push(await measure(peer, load));
      } catch (error) {
        if (interrupted) process.exit(130);
        outcome.fault = String(error).split('\n', 1)[0];
        console.error(`${peer.name}: ${String(error)}`);
      }
    }
    process.stderr.write(`${titleOf(cell)}: round ${round} of ${rounds}\n`);
  }
  return {
    cell,
    outcomes: outcomes.map(({ name, rounds, fault }) => ({ name, rounds, ...(fault !== undefined && { fault }) })),
  };
}

// Who is measured ends with the measurement, which the signal has ended by ending the load program.
process.once('SIGINT', () => {
  interrupted = true;
});

const began = performance.now();
const lines: string[] = [];
const say = (text: string) => {
  lines.push(text);
  console.log(text);
};
const { peers, missing } = await choose();
say(
  `# Benchmark\n\nNode ${process.version}, ${cpus().length} processors (${cpus()[0]?.model}); median of ${rounds} interleaved round${rounds === 1 ? '' : 's'}${values.quick ? ', a quarter of the messages' : ''}. Mail was sent for ${SECONDS * scale} seconds at most in each measurement.\n`,
);
say(
  `${toPeers(peers, missing)}\nmessages/s: accepted and posted; accepted where nothing is posted. Ratio: Postern's messages/s over the other's. grown: peak over what it held before the load.\n`,
);
if (out !== undefined) say("![Messages per second as shares of Postern's](results.svg)\n");
const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
const results: CellOutcome[] = [];
for (const cell of cells) {
  const file = join(work, 'message.eml');
  writeFileSync(file, await compose(cell.bytes, cell.signed ? sender : undefined));
  const result = await measureCell(peers, cell, file);
  results.push(result);
  say(toTable(result));
}
rmSync(work, { recursive: true, force: true });
if (whole && !values['no-growth']) {
  const { measureGrowth } = await import('./growth.ts');
  say(await measureGrowth({ rounds, scale: 1, seconds: SECONDS }));
}
say(`${((performance.now() - began) / 60_000).toFixed(0)} minutes. Again: \`npm run bench\`.`);
if (out !== undefined) {
  writeFileSync(join(out, 'results.md'), `${lines.join('\n')}\n`);
  writeFileSync(
    join(out, 'results.svg'),
    toPlot(
      peers.map(({ name }) => name),
      results,
    ),
  );
}
process.exit(0);
