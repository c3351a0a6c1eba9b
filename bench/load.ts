import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { parseArgs } from 'node:util';

/**
 * An SMTP client that does as little as it can: opens `connections`, sends `messages` in all over them, one after the
 * other on each, and prints how long each final dot waited for its 250. Run as a process of its own:
 * node load.ts PORT FILE CONNECTIONS MESSAGES [KEY] [--seconds S] [--per-session N] [--recipients N] With a key each
 *   session logs in first. No message begins after so many seconds; a session ends after so many messages and another
 *   one takes its place; recipients are written to in turn.
 */
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: 'Infinity' },
    'per-session': { type: 'string', default: 'Infinity' },
    recipients: { type: 'string', default: '1' },
  },
});
const [port = '', file = '', connections = '', messages = '', key = ''] = positionals;
const perSession = Number(values['per-session']);
const recipients = Number(values.recipients);
const raw = readFileSync(file);
const stuffed = Buffer.from(raw.toString('latin1').replaceAll('\r\n.', '\r\n..'), 'latin1');
const data = Buffer.concat([stuffed, Buffer.from(stuffed.subarray(-2).toString() === '\r\n' ? '.\r\n' : '\r\n.\r\n')]);

const SPACE = 0x20;
const commandsFor = (name: string) =>
  Buffer.from(`MAIL FROM:<ada@sender.example>\r\nRCPT TO:<${name}@in.example>\r\nDATA\r\n`);
const COMMANDS =
  recipients === 1 ? [commandsFor('bench')] : Array.from({ length: recipients }, (_, n) => commandsFor(`bench-${n}`));
let next = 0;
let left = Number(messages);
const waits: number[] = [];

function session(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1');
    const dialog = talk(socket);
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      const text = chunk.toString('latin1');
      for (let at = 0; at < text.length; ) {
        const end = text.indexOf('\r\n', at);
        // The last line of a reply; the server sends whole lines.
        if (text.charCodeAt(at + 3) === SPACE && dialog.next(text.slice(at, end)).done) return void socket.end();
        at = end + 2;
      }
    });
    socket.on('error', reject);
    socket.on('close', () => resolve());
    dialog.next('');
  });
}

function* talk(socket: Socket): Generator<undefined, void, string> {
  expect(yield, '220');
  socket.write('EHLO bench.sender.example\r\n');
  expect(yield, '250');
  if (key !== '') {
    socket.write(`AUTH PLAIN ${Buffer.from(`\0bench\0${key}`).toString('base64')}\r\n`);
    expect(yield, '235');
  }
  for (let n = 0; n < perSession && left > 0; n++) {
    left--;
    // Pipelined, as mail servers do (RFC 2920).
    socket.write(COMMANDS[next++ % recipients] ?? '');
    expect(yield, '250');
    expect(yield, '250');
    expect(yield, '354');
    socket.write(data);
    const from = performance.now();
    expect(yield, '250');
    const now = performance.now();
    waits.push(now - from);
    if (now > until) left = 0;
  }
  socket.write('QUIT\r\n');
  expect(yield, '221');
}

function expect(line: string, code: string): void {
  if (!line.startsWith(code)) throw new Error(`wanted ${code}, got: ${line}`);
}

async function sessions(): Promise<void> {
  do await session();
  while (left > 0);
}

const before = process.cpuUsage();
const start = performance.now();
const until = start + Number(values.seconds) * 1000;
// Who leaves a session without an answer for so long is not measured, and must not hold up the others.
if (Number.isFinite(until))
  setTimeout(
    () => {
      throw new Error('sessions without an answer');
    },
    until - start + 120_000,
  ).unref();
await Promise.all(Array.from({ length: Number(connections) }, sessions));
const seconds = (performance.now() - start) / 1000;
const { user, system } = process.cpuUsage(before);
waits.sort((a, b) => a - b);
const at = (share: number) => waits[Math.min(waits.length - 1, Math.floor(waits.length * share))];
console.log(
  JSON.stringify({
    sent: waits.length,
    seconds,
    cpuMs: (user + system) / 1000,
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99),
  }),
);
