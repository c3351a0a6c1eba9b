import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { send, startSink, until } from './measure.ts';
import { compose, createSender } from './messages.ts';
import { readOptions, refuse, usually } from './options.ts';
import { createByHand } from './peers/by-hand.ts';
import type { Peer, Started } from './peers/peer.ts';
import { createPostern } from './peers/postern.ts';
import { median } from './report.ts';

export interface LongOptions {
  readonly peer: Peer;
  readonly minutes: number;
  /** Bytes of a message. */
  readonly size: number;
  readonly connections: number;
  /** Messages a second; as many as are answered when not set. */
  readonly rate?: number | undefined;
}

/** Seconds between two rows. */
const EVERY = 10;

/** What happened since the row before. */
interface Row {
  readonly seconds: number;
  readonly accepted: number;
  readonly posted: number;
  /** Answered 250 and not posted by then. */
  readonly behind: number;
  readonly p50: number;
  readonly p99: number;
  readonly cpuMs: number;
  readonly nowMb: number;
  readonly peakMb: number;
}

/**
 * One contestant under steady load, from its first message on: long enough to compile what is hot, to purge what was
 * delivered, and to show where its memory stays. As a section for the report.
 */
export async function measureLong({ peer, minutes, size, connections, rate }: LongOptions): Promise<string> {
  const work = mkdtempSync(join(tmpdir(), 'postern-bench-'));
  const dir = mkdtempSync(join(tmpdir(), 'postern-bench-one-'));
  const file = join(work, 'message.eml');
  writeFileSync(file, await compose(size, undefined));
  const sink = await startSink();
  let one: Started | undefined;
  const rows: Row[] = [];
  let rest = 0;
  let earlier: { at: number; sent: number; posted: number; cpu: number } | undefined;
  async function note(started: Started, line: { at: number; sent: number; p50: number; p99: number }): Promise<void> {
    const { count: posted } = await sink.seen();
    const present = { at: line.at, sent: line.sent, posted, cpu: started.cpu() };
    if (earlier) {
      const seconds = (present.at - earlier.at) / 1000;
      const accepted = present.sent - earlier.sent;
      const { now, peak } = started.memory();
      rows.push({
        seconds: (rows.length + 1) * EVERY,
        accepted: accepted / seconds,
        posted: (posted - earlier.posted) / seconds,
        behind: Math.max(0, line.sent - posted), // counted a moment after the line
        p50: line.p50,
        p99: line.p99,
        cpuMs: ((present.cpu - earlier.cpu) * 1000) / accepted,
        nowMb: now,
        peakMb: peak,
      });
      process.stderr.write(`${peer.name}: ${rows.length * EVERY} of ${minutes * 60} s, ${now.toFixed(0)} MB\n`);
    }
    earlier = present;
  }
  try {
    const started = await peer.start({ urls: sink.urls, dir });
    one = started;
    const load = { file, connections, messages: 1e9, seconds: minutes * 60, ...(rate !== undefined && { rate }) };
    let noted = Promise.resolve();
    const { sent } = await send(started.port, load, {
      seconds: EVERY,
      hear(line) {
        if ('at' in line) noted = noted.then(() => note(started, line));
      },
    });
    await noted;
    const from = performance.now();
    await until(async () => (await sink.seen()).count, sent);
    rest = (performance.now() - from) / 1000;
  } finally {
    await sink.stop();
    await one?.stop();
    for (const gone of [work, dir]) rmSync(gone, { recursive: true, force: true });
  }
  return toSection(rows, rest, { peer, minutes, size, connections, rate });
}

function toSection(
  rows: readonly Row[],
  rest: number,
  { peer, minutes, size, connections, rate }: LongOptions,
): string {
  const part = (from: number, to: number) => rows.slice(Math.floor(rows.length * from), Math.ceil(rows.length * to));
  const middle = (some: readonly Row[], field: keyof Row) => median(some.map((row) => row[field])).toFixed(0);
  const [early, late] = [part(0.25, 0.5), part(0.75, 1)];
  const lines = rows.map(
    (row) =>
      `| ${row.seconds} | ${[row.accepted, row.posted, row.behind].map((value) => value.toFixed(0)).join(' | ')} | ${row.p50.toFixed(1)} | ${row.p99.toFixed(1)} | ${row.cpuMs.toFixed(2)} | ${row.nowMb.toFixed(0)} | ${row.peakMb.toFixed(0)} |`,
  );
  return (
    `## ${minutes} minutes: ${peer.name}\n\n${size} bytes, ${connections} connections, ${rate === undefined ? 'as fast as it answers' : `${rate} messages/s`}, from its first message on. ` +
    `Of the second quarter of that time and of the last, at the median: ${middle(early, 'posted')} and ${middle(late, 'posted')} messages/s posted, ${middle(early, 'nowMb')} and ${middle(late, 'nowMb')} MB, ${middle(early, 'behind')} and ${middle(late, 'behind')} messages answered 250 and not yet posted. At the end all were posted ${rest.toFixed(1)} s after the last 250. The most memory it ever had: ${rows.at(-1)?.peakMb.toFixed(0)} MB.\n\n` +
    `| s | accepted/s | posted/s | not yet posted | 250 p50 ms | p99 | CPU ms/message | MB now | MB peak |\n|---|---|---|---|---|---|---|---|---|\n${lines.join('\n')}\n`
  );
}

if (import.meta.main) {
  const command = 'node bench/long.ts';
  const values = readOptions(
    command,
    'Rate, latency and memory every ten seconds, long enough to see where they stay.',
    {
      minutes: usually(10, 'how long'),
      size: usually(5000, 'of a message'),
      connections: usually(50, 'connections'),
      rate: { type: 'string', number: true, placeholder: 'N', help: 'messages a second; as many as are answered' },
      only: { type: 'string', default: 'postern', placeholder: 'NAME', help: 'who is measured; postern' },
    },
  );
  const peers = [createPostern(createSender()), createByHand('undici'), createByHand('durable')];
  const peer = peers.find(({ name }) => name === values.only);
  if (!peer) refuse(command, `there are ${peers.map(({ name }) => name).join('; ')}`);
  console.log(
    await measureLong({
      peer,
      minutes: Number(values.minutes),
      size: Number(values.size),
      connections: Number(values.connections),
      rate: values.rate === undefined ? undefined : Number(values.rate),
    }),
  );
  process.exit(0);
}
