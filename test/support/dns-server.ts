import { createSocket } from 'node:dgram';
import type { AddressInfo, Socket } from 'node:net';
import { createServer } from 'node:net';
import type { Resource } from 'dns2';
import { Packet } from 'dns2';
import type { Looked, Question } from './zone.ts';

/**
 * How a name server answers: drop: not at all · servfail, refuse, formerr: with that code · truncate: cut over UDP,
 * whole over TCP · truncate-always: cut over both · late: after so many milliseconds · other-question, wrong-id: with
 * an answer that is not ours · wrong-id-first: a forged answer, then the right one · garbage: bytes that are no packet
 * · cut: a packet that ends in the middle of a record · links: one CNAME at a time, as a server does that does not look
 * further · not-authoritative: as a server that has it from another · referral: "ask those name servers" · tcp-drip: cut over UDP, one byte of the answer over TCP · no-edns:
 * formerr to a question with an OPT record · plain-case: the question in capitals.
 */
export type Behaviour =
  | 'normal'
  | 'drop'
  | 'servfail'
  | 'refuse'
  | 'formerr'
  | 'truncate'
  | 'truncate-always'
  | { readonly lateMs: number }
  /** Answers once this is so. */
  | { readonly after: Promise<unknown> }
  | 'other-question'
  | 'wrong-id'
  | 'wrong-id-first'
  | 'garbage'
  | 'cut'
  | 'links'
  | 'not-authoritative'
  | 'referral'
  | 'tcp-drip'
  | 'no-edns'
  | 'plain-case';

type Lookup = (name: string, type: string) => Looked;
type Send = (bytes: Buffer) => void;

const RCODE = { servfail: 2, refuse: 5, formerr: 1 } as const;

/** Sockets, counting and misbehaviour; what stands in the zone is the business of `lookup`. */
export async function startNameServer(lookup: Lookup, { host = '127.0.0.1', port: wanted = 0 } = {}) {
  const questions: Question[] = [];
  let behaviour: Behaviour = 'normal';
  const special = new Map<string, Behaviour>();
  const timers = new Set<NodeJS.Timeout>();
  const open = new Set<Socket>();

  function handle(bytes: Buffer, over: 'UDP' | 'TCP', send: Send): void {
    const request = Packet.parse(bytes);
    const question = request.questions[0];
    if (!question) return;
    const type = Packet.TYPE_NAME[question.type] ?? 'OTHER';
    questions.push({ name: question.name, type: over === 'TCP' ? `TCP ${type}` : type });
    const first = lookup(question.name, type); // once: a record may be a function that counts its calls
    if (first.kind === 'timeout') return;
    const look: Lookup = (name, of) => (name === question.name && of === type ? first : lookup(name, of));
    const how = special.get(question.name.toLowerCase()) ?? behaviour;
    if (typeof how !== 'object') return misbehave(request, how, over, send, look);
    const answer = () => misbehave(request, 'normal', over, send, look);
    if ('after' in how) return void how.after.then(answer);
    const timer = setTimeout(() => {
      timers.delete(timer);
      answer();
    }, how.lateMs);
    timers.add(timer);
  }

  const udp = createSocket('udp4');
  const tcp = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {}).on('close', () => open.delete(socket));
    let held: Buffer = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      held = Buffer.concat([held, chunk]);
      if (held.length < 2 || held.length < 2 + held.readUInt16BE()) return;
      handle(held.subarray(2), 'TCP', (bytes) => {
        if (!socket.destroyed) socket.write(bytes);
      });
    });
  });
  udp.on('message', (bytes, from) =>
    handle(bytes, 'UDP', (answer) => {
      try {
        udp.send(answer, from.port, from.address);
      } catch {
        /* stopped meanwhile */
      }
    }),
  );
  const port = await listenOnBoth(udp, tcp, host, wanted);
  return {
    server: `${host}:${port}`,
    port,
    questions,
    behave(how: Behaviour, name?: string) {
      if (name === undefined) behaviour = how;
      else special.set(name.toLowerCase(), how);
    },
    async stop() {
      for (const timer of timers) clearTimeout(timer);
      for (const socket of open) socket.destroy();
      await Promise.all([
        new Promise<void>((done) => udp.close(() => done())),
        new Promise<void>((done) => tcp.close(() => done())),
      ]);
    },
  };
}

/** UDP and TCP on one port: a free TCP port may be taken on UDP, so several are tried. */
async function listenOnBoth(
  udp: ReturnType<typeof createSocket>,
  tcp: ReturnType<typeof createServer>,
  host: string,
  wanted: number,
): Promise<number> {
  for (let attempt = 0; ; attempt++) {
    const port = await new Promise<number>((done, fail) => {
      tcp.once('error', fail);
      tcp.listen(wanted, host, () => {
        const address: AddressInfo | string | null = tcp.address();
        if (address === null || typeof address === 'string') fail(new Error('no port'));
        else done(address.port);
      });
    });
    const bound = await new Promise<boolean>((done) => {
      const failed = () => done(false);
      udp.once('error', failed);
      udp.bind(port, host, () => {
        udp.off('error', failed);
        done(true);
      });
    });
    if (bound) return port;
    if (attempt > 20) throw new Error('no port is free on UDP and TCP');
    await new Promise<void>((done) => tcp.close(() => done()));
  }
}

function misbehave(
  request: Packet,
  how: Exclude<Behaviour, object>,
  over: 'UDP' | 'TCP',
  send: Send,
  lookup: Lookup,
): void {
  const post = (bytes: Buffer) => send(over === 'TCP' ? framed(bytes) : bytes);
  const whole = () => answerTo(request, lookup, how === 'links').toBuffer();
  switch (how) {
    case 'drop':
      return;
    case 'servfail':
    case 'refuse':
    case 'formerr':
      return post(Packet.createErrorResponseFromRequest(request, RCODE[how]).toBuffer());
    case 'truncate':
      return post(over === 'UDP' ? truncated(request) : whole());
    case 'truncate-always':
      return post(truncated(request));
    case 'tcp-drip':
      return over === 'UDP' ? post(truncated(request)) : send(Buffer.from([0x01]));
    case 'garbage':
      return post(Buffer.from('this is not a packet at all, not even nearly'));
    case 'cut': {
      const bytes = whole();
      return post(bytes.subarray(0, bytes.length - 3));
    }
    case 'other-question': {
      const bytes = whole();
      bytes[13] = (bytes[13] ?? 0) ^ 1;
      return post(bytes);
    }
    case 'wrong-id':
      return post(forged(whole()));
    case 'wrong-id-first': {
      post(forged(whole()));
      return post(whole());
    }
    case 'referral':
      return post(referral(request).toBuffer());
    case 'no-edns':
      return post(
        request.additionals.length > 0 ? Packet.createErrorResponseFromRequest(request, 1).toBuffer() : whole(),
      );
    case 'not-authoritative': {
      const response = answerTo(request, lookup, false);
      response.header.aa = 0;
      return post(response.toBuffer());
    }
    case 'plain-case':
      for (const question of request.questions) question.name = question.name.toUpperCase();
      return post(whole());
    default:
      return post(whole());
  }
}

function framed(bytes: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** An answer that points to 6.6.6.6 under an id that was not asked. */
function forged(bytes: Buffer): Buffer {
  bytes.writeUInt16BE((bytes.readUInt16BE() + 1) & 0xffff);
  bytes.set([6, 6, 6, 6], bytes.length - 4);
  return bytes;
}

function truncated(request: Packet): Buffer {
  const response = Packet.createResponseFromRequest(request);
  response.header.tc = 1;
  return response.toBuffer();
}

function referral(request: Packet): Packet {
  const response = Packet.createResponseFromRequest(request);
  response.header.ra = 0;
  response.authorities.push(resource('example', 'NS', 300, 'ns.example'));
  return response;
}

function answerTo(request: Packet, lookup: Lookup, oneLink: boolean): Packet {
  const response = Packet.createResponseFromRequest(request);
  response.header.ra = 1;
  response.header.aa = 1;
  const question = request.questions[0];
  let name = question?.name ?? '';
  const type = Packet.TYPE_NAME[question?.type ?? 0] ?? 'OTHER';
  for (let hops = 0; hops < 32; hops++) {
    const found = lookup(name, type);
    if (found.kind === 'records') {
      for (const value of found.strings) response.answers.push(resource(name, type, found.ttl, value));
      break;
    } else if (found.kind === 'cname') {
      response.answers.push(resource(name, 'CNAME', found.ttl, found.target));
      if (oneLink) break;
      name = found.target;
    } else if (found.kind !== 'nxdomain' && found.kind !== 'none') {
      return Packet.createErrorResponseFromRequest(request, RCODE.servfail);
    } else {
      if (found.kind === 'nxdomain') response.header.rcode = 3;
      response.authorities.push(soa());
      break;
    }
  }
  return response;
}

function resource(name: string, type: string, ttl: number, value: unknown): Resource {
  const number = Object.entries(Packet.TYPE).find(([of]) => of === type)?.[1] ?? 0;
  const record = new Packet.Resource(name, number, Packet.CLASS.IN, ttl);
  if (typeof value === 'string')
    Object.assign(record, { address: value, domain: value, ns: value, data: [...chunks(value)] });
  else if (Array.isArray(value)) Object.assign(record, { data: value });
  else Object.assign(record, value);
  return record;
}

function* chunks(text: string): Generator<string> {
  for (let at = 0; at === 0 || at < text.length; at += 255) yield text.slice(at, at + 255);
}

function soa(): Resource {
  const record = resource('example', 'SOA', 60, {});
  return Object.assign(record, {
    primary: 'ns.example',
    admin: 'root.example',
    serial: 1,
    refresh: 3600,
    retry: 600,
    expiration: 86400,
    minimum: 60,
  });
}
