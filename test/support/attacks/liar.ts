import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';

/** A question as it came, and what a packet about it is made of. */
export interface Query {
  readonly id: number;
  readonly name: string;
  readonly type: number;
  /** The bytes of the question. */
  readonly question: Buffer;
  readonly over: 'UDP' | 'TCP';
}

/** What is answered; `after`: milliseconds to wait; `elsewhere`: from another port than the one that was asked. */
export interface Said {
  readonly bytes: Buffer;
  readonly after?: number;
  readonly elsewhere?: boolean;
  readonly drip?: boolean;
}
export type Lie = (query: Query) => readonly Said[];

export interface Liar {
  readonly server: string;
  /** Names that were asked for, in order. */
  readonly asked: string[];
  /** Answers that went out. */
  answers(): number;
  stop(): Promise<void>;
}

/** A name server on 127.0.0.1, UDP and TCP, whose bytes are made by hand. */
export async function startLiar(lie: Lie): Promise<Liar> {
  for (let attempt = 0; ; attempt++) {
    const started = await tryLiar(lie);
    if (started) return started;
    if (attempt > 20) throw new Error('no port is free on UDP and TCP');
  }
}

async function tryLiar(lie: Lie): Promise<Liar | undefined> {
  const asked: string[] = [];
  const open = new Set<Socket>();
  const timers = new Set<NodeJS.Timeout>();
  let answers = 0;
  const [udp, other] = [createSocket('udp4'), createSocket('udp4')];
  const after = (ms: number, run: () => void) => {
    const timer = setTimeout(() => {
      timers.delete(timer);
      run();
    }, ms);
    timers.add(timer);
  };
  const hear = (bytes: Buffer, over: Query['over'], send: (said: Said) => void) => {
    const query = parse(bytes, over);
    asked.push(query.name);
    for (const said of lie(query))
      after(said.after ?? 0, () => {
        answers++;
        send(said);
      });
  };
  udp.on('message', (bytes, from) =>
    hear(bytes, 'UDP', ({ bytes: answer, elsewhere }) =>
      (elsewhere ? other : udp).send(answer, from.port, from.address),
    ),
  );
  const tcp = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {}).on('close', () => open.delete(socket));
    socket.once('data', (bytes: Buffer) =>
      hear(bytes.subarray(2), 'TCP', ({ bytes: answer, drip }) => {
        const framed = Buffer.concat([Buffer.from([answer.length >> 8, answer.length & 0xff]), answer]);
        if (!drip) return void (socket.destroyed || socket.write(framed));
        const next = (at: number) => {
          if (!socket.destroyed && at < framed.length) {
            socket.write(framed.subarray(at, at + 1));
            after(200, () => next(at + 1));
          }
        };
        next(0);
      }),
    );
  });
  udp.bind(0, '127.0.0.1');
  other.bind(0, '127.0.0.1');
  await Promise.all([once(udp, 'listening'), once(other, 'listening')]);
  const { port } = udp.address();
  tcp.listen(port, '127.0.0.1');
  const bound = await once(tcp, 'listening').then(
    () => true,
    () => false,
  );
  const stop = async () => {
    for (const timer of timers) clearTimeout(timer);
    for (const socket of open) socket.destroy();
    await Promise.all([
      new Promise<void>((done) => udp.close(() => done())),
      new Promise<void>((done) => other.close(() => done())),
      bound &&
        new Promise<void>((done) => {
          tcp.close(() => done());
        }),
    ]);
  };
  if (!bound) return void (await stop());
  return { server: `127.0.0.1:${port}`, asked, answers: () => answers, stop };
}

function parse(bytes: Buffer, over: Query['over']): Query {
  const labels: string[] = [];
  let at = 12;
  for (let length = bytes[at] ?? 0; length > 0; length = bytes[at] ?? 0) {
    labels.push(bytes.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return {
    id: bytes.readUInt16BE(0),
    name: labels.join('.').toLowerCase(),
    type: bytes.readUInt16BE(at + 1),
    question: bytes.subarray(12, at + 5),
    over,
  };
}

export const TYPE = { A: 1, NS: 2, CNAME: 5, SOA: 6, PTR: 12, MX: 15, TXT: 16, AAAA: 28 } as const;
export const FLAGS = {
  response: 0x8180,
  truncated: 0x8380,
  query: 0x0100,
  servfail: 0x8182,
  formerr: 0x8181,
  refused: 0x8185,
  nxdomain: 0x8183,
  update: 0xa980,
} as const;

const u16 = (value: number) => Buffer.from([(value >> 8) & 0xff, value & 0xff]);

/** A name in labels. */
export function nameOf(text: string): Buffer {
  const labels = text === '' ? [] : text.split('.');
  return Buffer.concat([
    ...labels.map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')])),
    Buffer.from([0]),
  ]);
}

/** A pointer to the name of the question. */
export const SAME = Buffer.from([0xc0, 12]);

/** A resource record. */
export function record(
  owner: Buffer,
  type: number,
  data: Buffer,
  { ttl = 60, kind = 1, length = data.length } = {},
): Buffer {
  const time = Buffer.alloc(4);
  time.writeUInt32BE(ttl >>> 0);
  return Buffer.concat([owner, u16(type), u16(kind), time, u16(length), data]);
}

/** The data of a TXT record. */
export function txt(...strings: string[]): Buffer {
  return Buffer.concat(strings.map((text) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text, 'latin1')])));
}

export interface Parts {
  readonly answers?: readonly Buffer[];
  readonly authorities?: readonly Buffer[];
  readonly additionals?: readonly Buffer[];
  readonly flags?: number;
  readonly id?: number;
  readonly question?: Buffer;
  readonly questions?: number;
  readonly counts?: readonly [number, number, number];
}

/** A packet. What is not said is as an honest server has it. */
export function packet(
  query: Query,
  {
    answers = [],
    authorities = [],
    additionals = [],
    flags = FLAGS.response,
    id = query.id,
    question = query.question,
    questions = 1,
    counts = [answers.length, authorities.length, additionals.length],
  }: Parts = {},
): Buffer {
  return Buffer.concat([
    u16(id),
    u16(flags),
    u16(questions),
    ...counts.map(u16),
    question,
    ...answers,
    ...authorities,
    ...additionals,
  ]);
}
