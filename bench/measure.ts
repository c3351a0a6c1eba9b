import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { makeCertificate } from './certificates.ts';
import type { Conditions } from './matrix.ts';
import type { Peer, Started } from './peers/peer.ts';
import { cpuSeconds, run, start } from './processes.ts';

const here = import.meta.dirname;
/** Who has not posted what it gave its 250 for by then has lost it. */
const LOST_AFTER_MS = 120_000;
/** Sender domains that a cell with a slow name server has. */
const DOMAINS = 20_000;

/** What one measurement saw; NaN is what was not looked for. */
export interface Figures {
  /** Messages a second: posted to endpoints that answer first, or accepted where nothing is posted. */
  readonly rate: number;
  /** Messages a second that were answered 250. */
  readonly accepted: number;
  /** Milliseconds from the final dot to the 250; at a fixed rate, from the time at which the message was due. */
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  /** Milliseconds from the 250 to the post, at endpoints that answer first. */
  readonly postP50: number;
  readonly postP99: number;
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
  /** Messages a second, each due at its time. */
  readonly rate?: number;
  /** The way of each message is followed to its post. */
  readonly marks?: boolean;
  readonly tls?: boolean;
  /** Sender domains, each for one message, from `first` on. */
  readonly senders?: number;
  readonly first?: number;
  /** Before the measurement; a tenth of `messages`, and a third of `seconds` at most, when not set. */
  readonly warm?: { readonly messages: number; readonly seconds: number };
}

/** Something that counts posts, in a process of its own. */
export interface Sink {
  readonly urls: readonly string[];
  /** How many posts are counted when so many messages were sent to the endpoints in turn. */
  expect(sent: number): number;
  /** Posts, and the time of the last one as `now` of processes.ts has it. */
  seen(): Promise<{ readonly count: number; readonly last: number }>;
  /** The number of each marked message, and when it came. */
  arrivals(): Promise<readonly (readonly [number, number])[]>;
  cpu(): number;
  stop(): Promise<void>;
}

/** With an endpoint for each delay in milliseconds. Only those with the shortest are counted. */
export async function startSink(delays: readonly number[] = [0], marks = false): Promise<Sink> {
  const { pid, first, stop } = await start([join(here, 'sink.ts'), JSON.stringify(delays), marks ? 'marks' : '']);
  const base = `http://127.0.0.1:${first.port}`;
  const least = Math.min(...delays);
  const counted = (n: number) => delays.slice(0, n).filter((delay) => delay === least).length;
  return {
    urls: (first.ports as number[]).map((port) => `http://127.0.0.1:${port}/hook`),
    expect: (sent) => Math.floor(sent / delays.length) * counted(delays.length) + counted(sent % delays.length),
    seen: async () => (await (await fetch(base)).json()) as { count: number; last: number },
    arrivals: async () => (await (await fetch(`${base}/arrivals`)).json()) as [number, number][],
    cpu: () => cpuSeconds(pid),
    stop,
  };
}

/** Starts the contestant afresh, warms it, and measures it. */
export async function measure(
  peer: Peer,
  load: Load,
  { endpoints = [0], certificate, dnsMs }: Conditions = {},
): Promise<Figures> {
  const away = endpoints === 'away';
  const sink = await startSink(away ? [0] : endpoints, load.rate !== undefined);
  // Routes are checked when they are added: one whose endpoint is away was there once.
  const target = away ? await startSink() : sink;
  const dir = mkdtempSync(join(tmpdir(), 'postern-bench-one-')); // not in a common one: postfix must get through
  const tls = mkdtempSync(join(tmpdir(), 'postern-bench-tls-'));
  let one: Started | undefined;
  try {
    one = await peer.start({
      urls: target.urls,
      dir,
      ...(certificate && { certificate: makeCertificate(certificate, tls) }),
      ...(dnsMs !== undefined && { dns: { ms: dnsMs, domains: DOMAINS } }),
    });
    if (away) await target.stop();
    const full = {
      ...load,
      recipients: target.urls.length,
      tls: certificate !== undefined,
      marks: load.rate !== undefined,
      ...(dnsMs !== undefined && { senders: DOMAINS }),
    };
    return await measureStarted(one, sink, full, !away && !peer.acceptsOnly);
  } finally {
    // First, because what hangs there would keep the other one from ending.
    await Promise.all([sink.stop(), target.stop()]);
    await one?.stop();
    for (const gone of [dir, tls]) rmSync(gone, { recursive: true, force: true });
  }
}

/** The same for one that runs already. `posts`: what it takes is to come to the sink, and else to be held. */
export async function measureStarted(one: Started, sink: Sink, load: Load, posts = true): Promise<Figures> {
  const { handled, expect } = posts
    ? { handled: async () => (await sink.seen()).count, expect: sink.expect }
    : { handled: one.held ?? never, expect: (sent: number) => sent };
  let early = await handled();
  const first = load.warm ?? { messages: Math.ceil(load.messages / 10), seconds: load.seconds / 3 };
  const { rate: _rate, marks: _marks, ...unlimited } = load;
  const warm = (await send(one.port, { ...unlimited, ...first })).sent;
  early += expect(warm);
  await until(handled, early);
  const before = { cpu: one.cpu(), memory: one.memory().now, sink: sink.cpu() };
  const seen = await send(one.port, { ...load, first: warm });
  const wanted = expect(seen.sent);
  await until(handled, early + wanted);
  const seconds = posts ? ((await sink.seen()).last - seen.start) / 1000 : seen.seconds;
  const memory = one.memory();
  const each = (ms: number) => ms / seen.sent;
  const late = load.marks ? await lateness(seen.answered, sink) : [];
  return {
    rate: wanted / seconds,
    accepted: seen.sent / seen.seconds,
    p50: seen.p50,
    p95: seen.p95,
    p99: seen.p99,
    postP50: late[Math.floor(late.length * 0.5)] ?? Number.NaN,
    postP99: late[Math.floor(late.length * 0.99)] ?? Number.NaN,
    cpuMs: each((one.cpu() - before.cpu) * 1000),
    toolsMs: each(seen.cpuMs + (sink.cpu() - before.sink) * 1000),
    peakMb: memory.peak,
    grownMb: memory.peak - before.memory,
  };
}

const never = () => {
  throw new Error('it keeps nothing');
};

/** How long the post of each message came after its 250, the shortest first; at once where it came before. */
async function lateness(answered: readonly (readonly [number, number])[], sink: Sink): Promise<readonly number[]> {
  const arrivals = new Map(await sink.arrivals());
  return answered
    .flatMap(([number, at]) => {
      const came = arrivals.get(number);
      return came === undefined ? [] : [Math.max(0, came - at)];
    })
    .sort((a, b) => a - b);
}

/** What the load program prints at its end. */
interface Sent {
  readonly sent: number;
  readonly start: number;
  readonly seconds: number;
  readonly cpuMs: number;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly answered: readonly (readonly [number, number])[];
}

/** `every`: hears figures every so many seconds. */
export function send(
  port: number,
  { file, connections, messages, seconds, perSession, recipients, rate, marks, tls, senders, first }: Load,
  every?: { readonly seconds: number; hear(line: any): void },
): Promise<Sent> {
  const option = (name: string, value: number | undefined) => (value === undefined ? [] : [name, String(value)]);
  return run(
    [
      join(here, 'load.ts'),
      String(port),
      file,
      String(Math.min(connections, messages)),
      String(messages),
      ...option('--seconds', seconds),
      ...option('--per-session', perSession),
      ...option('--recipients', recipients),
      ...option('--senders', senders),
      ...option('--first', first),
      ...option('--rate', rate),
      ...(marks ? ['--marks'] : []),
      ...(tls ? ['--tls'] : []),
      ...option('--every', every?.seconds),
    ],
    every?.hear,
  );
}

/** Waits until so many are counted, and throws when that takes too long. */
export async function until(count: () => number | Promise<number>, wanted: number): Promise<void> {
  const end = performance.now() + LOST_AFTER_MS;
  for (let seen = await count(); seen < wanted; seen = await count()) {
    if (performance.now() > end) throw new Error(`${wanted - seen} messages of ${wanted} were lost`);
    await wait(10);
  }
}
