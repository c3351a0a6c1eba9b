import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, createSecureContext } from 'node:tls';
import { parseArgs } from 'node:util';
import { now } from './processes.ts';

/**
 * An SMTP client that does as little as it can: opens `connections`, sends `messages` in all over them, one after the
 * other on each, and prints how long each waited for its 250. Run as a process of its own:
 * node load.ts PORT FILE CONNECTIONS MESSAGES [KEY] [options]
 * With a key each session logs in first. See `options` for the rest.
 */
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    /** No message begins after so many. */
    seconds: { type: 'string', default: 'Infinity' },
    /** A session ends after so many messages, and another one takes its place. */
    'per-session': { type: 'string', default: 'Infinity' },
    /** Written to in turn. */
    recipients: { type: 'string', default: '1' },
    /** Every message has a sender domain of its own, of so many, from `first` on. */
    senders: { type: 'string', default: '0' },
    first: { type: 'string', default: '0' },
    /** Sessions begin with STARTTLS, each with a full handshake. */
    tls: { type: 'boolean', default: false },
    /**
     * Messages a second, each due at its time: a wait counts from then, not from the final dot, so one that must wait
     * for its turn because others wait for their 250 is not measured as fast. Those that were due and never began
     * count with what they had waited at the end.
     */
    rate: { type: 'string', default: 'Infinity' },
    /** Each message has its number in a header; when each was answered is printed, too. */
    marks: { type: 'boolean', default: false },
    /** Prints figures at the start and every so many seconds, too, of the messages since the last. */
    every: { type: 'string' },
  },
});
const [port = '', file = '', connections = '', messages = '', key = ''] = positionals;
const perSession = Number(values['per-session']);
const recipients = Number(values.recipients);
const senders = Number(values.senders);
const first = Number(values.first);
const rate = Number(values.rate);
const raw = readFileSync(file);
const stuffed = Buffer.from(raw.toString('latin1').replaceAll('\r\n.', '\r\n..'), 'latin1');
const data = Buffer.concat([stuffed, Buffer.from(stuffed.subarray(-2).toString() === '\r\n' ? '.\r\n' : '\r\n.\r\n')]);

const SPACE = 0x20;
const commandsFor = (domain: string, name: string) =>
  Buffer.from(`MAIL FROM:<ada@${domain}>\r\nRCPT TO:<${name}@in.example>\r\nDATA\r\n`);
const COMMANDS = Array.from({ length: recipients }, (_, n) =>
  commandsFor('sender.example', recipients === 1 ? 'bench' : `bench-${n}`),
);
const commandsOf = (n: number) =>
  senders === 0 ? (COMMANDS[n % recipients] ?? '') : commandsFor(`n${(first + n) % senders}.sender.example`, 'bench');
const markOf = (n: number) => `X-Mark: benchmark-message-${String(n).padStart(8, '0')}\r\n`;

/** One for all: to read the certificates of all authorities again costs more than a handshake. */
const secureContext = values.tls ? createSecureContext() : undefined;

let begun = 0;
let waits: number[] = [];
let sent = 0;
/** The time of the last 250. */
let last = 0;
const answered: [number, number][] = [];
/** Sessions that wait until a message is due. */
const idle: (() => void)[] = [];
const dueAt = (n: number) => start + (n * 1000) / rate;
const isOver = () => begun >= Number(messages) || now() >= until;

function session(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1');
    let wire: Duplex = socket;
    let over = false;
    const dialog = talk((bytes) => wire.write(bytes));
    socket.setNoDelay(true);
    socket.on('error', reject);
    socket.on('close', () => (over ? resolve() : reject(new Error('a session was cut'))));

    function step(line: string): void {
      const { done, value } = dialog.next(line);
      over = done === true;
      if (over) wire.end();
      else if (value === 'turn') idle.push(() => step(''));
      else if (value === 'tls') {
        socket.removeAllListeners('data');
        wire = connectTls({ socket, secureContext, rejectUnauthorized: false }, () => step(''));
        wire.on('error', reject);
        wire.on('data', read);
      }
    }

    function read(chunk: Buffer): void {
      const text = chunk.toString('latin1');
      for (let at = 0; at < text.length; ) {
        const end = text.indexOf('\r\n', at);
        // The last line of a reply; the server sends whole lines.
        if (text.charCodeAt(at + 3) === SPACE) step(text.slice(at, end));
        at = end + 2;
      }
    }
    socket.on('data', read);
    dialog.next('');
  });
}

/** One session. It waits for the last line of a reply, for TLS that begins, or for its turn to send. */
function* talk(write: (bytes: Buffer | string) => void): Generator<'line' | 'tls' | 'turn', void, string> {
  expect(yield 'line', '220');
  write('EHLO bench.sender.example\r\n');
  expect(yield 'line', '250');
  if (values.tls) {
    write('STARTTLS\r\n');
    expect(yield 'line', '220');
    yield 'tls';
    write('EHLO bench.sender.example\r\n');
    expect(yield 'line', '250');
  }
  if (key !== '') {
    write(`AUTH PLAIN ${Buffer.from(`\0bench\0${key}`).toString('base64')}\r\n`);
    expect(yield 'line', '235');
  }
  for (let n = 0; n < perSession; n++) {
    while (!isOver() && dueAt(begun) > now()) yield 'turn';
    if (isOver()) break;
    const number = begun++;
    // Pipelined, as mail servers do (RFC 2920).
    write(commandsOf(number));
    expect(yield 'line', '250');
    expect(yield 'line', '250');
    expect(yield 'line', '354');
    write(values.marks ? Buffer.concat([Buffer.from(markOf(number)), data]) : data);
    const from = Number.isFinite(rate) ? dueAt(number) : now();
    expect(yield 'line', '250');
    const at = now();
    sent++;
    last = at;
    waits.push(at - from);
    if (values.marks) answered.push([number, at]);
  }
  write('QUIT\r\n');
  expect(yield 'line', '221');
}

function expect(line: string, code: string): void {
  if (!line.startsWith(code)) throw new Error(`wanted ${code}, got: ${line}`);
}

async function sessions(): Promise<void> {
  do await session();
  while (!isOver());
}

/** Wakes sessions when messages are due, and all at the end. */
function wake(): void {
  while (idle.length > 0 && (isOver() || dueAt(begun) <= now())) idle.shift()?.();
}

function percentiles() {
  waits.sort((a, b) => a - b);
  const at = (share: number) => waits[Math.min(waits.length - 1, Math.floor(waits.length * share))] ?? null;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

const before = process.cpuUsage();
const start = now();
const until = start + Number(values.seconds) * 1000;
const timers = Number.isFinite(rate) ? [setInterval(wake, 1)] : [];
// Who leaves a session without an answer for so long is not measured, and must not hold up the others.
if (Number.isFinite(until))
  setTimeout(
    () => {
      throw new Error('sessions without an answer');
    },
    until - start + 120_000,
  ).unref();
if (values.every !== undefined) {
  report();
  timers.push(setInterval(report, Number(values.every) * 1000));
}
function report(): void {
  console.log(JSON.stringify({ at: now(), sent, ...percentiles() }));
  waits = [];
}
await Promise.all(Array.from({ length: Number(connections) }, sessions));
for (const timer of timers) clearInterval(timer);
const end = now();
const { user, system } = process.cpuUsage(before);
if (Number.isFinite(rate))
  for (let n = begun; n < Number(messages) && dueAt(n) < until; n++) waits.push(Math.max(0, end - dueAt(n)));
console.log(
  JSON.stringify({
    sent,
    start,
    seconds: (last - start) / 1000,
    cpuMs: (user + system) / 1000,
    ...percentiles(),
    answered,
  }),
);
