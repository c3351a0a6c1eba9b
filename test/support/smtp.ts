import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { type Metrics, NO_METRICS } from '../../src/base/metrics.ts';
import { createPostmaster } from '../../src/inbound/postmaster.ts';
import type { Acceptance, AcceptResult, Arrival, Lookup, RoutedRecipient } from '../../src/inbound/types.ts';
import { folderOf, makeFolders } from '../../src/queue/disk/folder.ts';
import { createListener, type ListenerSettings } from '../../src/smtp/listener.ts';
import { afterFile } from './cleanup.ts';
import { createTestClock } from './clock.ts';
import { createTestLog } from './log.ts';
import { createTestNotes } from './notes.ts';
import { tempDir } from './temp.ts';
import { until } from './until.ts';

/** A message that the listener handed to `accept`. */
export interface Taken {
  readonly messageId: string;
  readonly arrival: Arrival;
  readonly routed: readonly RoutedRecipient[];
  readonly bytes: Buffer;
}

/** The parts below SMTP, in memory, each of which can fail on request. */
function createBelow() {
  const taken: Taken[] = [];
  let next = 0;
  const whole = {
    room: true,
    backlog: 0,
    accept: async (): Promise<'accepted' | 'full' | 'fault'> => 'accepted',
    write: async (): Promise<void> => {},
    lookup: (mailbox: string, domain: string): Lookup => {
      if (domain === 'away.test') return { kind: 'unknown' };
      if (domain !== 'ours.test' && domain !== 'xn--mnchen-3ya.test' && domain !== 'mx.ours.test')
        return { kind: 'not-ours' };
      if (mailbox.startsWith('nobody')) return { kind: 'no-route' };
      if (mailbox.startsWith('expired')) return { kind: 'expired' };
      return {
        kind: 'matched',
        match: { kind: 'inbound', account: 'account', routeId: '1.1', pattern: '*', url: 'http://127.0.0.1/' },
      };
    },
  };
  const below = {
    ...whole,
    taken,
    /** Messages begun and neither accepted nor given up; on threads nothing is begun here. */
    open: 0,
    /** Bytes that body writers hold now. */
    held: 0,
    /** Undoes all troubles. */
    mend: () => Object.assign(below, whole),
  };
  const acceptance: Acceptance = {
    begin() {
      const chunks: Buffer[] = [];
      let over = false;
      const end = () => {
        if (!over) below.open--;
        over = true;
        below.held -= chunks.splice(0).reduce((sum, chunk) => sum + chunk.length, 0);
      };
      below.open++;
      return {
        messageId: `message-${++next}`,
        body: {
          async write(chunk) {
            await below.write();
            chunks.push(Buffer.from(chunk));
            below.held += chunk.length;
          },
          async finish() {
            const bytes = Buffer.concat(chunks);
            end();
            return { kind: 'memory', bytes };
          },
          async abort() {
            end();
          },
        },
      };
    },
    async accept(messageId, arrival, routed, body): Promise<AcceptResult> {
      const outcome = await below.accept();
      if (outcome !== 'accepted') return { outcome };
      const bytes = body.kind === 'memory' ? Buffer.from(body.bytes) : readFileSync(body.path);
      taken.push({ messageId, arrival, routed, bytes });
      return { outcome, messageId };
    },
  };
  return Object.assign(below, {
    parts: {
      acceptance,
      routing: {
        lookup: (mailbox: string, domain: string) => below.lookup(mailbox, domain),
        refresh: async () => {},
        ownerOf: (domain: string) => (domain === 'ours.test' ? 'account' : undefined),
      },
      spool: { hasRoom: () => below.room, isWithinShare: () => true, backlog: () => below.backlog },
    },
  });
}

/** What listeners of tests are set to. */
export const LISTENER_SETTINGS: ListenerSettings = {
  hostname: 'mx.ours.test',
  listen: [{ host: '127.0.0.1', port: 0 }],
  maxMessageBytes: 1_000_000,
  maxRecipients: 100,
  maxSessions: 100,
  maxSessionsPerAddress: 50,
  maxMessagesPerSession: 1000,
  sessionTimeoutMs: 3_600_000,
  commandTimeoutMs: 60_000,
  idleTimeoutMs: 300_000,
  minDataRate: 500,
  slowAfterRefusals: 5,
  endAfterRefusals: 20,
  maxReceived: 50,
  bareNewline: 'reject',
  keepsPostmaster: true,
  maxBacklogPerAccount: 1000,
  maxLoopLagMs: 500,
  proxyProtocol: [],
};

/** Where the sessions of a test's listener are. */
interface Where {
  /** 0: on this thread. */
  readonly threads?: number;
  /** The program of a thread, and its parameters besides the folder of the queue. */
  readonly script?: URL;
  readonly own?: object;
  readonly metrics?: Metrics;
  /** Time of the main thread, where sessions are on others. */
  readonly time?: Clock;
}

const THREAD = new URL('../../src/composition/smtp-thread.ts', import.meta.url);

/** Describes the same twice: with sessions on the main thread, and on two threads of their own. */
export function whereverSessionsAre(
  title: string,
  tests: (start: (settings?: Partial<ListenerSettings>) => Promise<Started>, threads: number) => void,
): void {
  for (const threads of [0, 2]) {
    describe(`${title} (sessions on ${threads === 0 ? 'the main thread' : `${threads} threads`})`, () =>
      tests((settings) => startListener(settings, createTestClock(), { threads }), threads));
  }
}

/**
 * A listener on a free port of loopback, its doubles, its log and its clock. On threads sessions keep the time of the
 * system.
 */
export async function startListener(
  settings: Partial<ListenerSettings> = {},
  clock = createTestClock(),
  { threads = 0, script = THREAD, own = {}, metrics = NO_METRICS, time = systemClock }: Where = {},
) {
  const spoolDir = threads === 0 ? '' : join(await tempDir(), 'spool');
  if (threads > 0) makeFolders(folderOf(spoolDir));
  const below = createBelow();
  const log = createTestLog();
  const notes = createTestNotes();
  const listener = createListener(
    { ...LISTENER_SETTINGS, ...settings },
    {
      ...below.parts,
      returnAddresses: undefined,
      postmaster: createPostmaster({ names: [LISTENER_SETTINGS.hostname], address: '' }),
      threads: { count: threads, script, own: { spoolDir, ...own } },
      clock: threads === 0 ? clock : time,
      ids: createIds(clock),
      notes,
      log,
      metrics,
    },
  );
  await listener.start();
  const port = listener.addresses()[0]?.port ?? 0;
  const clients: Client[] = [];
  return {
    listener,
    below,
    log,
    notes,
    clock,
    port,
    /** A connection that has not been greeted yet; `localAddress` is where it comes from. */
    raw(localAddress = '127.0.0.1'): Client {
      const client = createClient(connect({ host: '127.0.0.1', port, allowHalfOpen: true, localAddress }));
      clients.push(client);
      return client;
    },
    /** A connection that was greeted and has said EHLO. */
    async client(helo = 'EHLO client.test', localAddress?: string): Promise<Client> {
      const client = this.raw(localAddress);
      await client.reply();
      if (helo !== '') await client.say(helo);
      return client;
    },
    async stop() {
      for (const client of clients) client.destroy();
      await listener.stop(0);
    },
  };
}

export type Started = Awaited<ReturnType<typeof startListener>>;

/** The other end of a session. */
export interface Client {
  /** Sends a line and answers the reply, without its last line end. */
  say(line: string): Promise<string>;
  /** Sends bytes as they are. */
  send(bytes: string | Buffer): void;
  /** The next reply, all of its lines; `closed` when the connection ended instead. */
  reply(): Promise<string>;
  /** Replies that are there already. */
  pending(): string[];
  /** Resolves when the server has ended the connection. */
  closed(): Promise<void>;
  /** Ends our side only. */
  end(): void;
  destroy(): void;
  /** Goes on in TLS; what was said before stays behind. Answers whether the handshake worked. */
  secure(): Promise<TLSSocket>;
  socket(): Socket;
}

/** Speaks for a client over a socket. */
export function createClient(first: Socket): Client {
  let socket = first;
  let text = '';
  let over = false;
  const replies: string[] = [];
  const waiting: ((reply: string) => void)[] = [];
  const tell = (reply: string) => {
    const first = waiting.shift();
    if (first) first(reply);
    else replies.push(reply);
  };
  const end = () => {
    over = true;
    for (const resolve of waiting.splice(0)) resolve('closed');
  };
  const hear = (chunk: Buffer) => {
    text += chunk.toString('latin1');
    for (;;) {
      const reply = /^(?:\d{3}-[^\n]*\n)*\d{3}(?: [^\n]*)?\n/.exec(text)?.[0];
      if (reply === undefined) break;
      text = text.slice(reply.length);
      tell(reply.trimEnd());
    }
  };
  const listen = () => socket.on('data', hear).on('error', end).on('end', end).on('close', end);
  listen();
  const client: Client = {
    say(line) {
      socket.write(`${line}\r\n`);
      return client.reply();
    },
    send: (bytes) => {
      if (!socket.destroyed) socket.write(bytes);
    },
    reply: () =>
      new Promise((resolve) => {
        const there = replies.shift() ?? (over ? 'closed' : undefined);
        if (there === undefined) waiting.push(resolve);
        else resolve(there);
      }),
    pending: () => [...replies],
    closed: async () => {
      await until('the end of the connection', () => over);
    },
    end: () => {
      socket.end();
    },
    destroy: () => {
      socket.destroy();
    },
    async secure() {
      socket.removeAllListeners('data');
      const secured = connectTls({ socket, rejectUnauthorized: false });
      socket = secured;
      listen();
      await until(
        'the handshake',
        () => (secured.getProtocol() !== null && secured.authorizationError !== null) || over,
      );
      return secured;
    },
    socket: () => socket,
  };
  clients.add(client);
  return client;
}

/** Those of the present file. */
const clients = new Set<Client>();
afterFile(async () => {
  for (const client of clients) client.destroy();
  clients.clear();
});

/** SHA-256 in hex, to compare bytes with. */
export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** A transaction up to the 354. */
export async function openData(client: Client, from = 'a@sender.test', to = 'b@ours.test'): Promise<void> {
  await client.say(`MAIL FROM:<${from}>`);
  await client.say(`RCPT TO:<${to}>`);
  const reply = await client.say('DATA');
  if (!reply.startsWith('354')) throw new Error(`DATA was answered: ${reply}`);
}

/** A whole message; answers its reply. */
export async function sendMessage(client: Client, body: string | Buffer): Promise<string> {
  await openData(client);
  client.send(body);
  client.send('\r\n.\r\n');
  return client.reply();
}
