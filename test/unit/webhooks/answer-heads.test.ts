import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { expect } from 'chai';
import type { AttemptResult } from '../../../src/queue/settle.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { bytes, openPoster } from '../../support/delivery.ts';
import { randomFrom } from '../../support/random-text.ts';

const form = { 'content-type': 'application/x-www-form-urlencoded' };
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
const EARLY_HINTS = 'HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n';
const detailed = (result: AttemptResult) => JSON.parse(result.detail?.(false) ?? '{}');

/** What a receiver writes once it has the whole request; each piece is a segment of its own. */
type Answer = (socket: Socket) => Promise<void> | void;
const say =
  (...pieces: readonly string[]): Answer =>
  async (socket) => {
    for (const piece of pieces) {
      if (socket.destroyed) return;
      await new Promise((done) => socket.write(Buffer.from(piece, 'latin1'), done));
      await new Promise(setImmediate);
    }
  };
const sayAndEnd =
  (...pieces: readonly string[]): Answer =>
  async (socket) => {
    await say(...pieces)(socket);
    socket.end();
  };

describe('the HTTP response of a receiver', () => {
  let server: Server;
  let url = '';
  let poster: Poster;
  let requests = 0;
  let connections = 0;
  let answer: Answer = say(OK);

  beforeEach(async () => {
    requests = connections = 0;
    server = createServer({ noDelay: true }, (socket) => {
      connections++;
      let text = '';
      socket.on('error', () => {});
      socket.on('data', (chunk) => {
        text += chunk.toString('latin1');
        const end = text.indexOf('\r\n\r\n');
        const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0);
        if (end < 0 || text.length < end + 4 + length) return;
        text = '';
        requests++;
        void answer(socket);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/hook`;
    poster = openPoster({ timeoutMs: 2000 });
  });
  afterEach(async () => {
    await poster.stop();
    server.close();
  });

  const post = () => poster.post(url, form, bytes('mandrill_events=%5B%5D'));

  const taken: readonly (readonly [string, Answer])[] = [
    ['comes behind a 100 that nobody asked for', say(`${CONTINUE}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n`)],
    ['comes behind a 100, in a segment of its own', say(CONTINUE, OK)],
    ['comes behind 100, 102 and 103', say(CONTINUE, 'HTTP/1.1 102 Processing\r\n\r\n', EARLY_HINTS, EARLY_HINTS, OK)],
    ['comes behind a thousand interim answers', say(CONTINUE.repeat(1000), OK)],
    ['comes byte by byte, behind two interim answers', say(...(CONTINUE + EARLY_HINTS + OK))],
    ['has two equal lengths', say('HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nok')],
    ['has its length twice in one field', say('HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok')],
    [
      'has a length and chunks',
      say('HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'),
    ],
    [
      'has 60 KB of header',
      say(`HTTP/1.1 200 OK\r\n${`Set-Cookie: ${'c'.repeat(1000)}\r\n`.repeat(60)}Content-Length: 2\r\n\r\nok`),
    ],
    [
      'has a header of a megabyte',
      say('HTTP/1.1 200 OK\r\n', ...Array.from({ length: 100 }, () => `X: ${'h'.repeat(10_000)}\r\n`), '\r\n'),
    ],
    ['has one line of a megabyte', say(`HTTP/1.1 200 OK\r\nX: ${'h'.repeat(1_000_000)}`, '\r\n\r\n')],
    ['has no reason phrase', say('HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok')],
    [
      'has a reason in UTF-8',
      say(`HTTP/1.1 200 ${Buffer.from('Größe').toString('latin1')}\r\nContent-Length: 2\r\n\r\nok`),
    ],
    ['is one of HTTP/1.0', sayAndEnd('HTTP/1.0 200 OK\r\n\r\nok')],
    ['has lines that end in LF', say('HTTP/1.1 200 OK\nContent-Length: 2\n\nok')],
    ['has a line without a colon', say('HTTP/1.1 200 OK\r\nhello there\r\nContent-Length: 2\r\n\r\nok')],
    ['has a folded field', say('HTTP/1.1 200 OK\r\nX-Long: a\r\n  b\r\n\tc\r\nContent-Length: 2\r\n\r\nok')],
    ['has a blank before a colon', say('HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok')],
    ['has a control character in a field', say('HTTP/1.1 200 OK\r\nX: a\x01b\0c\rd\r\nContent-Length: 2\r\n\r\nok')],
    ['begins with an empty line', say(`\r\n${OK}`)],
    ['ends behind its first line', sayAndEnd('HTTP/1.1 200 OK\r\n')],
    ['ends within its header', sayAndEnd('HTTP/1.1 202 Accepted\r\nContent-Ty')],
  ];
  for (const [what, how] of taken) {
    it(`is accepted when it ${what}`, async () => {
      answer = how;
      const result = await post();
      expect(result).to.include({ kind: 'answered' });
      expect(result.kind === 'answered' && result.status).to.be.oneOf([200, 202]);
      expect(requests).to.equal(1);
    });
  }

  it('is the final one, with its fields, and the connection is reused', async () => {
    answer = say(CONTINUE, EARLY_HINTS, 'HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 2\r\n\r\nno');
    for (const _ of [1, 2, 3]) {
      const result = await post();
      expect(result).to.include({ kind: 'answered', status: 503, retryAfter: '17', answer: 'no' });
      expect(detailed(result).response).to.deep.include(['retry-after', '17']);
    }
    expect({ requests, connections }).to.deep.equal({ requests: 3, connections: 1 });
  });

  it('has its fields and its text, in any notation', async () => {
    answer = say('HTTP/1.1 429 Slow\nretry-after : 9\nX-Long: a\n  b\nnonsense\nContent-Length: 2, 2\n\nno, never');
    const result = await post();
    expect(result).to.include({ kind: 'answered', status: 429, retryAfter: '9', answer: 'no' });
    expect(detailed(result).response).to.deep.include(['x-long', 'a b']);
    answer = say(`HTTP/1.1 429 Slow\r\nRetry-After: 9\r\n${`X: ${'h'.repeat(1000)}\r\n`.repeat(200)}\r\n`);
    expect(await post()).to.include({ kind: 'answered', status: 429, retryAfter: '9', answer: '' });
  });

  const refused: readonly (readonly [string, Answer, string])[] = [
    [
      'has two lengths',
      say('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!'),
      'malformed answer',
    ],
    ['has two lengths in one field', say('HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok!'), 'malformed answer'],
    ['is none of HTTP', say('SSH-2.0-OpenSSH\r\n'), 'malformed answer'],
    ['is a megabyte without a line', say('h'.repeat(1_000_000)), 'malformed answer'],
    ['is 100 without end', say(...Array.from({ length: 400 }, () => CONTINUE.repeat(10))), 'malformed answer'],
    ['ends behind a 100', sayAndEnd(CONTINUE), 'connection reset'],
    ['ends behind the first line of a refusal', sayAndEnd('HTTP/1.1 500 Oops\r\n'), 'connection reset'],
    ['ends within its first line', sayAndEnd('HTTP/1.1 200'), 'connection reset'],
  ];
  for (const [what, how, error] of refused) {
    it(`is rejected when it ${what}`, async () => {
      answer = how;
      expect(await post()).to.include({ kind: 'unanswered', error });
    });
  }

  it('is accepted before the request body is complete', async () => {
    const sockets: Socket[] = [];
    const early = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.pause();
        socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
      });
    });
    early.listen(0, '127.0.0.1');
    await once(early, 'listening');
    const address = early.address();
    const where = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}/`;
    for (const interim of ['', CONTINUE]) {
      early.once('connection', (socket) => socket.write(interim));
      const body = { kind: 'memory', bytes: new Uint8Array(20_000_000) } as const;
      expect(await poster.post(where, form, body)).to.include({ kind: 'answered', status: 200 });
    }
    for (const socket of sockets) socket.destroy();
    early.close();
  });

  it('is accepted in any chunks', async () => {
    const random = randomFrom(57);
    const text = `${CONTINUE}HTTP/1.1 201 Created\r\nX: a\r\n b\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok`;
    for (let round = 0; round < 100; round++) {
      const pieces: string[] = [];
      for (let at = 0; at < text.length; ) {
        const length = 1 + Math.floor(random() * 40);
        pieces.push(text.slice(at, at + length));
        at += length;
      }
      answer = say(...pieces);
      expect(await post()).to.include({ kind: 'answered', status: 201, answer: 'ok' });
    }
  });
});
