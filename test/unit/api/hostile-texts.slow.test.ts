import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { SMALL } from '../../support/sizes.ts';

const bytes = (...parts: (string | number[])[]) =>
  new Uint8Array(
    Buffer.concat(parts.map((part) => Buffer.from(typeof part === 'string' ? part : Uint8Array.from(part)))),
  );
const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);

/** Bodies that no parser likes; each with the status and a word of the answer. */
const BODIES: readonly (readonly [string, string | Uint8Array<ArrayBuffer>, number, string])[] = [
  ['nothing at all', '', 422, 'You must specify a key value'],
  ['spaces', '   \r\n', 422, 'You must specify a key value'],
  ['an array at the top', '[]', 422, 'must be a JSON object'],
  ['an array with an object in it', `[{"key":"${KEY}"}]`, 422, 'must be a JSON object'],
  ['half an object', `{"key":"${KEY}"`, 422, 'not valid JSON'],
  ['a quote that never ends', `{"key":"${KEY}`, 422, 'not valid JSON'],
  ['a backslash at the end', '{"key":"\\', 422, 'not valid JSON'],
  ['two objects', `{"key":"${KEY}"}{"key":"x"}`, 422, 'not valid JSON'],
  ['200,000 arrays in one another', `{"key":"${KEY}","x":${deep(200_000)}}`, 422, 'nested deeper than 32'],
  ['200,000 arrays that never end', '['.repeat(200_000), 422, 'nested deeper than 32'],
  ['33 levels', `{"key":"${KEY}","x":${deep(32)}}`, 422, 'nested deeper than 32'],
  ['32 levels', `{"key":"${KEY}","x":${deep(31)}}`, 200, 'inbound.example.com'],
  [
    'brackets in a string, which are no levels',
    `{"key":"${KEY}","x":"${'['.repeat(1000)}\\"${'{'.repeat(1000)}"}`,
    200,
    'inbound.example.com',
  ],
  ['a key that ends in an escaped quote', `{"x\\\\":"[[[","key":"${KEY}"}`, 200, 'inbound.example.com'],
  ['bytes that are no UTF-8', bytes(`{"key":"${KEY}","x":"`, [0xc3, 0x28, 0xff], '"}'), 422, 'not valid UTF-8'],
  ['a surrogate as bytes', bytes('{"key":"', [0xed, 0xa0, 0x80], '"}'), 422, 'not valid UTF-8'],
  ['UTF-16', bytes([0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00]), 422, 'Validation'],
  ['a byte order mark', bytes([0xef, 0xbb, 0xbf], `{"key":"${KEY}"}`), 200, 'inbound.example.com'],
  ['the key twice: the last one counts', `{"key":"wrong","key":"${KEY}"}`, 200, 'inbound.example.com'],
  ['__proto__ with a key in it', `{"__proto__":{"key":"${KEY}"}}`, 422, 'You must specify a key value'],
  [
    'constructor with a key in it',
    `{"constructor":{"prototype":{"key":"${KEY}"}}}`,
    422,
    'You must specify a key value',
  ],
  [
    '__proto__ beside the key',
    `{"key":"${KEY}","__proto__":{"polluted":1},"constructor":7,"toString":null,"hasOwnProperty":{}}`,
    200,
    'inbound.example.com',
  ],
  ['a key with a lone surrogate', '{"key":"\\ud800"}', 401, 'Invalid API key'],
  ['a key with NUL', `{"key":"${KEY}\\u0000"}`, 401, 'Invalid API key'],
  ['a key of a megabyte', `{"key":"${'k'.repeat(1_000_000)}"}`, 401, 'Invalid API key'],
  ['a number that is none', '{"key":1e999}', 401, 'Invalid API key'],
  [
    'a form of 25,000 fields',
    Array.from({ length: 25_000 }, (_, i) => `f${i}=1`).join('&'),
    422,
    'more than 20000 fields',
  ],
  ['a form with brackets without end', `key=${KEY}&x${'[]'.repeat(400_000)}=1`, 200, 'inbound.example.com'],
  ['a form with broken escapes', 'key=%zz%ff%&key[]=%00&=&&&', 401, 'Invalid API key'],
  ['a form with __proto__', `__proto__[key]=1&key=${KEY}&constructor[]=2`, 200, 'inbound.example.com'],
  [
    '90,000 parameters',
    `{"key":"${KEY}",${Array.from({ length: 90_000 }, (_, i) => `"p${i}":1`).join(',')}}`,
    200,
    'inbound.example.com',
  ],
];

/** Texts that have broken other systems. */
const TEXTS = [
  '\u0000',
  '\ud800',
  '\udfff\ud800',
  'a\r\nX-Injected: 1',
  '\u202e',
  '=cmd|x',
  "'; DROP TABLE accounts; --",
  '$where',
  '../../etc/passwd',
  '<'.repeat(5000),
  '%00',
  '\ufeff',
  'é'.repeat(3000),
  '(((((((((((a+)+)+)+)+)+)+$',
  '*'.repeat(255),
  '{{7*7}}',
  '__proto__',
  'constructor',
  ' '.repeat(1000),
];

// None of these reaches an operation that changes anything.
describe('the API, with hostile bodies', () => {
  let world: ApiWorld;
  before(async () => {
    world = await startApi();
  });
  after(() => world.stop());

  for (const [what, body, status, words] of BODIES) {
    it(`answers ${status} to ${what}`, async () => {
      const answer = await world.send('/inbound/domains.json', body);
      expect(answer.status, JSON.stringify(answer.body).slice(0, 200)).to.equal(status);
      expect(JSON.stringify(answer.body)).to.contain(words);
      expect(Object.hasOwn(Object.prototype, 'polluted')).to.equal(false);
      expect(world.log.of('api.fault')).to.deep.equal([]);
    });
  }
});

/** By what comes first in their paths. Each kind has an API of its own, where nothing of the others is in the way. */
const KINDS = Map.groupBy(
  OPERATIONS.filter((one) => Object.keys(one.params.shape).length > 0),
  ({ path }) => path.split('/')[1] ?? '',
);

for (const [kind, operations] of KINDS)
  describe(`the API, with hostile texts for ${kind}`, () => {
    let world: ApiWorld;
    before(async () => {
      world = await startApi({ journal: true });
    });
    after(() => world.stop());

    for (const operation of operations)
      it(`handles unusual texts in ${operation.path} without a 500`, async () => {
        const names = Object.keys(operation.params.shape);
        for (const [at, name] of names.entries()) {
          for (const [n, text] of TEXTS.entries()) {
            // Every text for every operation; where it has several parameters, each gets every other one.
            if (SMALL && names.length > 1 && (n + at) % 2 === 1) continue;
            // As a text, and as the one item of a list. JSON.stringify writes a lone surrogate as an escape.
            const forms = [text, [text]];
            for (const value of SMALL ? [forms[(n >> 1) % 2]] : forms) {
              const { status, body, headers } = await world.call(operation.path, {
                ...operation.example,
                [name]: value,
              });
              expect(status, `${name} ${JSON.stringify(value).slice(0, 60)}`).to.be.oneOf([200, 400, 404, 422]);
              if (status !== 200) expect(body).to.have.all.keys('status', 'code', 'name', 'message');
              expect(headers.get('x-injected')).to.equal(null);
            }
          }
        }
        expect(world.log.of('api.fault')).to.deep.equal([]);
      });
  });

describe('the API, with hostile requests', () => {
  let world: ApiWorld;
  before(async () => {
    world = await startApi();
  });
  after(() => world.stop());

  it('rejects texts that the store cannot keep', async () => {
    for (const pattern of ['a\u0000b', '\ud800']) {
      const { status, body } = await world.call('/inbound/add-route', {
        domain: 'inbound.example.com',
        pattern,
        url: 'http://a.example/',
      });
      expect(status).to.equal(422);
      expect(body.message).to.contain('"pattern":"Please enter text without NUL and without broken Unicode');
    }
  });

  /** Sends a head and as much of a body as the other side takes. */
  async function flood(headers: Record<string, string | number>, size: number, path = '/api/1.0/inbound/domains.json') {
    const req = request({ port: world.port, host: '127.0.0.1', method: 'POST', path, headers });
    req.on('error', () => {});
    const answered = once(req, 'response');
    req.end(Buffer.alloc(size, 0x20));
    const [response] = await answered;
    let text = '';
    for await (const chunk of response) text += chunk;
    return { status: response.statusCode, body: JSON.parse(text) };
  }

  it('rejects 30 MB by the header', async () => {
    const { status, body } = await flood({ 'content-length': 30_000_000 }, 30_000_000);
    expect(status).to.equal(413);
    expect(body).to.deep.include({
      status: 'error',
      name: 'ValidationError',
      code: -2,
      message: 'Validation error: {"body":"The body is larger than 1048576 bytes"}',
    });
  });

  it('rejects 30 MB without a length', async () => {
    expect((await flood({ 'transfer-encoding': 'chunked' }, 30_000_000)).status).to.equal(413);
  });

  it('allows send-raw a message or the largest template, and not more', async () => {
    expect(
      (await flood({ 'content-length': 9_800_000 }, 9_800_000, '/api/1.0/inbound/send-raw.json')).body.message,
    ).to.equal('You must specify a key value');
    expect(
      (await flood({ 'content-length': 10_000_000 }, 10_000_000, '/api/1.0/inbound/send-raw.json')).status,
    ).to.equal(413);
  });

  it('rejects a small body that expands to a large one, and accepts a valid one', async () => {
    const bomb = await world.send('/inbound/domains.json', new Uint8Array(gzipSync(Buffer.alloc(50_000_000))), {
      'content-encoding': 'gzip',
    });
    expect(bomb.status).to.equal(413);
    const honest = await world.send('/inbound/domains.json', new Uint8Array(gzipSync(JSON.stringify({ key: KEY }))), {
      'content-encoding': 'gzip',
    });
    expect(honest.status).to.equal(200);
  });

  it('rejects invalid or unknown compression', async () => {
    expect((await world.send('/inbound/domains.json', 'no gzip', { 'content-encoding': 'gzip' })).status).to.equal(422);
    expect((await world.send('/inbound/domains.json', 'x', { 'content-encoding': 'snappy' })).status).to.equal(415);
  });

  for (const line of [
    'POST // HTTP/1.1',
    'OPTIONS * HTTP/1.1',
    'POST http://[::1/x HTTP/1.1',
    'POST http:// HTTP/1.1',
    'POST x HTTP/1.1',
    'POST /a#//[::1 HTTP/1.1',
    'POST /api/1.0/users/ping.json?%zz HTTP/1.1',
    'GET /docs/%ff%00 HTTP/1.1',
    'GET /docs/../../etc/passwd HTTP/1.1',
    'BREW / HTTP/1.1',
    'GET /' + 'a'.repeat(20_000) + ' HTTP/1.1',
  ]) {
    it(`answers the request line ${line.slice(0, 60)} without a 500`, async () => {
      const socket = connect(world.port, '127.0.0.1');
      let got = '';
      socket.on('data', (chunk) => {
        got += chunk.toString();
      });
      socket.on('error', () => {});
      socket.write(`${line}\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      await once(socket, 'close');
      expect(got).to.match(/^HTTP\/1\.1 (?:2|4)\d\d /);
      expect(world.log.of('api.fault')).to.deep.equal([]);
    });
  }

  it('handles a list of 250,000 addresses in a header', async () => {
    await world.stop();
    world = await startApi({ settings: { maxMessageBytes: 26_214_400 } });
    const list = Array.from({ length: 250_000 }, (_, i) => `<mailbox-${i}@inbound.example.com>`).join(',\n ');
    const { body } = await world.call('/inbound/send-raw', { raw_message: `To: ${list}\n\ntext` });
    expect(body).to.have.length(1000);
    for (const odd of [
      '('.repeat(1_000_000),
      '"'.repeat(1_000_001),
      '<'.repeat(1_000_000),
      ',:;'.repeat(300_000),
      '\\'.repeat(1_000_000),
    ]) {
      expect((await world.call('/inbound/send-raw', { raw_message: `To: ${odd}\n\ntext` })).body).to.deep.equal([]);
    }
  });
});
