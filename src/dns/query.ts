import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { createSemaphore } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { Tools } from '../base/tools.ts';
import {
  type Codec,
  type DnsFailure,
  gaveNoAnswer,
  isReplyTo,
  outcomeOfReply,
  type QuestionOutcome,
} from './packets.ts';
import type { Server } from './system.ts';
import type { RecordType } from './types.ts';

/** Sends questions to the name servers, each with a deadline. */
export type DnsClient = ReturnType<typeof createDnsClient>;

interface Deps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly codec: Codec;
  readonly servers: () => readonly Server[];
  /** An unpredictable question id. */
  readonly newId: () => number;
}

/** Concurrent questions; each takes one or two sockets. */
const MAX_AT_ONCE = 256;
/** After this many questions in a row without any reply there is an outage, and timeouts are shorter. */
const SILENCES = 10;
const NOTE_EVERY_MS = 60_000;

/** Creates the client for the name servers. It prefers the server that answered last. */
export function createDnsClient(deps: Deps, settings: { readonly timeoutMs: number }) {
  const { clock } = deps;
  const outage = createOutage(clock, deps.log);
  const count = createCount(deps.metrics);
  let preferred = '';
  let stopped = false;
  const slots = createSemaphore(MAX_AT_ONCE);
  const ends = new Set<() => void>();

  async function ask(name: string, type: RecordType, deadline: number): Promise<QuestionOutcome> {
    const began = clock.monotonic();
    const outcome = await askAll(name, type, deadline);
    count(type, outcome, clock.monotonic() - began);
    if (!stopped) outage.note(name, outcome);
    return outcome;
  }

  function askAll(name: string, type: RecordType, deadline: number): Promise<QuestionOutcome> {
    const ms = Math.min(deadline - clock.monotonic(), outage.lasts() ? settings.timeoutMs / TURNS : settings.timeoutMs);
    if (stopped || ms <= 0) return Promise.resolve({ kind: 'failure', reason: stopped ? 'unreachable' : 'timeout' });
    return new Promise((resolve) => {
      const end = () => round.end({ kind: 'failure', reason: 'unreachable' });
      const round = startRound(deps, turnsOf(deps.servers(), preferred), name, type, ms, (outcome, server) => {
        ends.delete(end);
        if (server) preferred = keyOf(server);
        resolve(outcome);
      });
      ends.add(end);
      round.begin();
    });
  }

  return frozen({
    ask: (name: string, type: RecordType, deadline: number): Promise<QuestionOutcome> =>
      slots.run(() => ask(name, type, deadline)),
    stop() {
      stopped = true;
      for (const end of [...ends]) end();
    },
  });
}

/** Counts questions by outcome; the counter for each pair of type and result is created once. */
function createCount(metrics: Metrics): (type: RecordType, outcome: QuestionOutcome, ms: number) => void {
  const seconds = metrics.histogram('postern_dns_seconds');
  const counters = new Map<string, Counter>();
  return (type, outcome, ms) => {
    const result = outcome.kind === 'failure' ? outcome.reason : outcome.reply.rcode === 3 ? 'nxdomain' : 'answered';
    const key = `${type} ${result}`;
    const counter = counters.get(key) ?? metrics.counter('postern_dns_questions_total', { type, result });
    counters.set(key, counter);
    counter.add();
    seconds.observe(ms / 1000);
  };
}

/** Detects an outage: no server answers any more. */
function createOutage(clock: Clock, log: Log) {
  let silences = 0;
  let notedAt = -Infinity;
  const lasts = () => silences >= SILENCES;
  return {
    lasts,
    note(name: string, outcome: QuestionOutcome): void {
      silences = gaveNoAnswer(outcome) ? silences + 1 : 0;
      if (outcome.kind === 'reply' || !lasts() || clock.monotonic() - notedAt < NOTE_EVERY_MS) return;
      notedAt = clock.monotonic();
      log.warn('dns.fault', { note: 'the name servers do not answer', name, reason: outcome.reason });
    },
  };
}

interface RoundDeps {
  readonly clock: Clock;
  readonly codec: Codec;
  readonly newId: () => number;
}

/** Minimum number of attempts before a question fails, over all servers. */
const TURNS = 4;
/** The server as a text, for comparison. */
function keyOf(server: Server): string {
  return `${server.address} ${server.port}`;
}

/** The order in which the servers are asked: the preferred one first, repeated until there are enough turns. */
function turnsOf(servers: readonly Server[], preferred: string): Server[] {
  const order = [...servers].sort((a, b) => Number(keyOf(b) === preferred) - Number(keyOf(a) === preferred));
  const turns: Server[] = [];
  for (let round = 0; round < 2 || turns.length < TURNS; round++) {
    if (order.length === 0) break;
    turns.push(...order);
  }
  return turns;
}

/**
 * Asks the servers in turn. Earlier servers may still answer while a later one is asked. A server that replied with an
 * error is not asked again; an unreachable one is, because it may be starting.
 */
function startRound(
  deps: RoundDeps,
  turns: readonly Server[],
  name: string,
  type: RecordType,
  ms: number,
  done: (outcome: QuestionOutcome, server?: Server) => void,
) {
  const open = new Set<() => void>();
  const failedServers = new Set<string>();
  const unreachable = new Set<string>();
  let reason: DnsFailure = 'timeout';
  let turn = 0;
  let over = false;
  let cancelTurn = () => {};
  const cancelAll = deps.clock.after(ms, () => end({ kind: 'failure', reason }));

  function end(outcome: QuestionOutcome, server?: Server): void {
    if (over) return;
    over = true;
    cancelAll();
    cancelTurn();
    for (const close of open) close();
    done(outcome, server);
  }

  function failed(server: Server, why: DnsFailure): void {
    reason = why;
    if (why === 'unreachable') unreachable.add(keyOf(server));
    else failedServers.add(keyOf(server));
    const next = turns[turn];
    if (turns.every((other) => failedServers.has(keyOf(other)))) return end({ kind: 'failure', reason });
    if (next && !unreachable.has(keyOf(next))) begin();
    else if (!next && open.size === 0) end({ kind: 'failure', reason });
  }

  function begin(): void {
    if (over) return;
    cancelTurn();
    let server = turns[turn++];
    while (server && failedServers.has(keyOf(server))) server = turns[turn++];
    if (!server) {
      if (open.size === 0) end({ kind: 'failure', reason });
      return;
    }
    const asked = server;
    cancelTurn = deps.clock.after(ms / turns.length, begin);
    startTurn(deps, asked, name, type, open, (outcome) => {
      if (over) return;
      if (outcome.kind === 'reply') end(outcome, asked);
      else failed(asked, outcome.reason);
    });
  }

  return { begin: () => (turns.length > 0 ? begin() : end({ kind: 'failure', reason: 'unreachable' })), end };
}

/** Asks one server: over UDP, again without an OPT record on a format error, and over TCP if the reply is truncated. */
function startTurn(
  deps: RoundDeps,
  server: Server,
  name: string,
  type: RecordType,
  open: Set<() => void>,
  done: (outcome: QuestionOutcome) => void,
): void {
  function send(over: 'udp' | 'tcp', opt: boolean): void {
    const query = deps.codec.encode(deps.newId(), name, type, opt);
    let close = () => {};
    const finish = (next: () => void) => {
      open.delete(close);
      next();
    };
    close = (over === 'udp' ? sendUdp : sendTcp)(server, query, {
      failed: () => finish(() => done({ kind: 'failure', reason: 'unreachable' })),
      packet(bytes) {
        if (!isReplyTo(query, bytes)) return false;
        const reply = deps.codec.decode(bytes);
        finish(() => {
          if (reply?.truncated && over === 'udp') send('tcp', opt);
          else if (reply?.rcode === 1 && opt) send('udp', false);
          else done(outcomeOfReply(reply));
        });
        return true;
      },
    });
    open.add(close);
  }
  send('udp', true);
}

/** Receives the packets for one query. */
interface Listener {
  /** Handles a possible answer. Returns true if it was the answer and no more packets are needed. */
  packet(bytes: Buffer): boolean;
  /** The connection failed; no packet will come. */
  failed(): void;
}

/** We announce 1232 octets (RFC 6891 section 6.2.5, which pass everywhere); much larger packets are not for us. */
const LARGEST_DATAGRAM = 4096;
/** Larger answers are of no use for mail and take long to parse. */
const LARGEST_STREAM = 32_768;

/**
 * Sends a query over UDP. Each has its own socket and so its own source port, which a forger has to guess as well as
 * the id (RFC 5452 section 9.2). The socket is connected, so the system drops packets from other addresses and reports
 * immediately that nothing listens at the server. The answer closes the socket.
 */
function sendUdp(server: Server, query: Buffer, listener: Listener): () => void {
  const family = isIPv6(server.address) ? 6 : 4;
  const socket: UdpSocket = createSocket({
    type: family === 6 ? 'udp6' : 'udp4',
    // Both hosts that are looked up are addresses: the server's, and the wildcard that the socket is bound to first.
    lookup: (host, _options, done) => done(null, host, family),
  });
  let closed = false;
  const close = () => {
    if (closed) return;
    closed = true;
    socket.close();
  };
  const fail = () => {
    if (closed) return;
    close();
    listener.failed();
  };
  socket.on('error', fail);
  socket.on('message', (bytes) => {
    if (!closed && bytes.length <= LARGEST_DATAGRAM && listener.packet(bytes)) close();
  });
  socket.connect(server.port, server.address, () => {
    if (!closed)
      socket.send(query, (error) => {
        if (error) fail();
      });
  });
  return close;
}

/** Sends a query over TCP, framed by its length (RFC 7766 section 8). The answer closes the connection. */
function sendTcp(server: Server, query: Buffer, listener: Listener): () => void {
  const socket = connect({ host: server.address, port: server.port });
  let closed = false;
  let held = Buffer.alloc(0);
  const close = () => {
    closed = true;
    socket.destroy();
  };
  const fail = () => {
    if (closed) return;
    close();
    listener.failed();
  };
  socket.on('error', fail).on('close', fail);
  socket.on('connect', () => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(query.length);
    socket.write(Buffer.concat([length, query]));
  });
  socket.on('data', (chunk) => {
    if (closed) return;
    held = Buffer.concat([held, chunk]);
    if (held.length < 2) return;
    const length = held.readUInt16BE();
    if (length > LARGEST_STREAM) return fail();
    if (held.length < 2 + length) return;
    if (listener.packet(held.subarray(2, 2 + length))) close();
    else fail();
  });
  return close;
}
