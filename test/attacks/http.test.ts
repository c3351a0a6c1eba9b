import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type ServerOptions } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { dirname, join } from 'node:path';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { expect } from 'chai';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { type ApiWorld, KEY, startApi } from '../support/api.ts';
import { figures } from '../support/attacks/figures.ts';
import { size } from '../support/attacks/sizes.ts';
import { TOKEN } from '../support/exports.ts';
import { until } from '../support/until.ts';

const BODY = JSON.stringify({ key: KEY });
/** What must never be run: it stands inside the body, or behind the end, of something else. */
const HIDDEN = `POST /api/1.0/tags/list.json HTTP/1.1\r\nHost: a\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`;
const PING = 'POST /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\n';
const inChunk = `${HIDDEN.length.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`;
const afterChunks = `0\r\n\r\n${HIDDEN}`;
const whole = (text: string) => `${PING}Content-Length: ${text.length}\r\n`;

/** Requests that two servers may read differently. Each has HIDDEN where one of the readings makes a request of it. */
const SMUGGLED: Readonly<Record<string, string>> = {
  'CL.TE': `${whole(afterChunks)}Transfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'TE.CL': `${PING}Content-Length: ${HIDDEN.length.toString(16).length + 2}\r\nTransfer-Encoding: chunked\r\n\r\n${inChunk}`,
  'TE first, then CL': `${PING}Transfer-Encoding: chunked\r\nContent-Length: ${afterChunks.length}\r\n\r\n${afterChunks}`,
  'CL.0': `${PING}Content-Length: 0\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'two lengths, the second 0': `${PING}Content-Length: ${HIDDEN.length}\r\nContent-Length: 0\r\n\r\n${HIDDEN}`,
  'a list of lengths': `${PING}Content-Length: ${HIDDEN.length}, 0\r\n\r\n${HIDDEN}`,
  'a length with a sign': `${PING}Content-Length: +${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a length in hex': `${PING}Content-Length: 0x${HIDDEN.length.toString(16)}\r\n\r\n${HIDDEN}`,
  'a negative length': `${PING}Content-Length: -1\r\n\r\n${HIDDEN}`,
  'a length with a letter': `${PING}Content-Length: ${HIDDEN.length}a\r\n\r\n${HIDDEN}`,
  'a length with a space inside': `${PING}Content-Length: 0 ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a length beyond 64 bits': `${PING}Content-Length: 18446744073709551616\r\n\r\n${HIDDEN}`,
  'a length that is empty': `${PING}Content-Length:\r\n\r\n${HIDDEN}`,
  'TE xchunked': `${whole(afterChunks)}Transfer-Encoding: xchunked\r\n\r\n${afterChunks}`,
  'TE identity': `${whole(afterChunks)}Transfer-Encoding: identity\r\n\r\n${afterChunks}`,
  'TE chunked, identity': `${PING}Transfer-Encoding: chunked, identity\r\n\r\n${afterChunks}`,
  'TE twice': `${whole(afterChunks)}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n${afterChunks}`,
  'TE with a space before the colon': `${whole(afterChunks)}Transfer-Encoding : chunked\r\n\r\n${afterChunks}`,
  'TE with a tab': `${whole(afterChunks)}Transfer-Encoding:\tchunked\r\n\r\n${afterChunks}`,
  'TE with a vertical tab': `${whole(afterChunks)}Transfer-Encoding: \vchunked\r\n\r\n${afterChunks}`,
  'TE on a folded line': `${whole(afterChunks)}Transfer-Encoding:\r\n chunked\r\n\r\n${afterChunks}`,
  'TE in the value of another': `${whole(afterChunks)}X: a\r\n\tTransfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'TE behind a bare LF': `${whole(afterChunks)}X: a\nTransfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'TE behind a bare CR': `${whole(afterChunks)}X: a\rTransfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'TE behind a NUL': `${whole(afterChunks)}X: a\0\r\nTransfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'TE with quotes': `${whole(afterChunks)}Transfer-Encoding: "chunked"\r\n\r\n${afterChunks}`,
  'a chunk size with a sign': `${PING}Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n${HIDDEN}`,
  'a chunk size with 0x': `${PING}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n${HIDDEN}`,
  'a chunk size beyond 64 bits': `${PING}Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n${HIDDEN}`,
  'a chunk that ends with a bare LF': `${PING}Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n${HIDDEN}`,
  'a chunk extension with a bare LF': `${PING}Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n${HIDDEN}`,
  'a chunk longer than it says': `${PING}Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n${HIDDEN}`,
  'header lines with bare LF': `POST /api/1.0/users/ping.json HTTP/1.1\nHost: a\nContent-Length: 0\n\n${HIDDEN}`,
  'an empty line of bare LF': `${PING}Content-Length: ${HIDDEN.length}\r\n\n${HIDDEN}`,
  'a header without a colon': `${PING}Content-Length ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a header that begins with a space': `POST /api/1.0/users/ping.json HTTP/1.1\r\n Host: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a header without a name': `${PING}: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a name with a space': `${PING}Content Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body of GET': `GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body of HEAD': `HEAD /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body of OPTIONS': `OPTIONS /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body that is refused': `POST /api/1.0/no/such.json HTTP/1.1\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body with Upgrade': `${PING}Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'a request in a body with h2c': `${PING}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'CONNECT and a request': `CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: a\r\n\r\n${HIDDEN}`,
  'HTTP/1.0 with chunks': `POST /api/1.0/users/ping.json HTTP/1.0\r\nContent-Length: ${afterChunks.length}\r\nTransfer-Encoding: chunked\r\n\r\n${afterChunks}`,
  'an odd version': `POST /api/1.0/users/ping.json HTTP/1.9\r\nHost: a\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'no version': `POST /api/1.0/users/ping.json\r\n\r\n${HIDDEN}`,
  'a request in the path':
    `POST /api/1.0/users/ping.json?a HTTP/1.1\r\nHost: a\r\n\r\n${HIDDEN} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`.replace(
      `\r\n\r\n${HIDDEN}`,
      `%0d%0a%0d%0a${encodeURIComponent(HIDDEN)}`,
    ),
  'a request in a header': `${PING}X: ${HIDDEN.split('\r\n')[0]}\r\nContent-Length: 0\r\n\r\n`,
  'Expect in another spelling': `${PING}Expect: 100-Continue\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'an Expect that is unknown': `${PING}Expect: 200-ok\r\nContent-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`,
  'the preface of HTTP/2': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${HIDDEN}`,
};
describe('hostile HTTP', () => {
  let world: ApiWorld;
  const total = { requests: 0, fivehundreds: 0 };
  before(async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 1e9 } });
  });
  after(async () => {
    // Parse errors of incoming data are only in the debug log, and are no internal error.
    expect(world.log.of('api.fault').filter(({ level }) => level !== 'debug')).to.deep.equal([]);
    await world.stop();
    figures(19, { 'HTTP requests': total.requests, '5xx': total.fivehundreds });
  });

  /**
   * Sends bytes and answers everything that came back until the connection ended, or, where nobody asked for that,
   * nothing more came.
   */
  async function exchange(sent: string | Buffer, port = world.port, quietMs = 120): Promise<string> {
    const bytes = typeof sent === 'string' ? Buffer.from(sent, 'latin1') : sent;
    const socket = connect(port, '127.0.0.1');
    let got = '';
    let last = performance.now();
    let open = true;
    const closes = /^[^\0]{0,400}\r\nConnection: close\r\n/.test(bytes.subarray(0, 600).toString('latin1'));
    socket
      .on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1');
        last = performance.now();
      })
      .on('error', () => {})
      .on('close', () => {
        open = false;
      });
    socket.write(bytes);
    await until(
      'an end',
      () => !open || (!closes && performance.now() - last > (got === '' ? 5 * quietMs : quietMs)),
      20_000,
    );
    socket.destroy();
    total.requests++;
    total.fivehundreds += got.match(/^HTTP\/1\.1 5/gm)?.length ?? 0;
    return got;
  }

  const hiddenCalls = () => world.log.of('api.call').filter(({ fields }) => fields.operation === '/tags/list').length;

  it(`runs no request that is smuggled in another (${Object.keys(SMUGGLED).length} shapes)`, async () => {
    const run: string[] = [];
    for (const [name, bytes] of Object.entries(SMUGGLED)) {
      const before = hiddenCalls();
      const got = await exchange(bytes);
      if (hiddenCalls() > before) run.push(name);
      expect(got, name).to.match(/^(?:HTTP\/1\.1 (?:1|2|4)\d\d |$)/);
    }
    figures(19, { 'smuggling shapes': Object.keys(SMUGGLED).length, 'hidden requests run': run.length });
    expect(run).to.deep.equal([]);
  });

  it('detects smuggled requests behind a lenient parser (control)', async () => {
    const { port, stop } = await serve(world, { insecureHTTPParser: true });
    const before = hiddenCalls();
    for (const bytes of Object.values(SMUGGLED)) await exchange(bytes, port);
    await stop();
    figures(19, { 'control: hidden requests run by a lenient parser': hiddenCalls() - before });
    expect(hiddenCalls()).to.be.above(before);
  });

  it('rejects 100,000 header lines, a header line of a megabyte and an endless request line, and keeps serving', async () => {
    const many = `${PING}${'a: b\r\n'.repeat(100_000)}\r\n`;
    for (const bytes of [
      many,
      `${PING}X: ${'x'.repeat(1_000_000)}\r\n\r\n`,
      `GET /${'a'.repeat(1_000_000)} HTTP/1.1\r\n\r\n`,
      'A'.repeat(1_000_000),
      '\r\n'.repeat(100_000),
      '\0'.repeat(100_000),
    ]) {
      expect(await exchange(bytes)).to.match(/^(?:HTTP\/1\.1 4\d\d |$)/);
    }
    expect((await world.call('/users/ping')).status).to.equal(200);
  });

  it('rejects 30 MB for every operation, with or without a length', async () => {
    for (const each of OPERATIONS.filter(({ large }, n) => large || n % size(1, 15) === 0)) {
      const head = `POST /api/1.0${each.path}.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n`;
      const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(0x100000, 0x20), Buffer.from('\r\n')]);
      for (const bytes of [
        Buffer.concat([Buffer.from(`${head}Content-Length: 30000000\r\n\r\n`), Buffer.alloc(4_000_000, 0x20)]),
        Buffer.concat([
          Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`),
          ...Array.from({ length: 30 }, () => chunk),
          Buffer.from('0\r\n\r\n'),
        ]),
      ]) {
        expect(await exchange(bytes, world.port, 1000), each.path).to.match(/^HTTP\/1\.1 413 /);
      }
    }
  });

  it('closes a connection whose body is not complete in time, even if bytes keep coming', async () => {
    for (const { path, large } of [
      OPERATIONS.find((each) => !each.large),
      OPERATIONS.find((each) => each.large),
    ].filter((each) => each !== undefined)) {
      const socket = connect(world.port, '127.0.0.1');
      let got = '';
      socket
        .on('error', () => {})
        .on('data', (chunk: Buffer) => {
          got += chunk.toString();
        });
      socket.write(`POST /api/1.0${path}.json HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{`);
      await new Promise((resolve) => setTimeout(resolve, 50));
      for (let n = 0; n < 13 && got === ''; n++) {
        socket.write(' ');
        await world.clock.advance(large ? 10_000 : 2500);
      }
      await until('the refusal', () => got.startsWith('HTTP/1.1 408 '), 5000);
      socket.destroy();
    }
  });

  it('closes a connection whose header is not complete within seconds', async () => {
    const socket = connect(world.port, '127.0.0.1');
    const began = performance.now();
    socket.on('error', () => {});
    // Not by `once` of node:events, which fails on the reset that a drip after the end brings.
    const closed = new Promise((resolve) => socket.resume().once('close', resolve));
    const drip = setInterval(() => socket.write('X'), 500);
    socket.write('POST / HTTP/1.1\r\n');
    await closed;
    clearInterval(drip);
    figures(19, { 'seconds until dripping headers were cut off': (performance.now() - began) / 1000 });
    expect(performance.now() - began).to.be.below(25_000);
  });

  it('does not expand a compression bomb', async () => {
    const zeros = Buffer.alloc(size(100_000_000, 30_000_000));
    const zipped = gzipSync(zeros);
    const bombs: readonly [string, Buffer][] = [
      ['gzip', zipped],
      ['deflate', deflateSync(zeros)],
      ['br', brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } })],
      ['zstd', zstdCompressSync(zeros)],
      ['gzip, gzip', gzipSync(zipped)],
      ['x-gzip', zipped],
      ['GZIP', zipped],
      ['gzip, gzip, gzip, gzip', gzipSync('x')],
      ['identity, gzip', zipped],
      ['', zipped],
      ['compress', Buffer.alloc(100)],
      ['gzip', zipped.subarray(0, 2000)],
      ['gzip', Buffer.concat([gzipSync('{'), zipped])],
    ];
    const before = process.memoryUsage().rss;
    for (const [encoding, bytes] of bombs) {
      for (const path of ['/users/ping', '/inbound/send-raw']) {
        const head = `POST /api/1.0${path}.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Encoding: ${encoding}\r\nContent-Length: ${bytes.length}\r\n\r\n`;
        expect(
          await exchange(Buffer.concat([Buffer.from(head), bytes]), world.port, 2000),
          `${encoding} ${path}`,
        ).to.match(/^HTTP\/1\.1 4(?:13|15|22|01) /);
      }
    }
    figures(19, {
      bombs: bombs.length * 2,
      'MB that they left behind': Math.max(0, Math.round((process.memoryUsage().rss - before) / 1e6)),
    });
  });

  it('accepts only its own charsets and content types', async () => {
    const utf16 = Buffer.from(`\ufeff${BODY}`, 'utf16le');
    const types = [
      'application/json; charset=utf-16',
      'application/json; charset=utf-7',
      'text/html; charset=shift_jis',
      'application/json; charset=\u0000',
      'application/json; charset="utf-8',
      'multipart/form-data; boundary=x',
      'application/x-www-form-urlencoded',
      'application/xml',
      `a/${'b'.repeat(5000)}`,
      ';;;;',
      'application/json, text/plain',
      '__proto__/constructor',
    ];
    for (const type of types)
      for (const bytes of [
        utf16,
        Buffer.from('+AHs-'),
        Buffer.from('--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nx\r\n--x--'),
        Buffer.from(`<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><key>&b;</key>`),
        Buffer.from([0xff, 0xfe, 0xfd]),
      ]) {
        const got = await exchange(
          Buffer.concat([
            Buffer.from(
              `${PING}Connection: close\r\nContent-Type: ${type}\r\nContent-Length: ${bytes.length}\r\n\r\n`,
              'latin1',
            ),
            bytes,
          ]),
        );
        expect(got, type)
          .to.match(/^HTTP\/1\.1 4\d\d /)
          .and.not.match(/root:/);
      }
  });

  it('accepts POST and OPTIONS for operations, and answers every other method and target without a 5xx', async () => {
    const methods = [
      'GET',
      'HEAD',
      'PUT',
      'DELETE',
      'PATCH',
      'TRACE',
      'PROPFIND',
      'SEARCH',
      'PURGE',
      'LOCK',
      'M-SEARCH',
      'QUERY',
      'LINK',
      'SOURCE',
      'POSTX',
      'post',
      'JEFF',
      '',
    ];
    for (const method of methods)
      for (const path of [
        '/api/1.0/users/ping.json',
        '/docs',
        '/healthz',
        '/exports/x',
        '/verify/x',
        '/unsubscribe/x',
        '/track/open/x',
        '/track/click/x',
        '/',
        '*',
      ]) {
        expect(
          await exchange(`${method} ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`),
          `${method} ${path}`,
        ).to.match(/^HTTP\/1\.1 [234]\d\d /);
      }
    for (const each of OPERATIONS) {
      expect(
        await exchange(
          `OPTIONS /api/1.0${each.path}.json HTTP/1.1\r\nHost: a\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n`,
        ),
        each.path,
      )
        .to.match(/^HTTP\/1\.1 204 /)
        .and.match(/Access-Control-Allow-Credentials: false/i);
      expect(
        await exchange(`GET /api/1.0${each.path}.json?key=${KEY} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`),
        each.path,
      ).to.match(/^HTTP\/1\.1 405 /);
    }
    for (const target of [
      'http://a/api/1.0/users/ping.json',
      'http://[::1/x',
      'http://a\\b/',
      'https://u:p@h:99999/x',
      'HTTP://A/%zz',
      '//evil.example/x',
      '/%2e%2e/%2e%2e/etc/passwd',
      '/docs/..%2f..%2fetc/passwd',
      '/api/1.0/users/../users/ping.json',
      '/api/1.0/users%2fping.json',
      '/api/1.0/__proto__/constructor.json',
      '/api/1.0/users/ping.json/',
      '/API/1.0/users/ping.json',
      '/api/1.0/users/ping.json;a=b',
      '/\u00ff\u00fe',
      '/%ff%fe',
      '/%00',
      `/${'%2e'.repeat(4000)}`,
      '?',
      '#',
      '/?'.repeat(1000),
      '/api/1.0/users/ping.json?__proto__[x]=1',
    ]) {
      expect(
        await exchange(`POST ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`),
        target.slice(0, 60),
      )
        .to.match(/^HTTP\/1\.1 [24]\d\d /)
        .and.not.match(/root:/);
    }
  });

  it('uses no host name, origin or forwarded header in a link or an answer', async () => {
    for (const header of [
      'Host: evil.example',
      'X-Forwarded-Host: evil.example',
      'Forwarded: host=evil.example',
      'Origin: https://evil.example',
      'Referer: https://evil.example/',
      'X-Original-URL: /evil.example',
      'X-Rewrite-URL: /evil.example',
    ]) {
      for (const path of [
        '/api/1.0/exports/list.json',
        '/api/1.0/exports/info.json',
        '/docs',
        '/docs/openapi.json',
        '/',
      ]) {
        const post = path.startsWith('/api');
        const body = JSON.stringify({ key: KEY, id: '2026-01-05 09:20:28.13842' });
        const got = await exchange(
          `${post ? 'POST' : 'GET'} ${path} HTTP/1.1\r\n${header.startsWith('Host') ? header : `Host: a\r\n${header}`}\r\nConnection: close\r\nContent-Length: ${post ? body.length : 0}\r\n\r\n${post ? body : ''}`,
        );
        expect(got, `${header} ${path}`)
          .to.match(/^HTTP\/1\.1 200 /)
          .and.not.include('evil.example');
      }
    }
  });

  it('serves no file except the archive that a token names', async () => {
    await mkdir(world.exportsDir, { recursive: true });
    await Promise.all([
      writeFile(join(world.exportsDir, 'secret.txt'), 'SECRET'),
      writeFile(join(dirname(world.exportsDir), 'secret.txt'), 'SECRET'),
      writeFile(join(world.exportsDir, 'ExampleExportFile00001.zip'), 'THE ARCHIVE'),
    ]);
    const tokens = [
      'secret.txt',
      '../secret.txt',
      '..%2fsecret.txt',
      '%2e%2e%2fsecret.txt',
      '..%252fsecret.txt',
      '..%5csecret.txt',
      '....//secret.txt',
      'secret.txt%00',
      '%00secret.txt',
      './secret.txt',
      '%c0%ae%c0%ae/secret.txt',
      '..;/secret.txt',
      'ExampleExportFile00001.zip',
      '../exports/ExampleExportFile00001.zip',
      `${TOKEN}/../secret.txt`,
      `${TOKEN}%2f..%2fsecret.txt`,
      `${TOKEN}x`,
      TOKEN.slice(0, -1),
      TOKEN.toLowerCase(),
      `${TOKEN}%20`,
      `${TOKEN}%00`,
      `${TOKEN}%0d%0aX-Injected:%201`,
      '',
      '/',
      '*',
      '%',
      '%ff',
      '[object Object]',
      '__proto__',
      'constructor',
      'a'.repeat(10_000),
      '..'.repeat(1000),
      'file:///etc/passwd',
      '/etc/passwd',
      '//etc/passwd',
    ];
    for (const token of tokens)
      for (const method of ['GET', 'HEAD', 'POST']) {
        const got = await exchange(
          `${method} /exports/${token} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
        );
        expect(got, token.slice(0, 60))
          .to.match(/^HTTP\/1\.1 4\d\d /)
          .and.not.match(/SECRET|THE ARCHIVE|root:|^X-Injected/m);
      }
    figures(19, { 'names of files tried': tokens.length * 3 });
  });

  it('serves the archive that a token names (control)', async () => {
    expect(await exchange(`GET /exports/${TOKEN} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`))
      .to.match(/^HTTP\/1\.1 200 /)
      .and.include('THE ARCHIVE');
  });
});

/** The same handler behind another server. */
async function serve({ api }: ApiWorld, options: ServerOptions) {
  const server = createServer(options, api.handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  // Bound to an address, so it has one.
  const { port } = server.address() as AddressInfo;
  return {
    port,
    stop: () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
