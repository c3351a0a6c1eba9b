import { createServer, type Socket } from 'node:net';
import { now } from './processes.ts';

/**
 * Counts the messages in POSTs and throws them away: node sink.ts [DELAYS [marks]], a port for each of the delays: milliseconds before
 * the 200, as JSON, and null for none ever. GET answers the count so far and the time of the last one, of those ports
 * that answer first. HEAD answers 200 at once. With marks it notes when the mark of each message came to those ports;
 * GET /arrivals answers that. It is HTTP by hand, because it shares the processors with what is measured: node:http
 * took a sixth of them. Bodies come with their length.
 */
const delays = (JSON.parse(process.argv[2] ?? '[0]') as (number | null)[]).map((ms) => ms ?? Number.POSITIVE_INFINITY);
const marked = process.argv[3] === 'marks';
const least = Math.min(...delays);
let count = 0;
let last = 0;
/** When the message of each number came. */
const arrivals = new Map<number, number>();
const END = Buffer.from('\r\n\r\n');
/** What load.ts puts before the number of a message, and how long both are. */
const MARK = Buffer.from('benchmark-message-');
const MARK_LENGTH = MARK.length + 8;

function serve(socket: Socket, delay: number): void {
  /** The beginning of a head whose end has not come yet. */
  let early: Buffer = Buffer.alloc(0);
  /** Bytes of the present body that are still to come, and the messages in it. */
  let left = 0;
  let messages = 1;
  const watched = marked && delay === least;
  let seek = watched ? createSeek() : undefined;
  socket.setNoDelay(true);
  socket.on('error', () => {});
  socket.on('data', (fresh) => {
    const chunk = early.length === 0 ? fresh : Buffer.concat([early, fresh]);
    early = chunk.subarray(chunk.length);
    for (let at = 0; at < chunk.length; ) {
      if (left > 0) {
        const taken = Math.min(left, chunk.length - at);
        seek?.(chunk.subarray(at, at + taken));
        at += taken;
        left -= taken;
        if (left === 0) {
          posted(socket, delay, messages);
          if (watched) seek = createSeek();
        }
        continue;
      }
      const end = chunk.indexOf(END, at);
      if (end < 0) {
        early = chunk.subarray(at);
        return;
      }
      const head = chunk.toString('latin1', at, end);
      messages = Number(/^webhook-id: *batch-(\d+)-/im.exec(head)?.[1] ?? 1);
      left = begin(socket, delay, head);
      at = end + END.length;
    }
  });
}

/** What a request wants; answers the length of the body that follows. */
function begin(socket: Socket, delay: number, head: string): number {
  if (head.startsWith('POST')) {
    const length = Number(/content-length: *(\d+)/i.exec(head)?.[1] ?? Number.NaN);
    if (Number.isNaN(length)) throw new Error(`a POST without a length: ${head}`);
    if (length === 0) posted(socket, delay, 1);
    return length;
  }
  const body = head.startsWith('HEAD')
    ? ''
    : JSON.stringify(head.startsWith('GET /arrivals') ? [...arrivals] : { count, last });
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  return 0;
}

function posted(socket: Socket, delay: number, messages: number): void {
  if (delay === 0) return answer(socket, delay, messages);
  if (Number.isFinite(delay)) setTimeout(answer, delay, socket, delay, messages);
}

function answer(socket: Socket, delay: number, messages: number): void {
  if (delay === least) {
    count += messages;
    last = now();
  }
  if (socket.writable) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
}

/** Looks for the mark in the pieces of one body, of which it keeps as much as a mark may be cut in. */
function createSeek(): (piece: Buffer) => void {
  let before: Buffer = Buffer.alloc(0);
  let found = false;
  return (piece) => {
    if (found) return;
    const text = before.length === 0 ? piece : Buffer.concat([before, piece]);
    const at = text.indexOf(MARK);
    found = at >= 0 && at + MARK_LENGTH <= text.length;
    if (!found) before = text.subarray(Math.max(0, text.length - MARK_LENGTH));
    else {
      const number = Number(text.toString('latin1', at + MARK.length, at + MARK_LENGTH));
      if (!arrivals.has(number)) arrivals.set(number, now());
    }
  };
}

const ports = await Promise.all(
  delays.map(
    (delay) =>
      new Promise((resolve) => {
        const server = createServer((socket) => serve(socket, delay));
        server.listen({ port: 0, host: '127.0.0.1', backlog: 1000 }, () => {
          const address = server.address();
          resolve(typeof address === 'object' && address !== null ? address.port : 0);
        });
      }),
  ),
);
console.log(JSON.stringify({ port: ports[0], ports }));
process.on('SIGTERM', () => process.exit(0));
