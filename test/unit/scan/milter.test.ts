import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect } from 'chai';
import { createMilter } from '../../../src/scan/milter.ts';
import type { ScanInput, ThreatKind } from '../../../src/scan/scanner.ts';

/** An answer at the end of the message: add, insert or change a field, quarantine, or the last word. */
type Answer = readonly [command: 'h' | 'i' | 'm' | 'q' | 'c' | 'a' | 'r' | 'd', name?: string, value?: string];

function packet(command: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length + 1);
  head.write(command, 4);
  return Buffer.concat([head, data]);
}

function toPacket([command, name, value = '']: Answer): Buffer {
  if (name === undefined) return packet(command);
  const text = Buffer.from(command === 'q' ? `${name}\0` : `${name}\0${value}\0`);
  const index = command === 'i' || command === 'm' ? Buffer.from([0, 0, 0, 1]) : Buffer.alloc(0);
  return packet(command, Buffer.concat([index, text]));
}

/** A milter that answers "continue" to everything, and these answers to the end of the message. */
async function startPlayer(answers: () => readonly Answer[]): Promise<Server> {
  const server = createServer({ noDelay: true }, (socket: Socket) => {
    let bytes = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 5 && bytes.length >= 4 + bytes.readUInt32BE()) {
        const length = bytes.readUInt32BE();
        const command = bytes.toString('latin1', 4, 5);
        bytes = bytes.subarray(4 + length);
        if (command === 'O') socket.write(packet('O', Buffer.from([0, 0, 0, 6, 0, 0, 0, 0x11, 0, 0, 0, 0])));
        else if (command === 'E') for (const answer of answers()) socket.write(toPacket(answer));
        else if (command !== 'D' && command !== 'Q') socket.write(packet('c'));
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

const SPECIMEN: ScanInput = {
  id: 'm1',
  envelope: { mailFrom: 'eve@attacker.test', client: { address: '192.0.2.66', helo: 'attacker.test', tls: null } },
  recipients: ['box@in.test'],
  trace: '',
  body: { kind: 'memory', bytes: Buffer.from('X-Virus-Status: Clean\r\nX-Spam-Flag: NO\r\n\r\nx\r\n') },
};

/** Every order of some answers. */
function* orders<T>(all: readonly T[]): Iterable<readonly T[]> {
  if (all.length < 2) yield all;
  for (const [i, one] of all.entries())
    for (const rest of orders([...all.slice(0, i), ...all.slice(i + 1)])) yield [one, ...rest];
}

describe('the verdict of a milter by its header changes', () => {
  let server: Server;
  let answers: readonly Answer[] = [];
  before(async () => {
    server = await startPlayer(() => answers);
  });
  after(() => new Promise((resolve) => server.close(resolve)));

  async function finding(finds: ThreatKind, said: readonly Answer[]) {
    answers = said;
    const { port } = server.address() as AddressInfo;
    const milter = createMilter({ name: 'm', finds, hostname: 'mx.test', address: { host: '127.0.0.1', port } });
    return milter.scan(SPECIMEN, new AbortController().signal);
  }

  it('is infected if clamav-milter removes the X-Virus-Status of the sender before it adds its own (AddHeader Replace)', async () => {
    const said = await finding('virus', [
      ['m', 'X-Virus-Scanned'],
      ['m', 'X-Virus-Status'],
      ['h', 'X-Virus-Scanned', 'clamav-milter 1.4.6 at mx'],
      ['h', 'X-Virus-Status', 'Infected (Eicar-Test-Signature)'],
      ['a'],
    ]);
    expect(said).to.include({ virus: 'infected', name: 'Eicar-Test-Signature', rejects: true });
  });

  for (const put of ['h', 'i', 'm'] as const)
    it(`is the worst of all values in every order of changes, written by ${put}`, async () => {
      const virus: readonly Answer[] = [
        ['m', 'X-Virus-Status'],
        ['m', 'x-virus-status', ' '],
        [put, 'X-VIRUS-Status', ' infected\n\t(Eicar)'],
        ['h', 'X-Virus-Status', 'Clean'],
      ];
      for (const order of orders(virus)) {
        const said = await finding('virus', [...order, ['c']]);
        expect(said, JSON.stringify(order)).to.include({ virus: 'infected', name: 'Eicar' });
      }
      for (const field of ['X-Spam', 'X-Spam-Flag', 'X-Spam-Status']) {
        const spam: readonly Answer[] = [
          ['m', field],
          [put, field, 'Yes, score=9.5 required=5.0'],
          ['h', 'X-Spam-Status', 'No, score=1.0'],
          ['m', 'X-Spam-Flag', 'NO'],
        ];
        for (const order of orders(spam)) {
          const said = await finding('spam', [...order, ['c']]);
          expect(said, JSON.stringify(order)).to.include({ spam: 'spam' });
          expect(said.score).to.equal(field === 'X-Spam-Status' ? 9.5 : 1);
        }
      }
    });

  it('is clean and ham if fields are only removed, or the milter says so', async () => {
    for (const word of ['a', 'c'] as const) {
      expect(await finding('virus', [['m', 'X-Virus-Status'], [word]])).to.include({ virus: 'clean', rejects: false });
      const clean: readonly Answer[] = [['m', 'X-Virus-Status'], ['h', 'X-Virus-Status', 'Clean'], [word]];
      expect(await finding('virus', clean)).to.include({ virus: 'clean', rejects: false });
      const ham: readonly Answer[] = [['m', 'X-Spam-Flag'], ['h', 'X-Spam-Status', 'No, score=-1.2'], [word]];
      expect(await finding('spam', ham)).to.include({ spam: 'ham', score: -1.2, rejects: false });
    }
  });

  it('is spam if a spam filter only changes the subject, as rspamd does for "rewrite subject"', async () => {
    expect(await finding('spam', [['m', 'Subject', '***SPAM*** Hello'], ['a']])).to.include({ spam: 'spam' });
    expect(await finding('spam', [['m', 'Subject', 'Hello'], ['a']])).to.include({ spam: 'ham' });
    expect(await finding('virus', [['m', 'Subject', '[SPAM] Hello'], ['a']])).not.to.have.property('spam');
  });
});
