import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import { until } from './until.ts';

/** EICAR's test virus, which every virus scanner finds, and GTUBE, which every spam scanner takes for spam. */
export const EICAR = ['X5O!P%@AP[4\\PZX54(P^)7CC)7}$', 'EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*'].join('');
export const GTUBE = ['XJS*C4JDBQADN1.NSBN3*2IDNEN*', 'GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X'].join('');

/**
 * How a scanner misbehaves: reset · silent: reads and never answers · drip: a byte of an answer a second · huge: an answer of
 * 5 MB · nonsense · cut: half of its answer · late: its answer, after `late` milliseconds.
 */
export type Trouble = 'reset' | 'silent' | 'drip' | 'huge' | 'nonsense' | 'cut' | { readonly late: number };

/** A scanner on 127.0.0.1 that finds what `EICAR` and `GTUBE` are. */
export interface FakeScanner {
  readonly port: number;
  /** `127.0.0.1:port`. */
  readonly address: string;
  /** The complete requests: the message, and the other input of the scanner. */
  readonly asked: { readonly message: string; readonly told: string }[];
  /** Connections that are open now. */
  open(): number;
  /** How it behaves from now on; undefined: well. */
  behave(trouble: Trouble | undefined): void;
  /** Refuses connections until `resume`. */
  leave(): Promise<void>;
  resume(): Promise<void>;
  stop(): Promise<void>;
}

/** One connection: tells what was asked, if it was asked whole, and answers. */
interface Conversation {
  /** Takes the bytes so far; returns a request that arrived whole. */
  parse(bytes: Buffer, socket: Socket): { readonly message: string; readonly told: string } | undefined;
  answer(message: string): Buffer;
}

const NONSENSE = Buffer.from('<!DOCTYPE html>\r\n\r\n\0\0\0\x05c what is this?\n');

async function startFake({ parse, answer }: Conversation): Promise<FakeScanner> {
  const asked: FakeScanner['asked'] = [];
  const sockets = new Set<Socket>();
  const timers = new Set<NodeJS.Timeout>();
  let trouble: Trouble | undefined;
  let server: Server | undefined;
  let port = 0;

  function reply(socket: Socket, bytes: Buffer): void {
    if (trouble === undefined) return void socket.end(bytes);
    if (trouble === 'reset') return void socket.resetAndDestroy();
    if (trouble === 'silent') return;
    if (trouble === 'nonsense') return void socket.end(NONSENSE);
    if (trouble === 'cut') return void socket.end(bytes.subarray(0, Math.floor(bytes.length / 2)));
    if (trouble === 'huge')
      return void socket.end(Buffer.concat([bytes.subarray(0, -1), Buffer.alloc(5_000_000, ' ')]));
    if (trouble === 'drip') {
      let at = 0;
      const timer = setInterval(() => socket.write(bytes.subarray(at, ++at)), 1000);
      timers.add(timer);
      socket.on('close', () => clearInterval(timer));
      return;
    }
    timers.add(setTimeout(() => socket.end(bytes), trouble.late));
  }

  function serve(socket: Socket): void {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    let bytes = Buffer.alloc(0);
    let done = false;
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      const request = done ? undefined : parse(bytes, socket);
      if (!request) return;
      done = true;
      asked.push(request);
      reply(socket, answer(request.message));
    });
  }

  async function listen(): Promise<void> {
    server = createServer(serve);
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  }
  async function close(): Promise<void> {
    const closing = server;
    server = undefined;
    for (const socket of sockets) socket.destroy();
    if (closing) await new Promise((resolve) => closing.close(resolve));
  }
  await listen();
  return {
    get port() {
      return port;
    },
    get address() {
      return `127.0.0.1:${port}`;
    },
    asked,
    open: () => sockets.size,
    behave(next) {
      trouble = next;
    },
    leave: close,
    resume: listen,
    async stop() {
      for (const timer of timers) clearTimeout(timer);
      await close();
    },
  };
}

const ENCODED = Buffer.from(EICAR).toString('base64');

/** As clamd, which decodes base64: INSTREAM with chunks behind their length. */
export const startClamd = (): Promise<FakeScanner> =>
  startFake({
    parse(bytes) {
      let at = 'zINSTREAM\0'.length;
      const chunks: Buffer[] = [];
      for (; at + 4 <= bytes.length; ) {
        const length = bytes.readUInt32BE(at);
        if (length === 0)
          return { message: Buffer.concat(chunks).toString('latin1'), told: bytes.toString('latin1', 0, 9) };
        chunks.push(bytes.subarray(at + 4, at + 4 + length));
        at += 4 + length;
      }
      return undefined;
    },
    answer: (message) =>
      Buffer.from(
        message.includes(EICAR) || message.includes(ENCODED) ? 'stream: Eicar-Test-Signature FOUND\0' : 'stream: OK\0',
      ),
  });

function withLength(bytes: Buffer): { message: string; told: string } | undefined {
  const end = bytes.indexOf('\r\n\r\n');
  const told = bytes.toString('latin1', 0, Math.max(end, 0));
  const length = Number(/content-length: (\d+)/i.exec(told)?.[1]);
  const message = bytes.subarray(end + 4);
  return end >= 0 && message.length >= length ? { message: message.toString('latin1'), told } : undefined;
}

/** As rspamd: /checkv2 over HTTP. */
export const startRspamd = (): Promise<FakeScanner> =>
  startFake({
    parse: withLength,
    answer(message) {
      const spam = message.includes(GTUBE);
      const body = JSON.stringify({
        is_skipped: false,
        score: spam ? 1000 : -0.5,
        required_score: 15,
        action: spam ? 'reject' : 'no action',
        symbols: {
          MIME_GOOD: { name: 'MIME_GOOD', score: -0.5, metric_score: -0.5, description: 'Known content-type' },
          ...(spam && { GTUBE: { name: 'GTUBE', score: 1000, options: [] } }),
        },
      });
      return Buffer.from(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
      );
    },
  });

/** As spamd: REPORT. */
export const startSpamd = (): Promise<FakeScanner> =>
  startFake({
    parse: withLength,
    answer(message) {
      const spam = message.includes(GTUBE);
      const report = [
        'Spam detection software, running on the system "test", has examined it.',
        '',
        ' pts rule name              description',
        '---- ---------------------- --------------------------------------------------',
        ...(spam
          ? ['1000 GTUBE                  BODY: Generic Test for Unsolicited Bulk', '                            Email']
          : []),
        '-0.0 NO_RELAYS              Informational: message was not relayed via SMTP',
        '',
      ].join('\r\n');
      const word = spam ? 'True ; 1000.0 / 5.0' : 'False ; -0.0 / 5.0';
      return Buffer.from(`SPAMD/1.1 0 EX_OK\r\nContent-length: ${report.length}\r\nSpam: ${word}\r\n\r\n${report}`);
    },
  });

const packet = (command: string, data: Buffer = Buffer.alloc(0)): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length + 1);
  head.write(command, 4);
  return Buffer.concat([head, data]);
};

/**
 * As a milter of version 6: rejects GTUBE, and says of EICAR what clamav-milter does. `told` has its packets, a line each.
 * `trusting`: it accepts every client, and reads no mail.
 */
export function startMilter({ trusting = false } = {}): Promise<FakeScanner> {
  const read = new WeakMap<Socket, { at: number; told: string; message: string }>();
  return startFake({
    parse(bytes, socket) {
      const state = read.get(socket) ?? { at: 0, told: '', message: '' };
      read.set(socket, state);
      while (state.at + 5 <= bytes.length) {
        const length = bytes.readUInt32BE(state.at);
        if (state.at + 4 + length > bytes.length) return undefined;
        const command = bytes.toString('latin1', state.at + 4, state.at + 5);
        const data = bytes.subarray(state.at + 5, state.at + 4 + length);
        state.at += 4 + length;
        if (command === 'B') state.message += data.toString('latin1');
        else state.told += `${command} ${data.toString('latin1').replaceAll('\0', '|')}\n`;
        if (command === 'O') socket.write(packet('O', Buffer.from([0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0])));
        else if (command === 'E') return { message: state.message, told: state.told };
        else if (command !== 'D' && command !== 'Q') socket.write(packet(trusting ? 'a' : 'c'));
      }
      return undefined;
    },
    answer(message) {
      const wait = packet('p');
      if (message.includes(GTUBE)) return Buffer.concat([wait, packet('y', Buffer.from('550 5.7.1 Gtube pattern\0'))]);
      const status = message.includes(EICAR) ? 'Infected (Eicar-Test-Signature)' : 'Clean';
      return Buffer.concat([wait, packet('h', Buffer.from(`X-Virus-Status\0${status}\0`)), packet('c')]);
    },
  });
}

/** Waits until no client is connected. */
export const nobodyConnected = (scanner: FakeScanner): Promise<unknown> =>
  until('the connections to close', () => scanner.open() === 0);
