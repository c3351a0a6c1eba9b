import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import { type Codec, isReplyTo, judge, type QuestionOutcome, type Reason } from './packets.ts';
import type { Server } from './system.ts';
import type { RecordType } from './types.ts';

/** Asks the name servers one question under one deadline. */
export interface Asking {
  ask(name: string, type: RecordType, deadline: number): Promise<QuestionOutcome>;
  stop(): void;
}

interface Deps {
  readonly clock: Clock;
  readonly log: Log;
  readonly codec: Codec;
  readonly servers: () => readonly Server[];
  /** A question id that nobody can guess. */
  readonly newId: () => number;
  readonly metrics: Metrics;
}

/** Questions on their way at one time: each is a socket or two. */
const MOST_AT_ONCE = 256;
/** So many questions in a row without a sign of life make an outage: then nobody is waited for as long as usual. */
const SILENCES = 10;
const NOTE_EVERY_MS = 60_000;

/** The part that asks. It prefers the server that answered last. */
export function createAsking(deps: Deps, settings: { readonly timeoutMs: number }): Asking {
  const { clock } = deps;
  const outage = createOutage(clock, deps.log);
  const count = createCount(deps.metrics);
  let preferred = '';
  let running = 0;
  let stopped = false;
  const line: (() => void)[] = [];
  const ends = new Set<() => void>();

  async function ask(name: string, type: RecordType, deadline: number): Promise<QuestionOutcome> {
    if (running >= MOST_AT_ONCE) await new Promise<void>((resolve) => line.push(resolve));
    running++;
    const began = clock.monotonic();
    try {
      const outcome = await askAll(name, type, deadline);
      count(type, outcome, clock.monotonic() - began);
      if (!stopped) outage.note(name, outcome);
      return outcome;
    } finally {
      running--;
      line.shift()?.();
    }
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
    ask,
    stop() {
      stopped = true;
      for (const end of [...ends]) end();
    },
  });
}

/** Counts questions by what was outcome; each pair of type and result is bound once. */
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

/** Notices when nobody answers any more. */
function createOutage(clock: Clock, log: Log) {
  let silences = 0;
  let notedAt = -Infinity;
  const lasts = () => silences >= SILENCES;
  return {
    lasts,
    note(name: string, outcome: QuestionOutcome): void {
      const silent = outcome.kind === 'failure' && (outcome.reason === 'timeout' || outcome.reason === 'unreachable');
      silences = silent ? silences + 1 : 0;
      if (!silent || !lasts() || clock.monotonic() - notedAt < NOTE_EVERY_MS) return;
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

/** At least so many datagrams before a question is given up, over all servers. */
const TURNS = 4;
/** A server as text, to compare. */
function keyOf(server: Server): string {
  return `${server.address} ${server.port}`;
}

/** The order in which the servers are asked, the preferred one first, until there are enough turns. */
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
 * Takes the turns one after the other. An earlier server is still listened to while a later one is asked: a slow answer
 * is an answer. A server that said no is not asked again; one that is unreachable is, for it may be starting.
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
  const said = new Set<string>();
  const away = new Set<string>();
  let reason: Reason = 'timeout';
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

  function failed(server: Server, why: Reason): void {
    reason = why;
    if (why === 'unreachable') away.add(keyOf(server));
    else said.add(keyOf(server));
    const next = turns[turn];
    if (turns.every((other) => said.has(keyOf(other)))) return end({ kind: 'failure', reason });
    if (next && !away.has(keyOf(next))) begin();
    else if (!next && open.size === 0) end({ kind: 'failure', reason });
  }

  function begin(): void {
    if (over) return;
    cancelTurn();
    let server = turns[turn++];
    while (server && said.has(keyOf(server))) server = turns[turn++];
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

/** One server: over UDP, without an OPT record if it does not know them, over TCP if the answer was cut. */
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
          else done(judge(reply));
        });
        return true;
      },
    });
    open.add(close);
  }
  send('udp', true);
}

/** What a packet on the way back may do to the one who waits. */
interface Listener {
  /** Bytes that claim to be the answer. True when they were, and nothing more is awaited. */
  packet(bytes: Buffer): boolean;
  /** Nothing will come from there any more. */
  failed(): void;
}

/**
 * We announce 1232 octets (RFC 6891 section 6.2.5, the size that passes everywhere); what is much larger was not meant
 * for us.
 */
const LARGEST_DATAGRAM = 4096;
/** Larger answers than this are of no use for mail and cost time to read. */
const LARGEST_STREAM = 32_768;

/**
 * Sends a question over UDP. Each has a socket, and so a source port, of its own: the port is what a forger has to
 * guess beside the id (RFC 5452 section 9.2). The socket is connected, so the system drops what comes from anybody but
 * the server, and tells at once when nobody listens there. The answer closes it.
 */
function sendUdp(server: Server, query: Buffer, listener: Listener): () => void {
  const family = isIPv6(server.address) ? 6 : 4;
  const socket: UdpSocket = createSocket({
    type: family === 6 ? 'udp6' : 'udp4',
    lookup: (_host, _options, done) => done(null, server.address, family), // an address needs no look-up
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

/** Sends a question over TCP, framed by its length (RFC 7766 section 8). The answer closes the connection. */
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
