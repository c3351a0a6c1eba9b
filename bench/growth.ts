import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startZone } from '../test/support/zone.ts';
import { type Fill, fill } from './growth-fill.ts';
import { type Figures, measureStarted, type Sink, startSink } from './measure.ts';
import { compose, createSender } from './messages.ts';
import { readOptions, usually } from './options.ts';
import { startPostern } from './peers/postern.ts';
import { median } from './report.ts';

/** What the cost of a message is measured against: nothing waits, ten routes, one endpoint. */
const BASE: Fill = { waiting: 0, routes: 10, kind: 'exact', endpoints: 1 };

const worlds = (scale: number): readonly { readonly name: string; readonly fill: Fill }[] => {
  const count = (n: number) => Math.round(n * scale);
  const named = (n: number) => count(n).toLocaleString('en');
  return [
    { name: 'nothing waits, 10 routes, 1 endpoint', fill: BASE },
    { name: `${named(10_000)} waiting`, fill: { ...BASE, waiting: count(10_000) } },
    { name: `${named(1_000_000)} waiting`, fill: { ...BASE, waiting: count(1_000_000) } },
    { name: `${named(100_000)} routes, whole names`, fill: { ...BASE, routes: count(100_000) } },
    { name: `${named(100_000)} routes, patterns`, fill: { ...BASE, routes: count(100_000), kind: 'pattern' } },
    { name: `${named(10_000)} endpoints`, fill: { ...BASE, endpoints: count(10_000) } },
  ];
};

export interface GrowthOptions {
  readonly rounds: number;
  /** Of the sizes of everything. */
  readonly scale: number;
  readonly seconds: number;
  /** Only the worlds whose names have one of these in them, beside the first. */
  readonly only?: readonly string[] | undefined;
}

/** Beyond this the cost of a message is not flat. */
const FLAT = 1.3;

interface Seen extends Figures {
  readonly startMs: number;
  readonly readyMb: number;
}

/** The cost of a 5 kB message in daemons that have more and more to look after, as a section for the report. */
export async function measureGrowth({ rounds, scale, seconds, only }: GrowthOptions): Promise<string> {
  const work = mkdtempSync(join(tmpdir(), 'postern-growth-'));
  const sender = createSender();
  const file = join(work, 'message.eml');
  writeFileSync(file, await compose(5000, undefined));
  const [zone, sink] = [await startZone(sender.zone), await startSink()];
  const chosen = worlds(scale).filter(
    ({ name }, i) => i === 0 || only === undefined || only.some((part) => name.includes(part)),
  );
  const measured = chosen.map((world, i) => ({ ...world, dir: join(work, String(i)), seen: [] as Seen[] }));
  const load = { file, connections: 50, messages: Math.round(8000 * Math.min(1, seconds / 3)), seconds };
  try {
    for (const { name, dir, fill: what } of measured) {
      process.stderr.write(`filling: ${name}\n`);
      await prepare(dir, zone.server, sink, what);
    }
    for (let round = 1; round <= rounds; round++) {
      for (const {
        dir,
        fill: { endpoints },
        seen,
      } of measured)
        seen.push(
          await measureOne(dir, zone.server, sink, {
            ...load,
            recipients: endpoints,
            warm: { messages: Math.max(800, endpoints), seconds: Number.POSITIVE_INFINITY },
          }),
        );
      process.stderr.write(`growth: round ${round} of ${rounds}\n`);
    }
  } finally {
    await Promise.all([zone.stop(), sink.stop()]);
    rmSync(work, { recursive: true, force: true });
  }
  return toSection(measured);
}

async function prepare(dir: string, dns: string, sink: Sink, what: Fill): Promise<void> {
  const daemon = await startPostern(dir, dns);
  await daemon.call('/inbound/add-domain', { domain: 'in.example' });
  await daemon.stop();
  await fill(dir, sink.urls[0] ?? '', what);
}

async function measureOne(
  dir: string,
  dns: string,
  sink: Sink,
  load: Parameters<typeof measureStarted>[2],
): Promise<Seen> {
  const from = performance.now();
  const daemon = await startPostern(dir, dns);
  const startMs = performance.now() - from;
  const readyMb = daemon.memory().now;
  try {
    return { ...(await measureStarted(daemon, sink, load)), startMs, readyMb };
  } finally {
    await daemon.stop();
  }
}

function toSection(measured: readonly { readonly name: string; readonly seen: readonly Seen[] }[]): string {
  const middle = (seen: readonly Seen[], field: keyof Seen) => median(seen.map((figures) => figures[field]));
  const first = middle(measured[0]?.seen ?? [], 'cpuMs');
  const rows = measured.map(({ name, seen }) => {
    const of = (field: keyof Seen, digits: number) => middle(seen, field).toFixed(digits);
    const times = middle(seen, 'cpuMs') / first;
    return `| ${name} | ${of('rate', 0)} | ${of('cpuMs', 2)} | ${times.toFixed(2)}${times > FLAT ? ' (not flat)' : ''} | ${of('p99', 1)} | ${(middle(seen, 'startMs') / 1000).toFixed(2)} | ${of('readyMb', 0)} | ${of('peakMb', 0)} |`;
  });
  return (
    `## How the cost of a message grows\n\n5 kB, 50 connections. What waits is parked for a hundred endpoints that are away; its messages are half a kB.\n\n` +
    `| | messages/s | CPU ms/message | times the first | 250 p99 ms | start s | MB at start | peak MB |\n|---|---|---|---|---|---|---|---|\n${rows.join('\n')}\n`
  );
}

if (import.meta.main) {
  const values = readOptions('node bench/growth.ts', 'The cost of a message when more and more waits or is known.', {
    quick: { type: 'boolean', default: false, help: 'a hundredth of everything, one round, a second of mail' },
    rounds: usually(3, 'rounds'),
    scale: { type: 'string', number: true, placeholder: 'SHARE', help: 'of the size of everything; 1' },
    seconds: { type: 'string', number: true, placeholder: 'S', help: 'of mail in each measurement; 3' },
    only: { type: 'string', multiple: true, placeholder: 'TEXT', help: 'the worlds with this in their names' },
  });
  const section = await measureGrowth({
    rounds: Number(values.quick ? 1 : values.rounds),
    scale: Number(values.scale ?? (values.quick ? 0.01 : 1)),
    seconds: Number(values.seconds ?? (values.quick ? 1 : 3)),
    only: values.only,
  });
  console.log(section);
  process.exit(0);
}
