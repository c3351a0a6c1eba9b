import { connect, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';

/**
 * An SMTP client that does as little as it can: opens `connections`, sends `messages` in all over them, one after the other
 * on each, and prints how long each final dot waited for its 250. Run as a process of its own:
 * node load.ts PORT FILE CONNECTIONS MESSAGES [KEY]
 * With a key each session logs in first.
 */
const [port = '', file = '', connections = '', messages = '', key = ''] = process.argv.slice(2);
const raw = readFileSync(file);
const stuffed = Buffer.from(raw.toString('latin1').replaceAll('\r\n.', '\r\n..'), 'latin1');
const data = Buffer.concat([stuffed, Buffer.from(stuffed.subarray(-2).toString() === '\r\n' ? '.\r\n' : '\r\n.\r\n')]);

const SPACE = 0x20;
const COMMANDS = Buffer.from('MAIL FROM:<ada@sender.example>\r\nRCPT TO:<bench@in.example>\r\nDATA\r\n');
let left = Number(messages);
const waits: number[] = [];

function session(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1');
    const dialog = talk(socket);
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      const text = chunk.toString('latin1');
      for (let at = 0; at < text.length;) {
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
  while (left > 0) {
    left--;
    // Pipelined, as mail servers do (RFC 2920).
    socket.write(COMMANDS);
    expect(yield, '250');
    expect(yield, '250');
    expect(yield, '354');
    socket.write(data);
    const from = performance.now();
    expect(yield, '250');
    waits.push(performance.now() - from);
  }
  socket.write('QUIT\r\n');
  expect(yield, '221');
}

function expect(line: string, code: string): void {
  if (!line.startsWith(code)) throw new Error(`wanted ${code}, got: ${line}`);
}

const start = performance.now();
await Promise.all(Array.from({ length: Number(connections) }, session));
waits.sort((a, b) => a - b);
const at = (share: number) => waits[Math.min(waits.length - 1, Math.floor(waits.length * share))];
console.log(JSON.stringify({ sent: waits.length, seconds: (performance.now() - start) / 1000, p50: at(0.5), p95: at(0.95), p99: at(0.99) }));
