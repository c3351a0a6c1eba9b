import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import type { Peer, Started } from './peers/peer.ts';
import { cpuSeconds, run, start } from './processes.ts';

const here = import.meta.dirname;
/** Who has not posted what it gave its 250 for by then has lost it. */
const LOST_AFTER_MS = 120_000;

/** What one measurement saw. */
export interface Figures {
  /** Messages a second: posted, or accepted where nothing is posted. */
  readonly rate: number;
  /** Milliseconds from the final dot to the 250. */
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  /** Processor time of the contestant for a message, and that of the load program and the sink together. */
  readonly cpuMs: number;
  readonly toolsMs: number;
  readonly peakMb: number;
  readonly grownMb: number;
}

/** How mail is sent. */
export interface Load {
  readonly file: string;
  readonly connections: number;
  readonly messages: number;
  readonly seconds: number;
  readonly perSession?: number;
  readonly recipients?: number;
  /** Before the measurement; a tenth of `messages`, and a third of `seconds` at most, when not set. */
  readonly warm?: { readonly messages: number; readonly seconds: number };
}

/** Something that counts posts, in a process of its own. */
export interface Sink {
  readonly url: string;
  count(): Promise<number>;
  cpu(): number;
  stop(): Promise<void>;
}

export async function startSink(): Promise<Sink> {
  const { pid, first, stop } = await start([join(here, 'sink.ts')]);
  const url = `http://127.0.0.1:${first.port}/hook`;
  return {
    url,
    count: async () => ((await (await fetch(url)).json()) as { count: number }).count,
    cpu: () => cpuSeconds(pid),
    stop,
  };
}

/** Starts the contestant afresh, warms it, and measures it. */
export async function measure(peer: Peer, load: Load): Promise<Figures> {
  const sink = await startSink();
  const dir = mkdtempSync(join(tmpdir(), 'postern-bench-one-')); // not in a common one: postfix must get through
  let one: Started | undefined;
  try {
    one = await peer.start(sink.url, dir);
    return await measureStarted(one, sink, load);
  } finally {
    await one?.stop();
    await sink.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** The same for one that runs already. */
export async function measureStarted(one: Started, sink: Sink, load: Load): Promise<Figures> {
  const handled = one.held ?? sink.count;
  const early = await handled();
  const first = load.warm ?? { messages: Math.ceil(load.messages / 10), seconds: load.seconds / 3 };
  const warm = (await send(one.port, { ...load, ...first })).sent;
  await until(handled, early + warm);
  const before = { cpu: one.cpu(), memory: one.memory().now, sink: sink.cpu(), from: performance.now() };
  const seen = await send(one.port, load);
  if (!one.held) await until(handled, early + warm + seen.sent);
  const seconds = one.held ? seen.seconds : (performance.now() - before.from) / 1000;
  const memory = one.memory();
  const each = (ms: number) => ms / seen.sent;
  const figures = {
    rate: seen.sent / seconds,
    p50: seen.p50,
    p95: seen.p95,
    p99: seen.p99,
    cpuMs: each((one.cpu() - before.cpu) * 1000),
    toolsMs: each(seen.cpuMs + (sink.cpu() - before.sink) * 1000),
    peakMb: memory.peak,
    grownMb: memory.peak - before.memory,
  };
  await until(handled, early + warm + seen.sent);
  return figures;
}

function send(
  port: number,
  { file, connections, messages, seconds, perSession = Number.POSITIVE_INFINITY, recipients = 1 }: Load,
) {
  return run([
    join(here, 'load.ts'),
    String(port),
    file,
    String(Math.min(connections, messages)),
    String(messages),
    '--seconds',
    String(seconds),
    '--per-session',
    String(perSession),
    '--recipients',
    String(recipients),
  ]);
}

async function until(count: () => number | Promise<number>, wanted: number): Promise<void> {
  const end = performance.now() + LOST_AFTER_MS;
  for (let seen = await count(); seen < wanted; seen = await count()) {
    if (performance.now() > end) throw new Error(`${wanted - seen} messages of ${wanted} were lost`);
    await wait(10);
  }
}
