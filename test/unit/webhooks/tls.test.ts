import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect } from 'chai';
import { errorOf } from '../../../src/queue/settle.ts';
import { createUrlCheck } from '../../../src/webhooks/post/post.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { bytes, openGuard, openPoster } from '../../support/delivery.ts';
import { createTestLog } from '../../support/log.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { CERT, KEY } from '../../support/webhook-tls.ts';

describe('an attempt over TLS', () => {
  const known = getCACertificates('default');
  let receiver: Receiver;
  let poster: Poster;
  const post = (host: string) => poster.post(`https://${host}:${receiver.port}/hook`, {}, bytes('a'));

  beforeEach(async () => {
    receiver = await startReceiver({ tls: { cert: CERT, key: KEY } });
    poster = openPoster({ names: { 'hooks.example': ['127.0.0.1'], 'other.example': ['127.0.0.1'] } });
  });
  afterEach(async () => {
    setDefaultCACertificates(known);
    await poster.stop();
    await receiver.stop();
  });

  it('fails before it posts a byte when the certificate is not trusted', async () => {
    expect(await post('hooks.example')).to.include({ kind: 'unanswered', error: 'TLS failure', connected: false });
    expect(receiver.requests).to.deep.equal([]);
  });

  it('checks the certificate against the name though it connects to the checked address, and keeps the connection', async () => {
    setDefaultCACertificates([...known, CERT]);
    for (let i = 0; i < 3; i++) expect(await post('hooks.example')).to.include({ kind: 'answered', status: 200 });
    expect(receiver.connections()).to.equal(1);
    expect(receiver.requests[0]?.headers['host']).to.equal(`hooks.example:${receiver.port}`);
  });

  it('streams a file unchanged', async () => {
    setDefaultCACertificates([...known, CERT]);
    const path = join(await tempDir(), 'body');
    const large = randomBytes(5_000_001);
    await writeFile(path, large);
    const result = await poster.post(
      `https://hooks.example:${receiver.port}/hook`,
      {},
      { kind: 'file', path, size: large.length },
    );
    expect(result).to.include({ kind: 'answered', status: 200 });
    expect(receiver.requests[0]?.body.equals(large)).to.equal(true);
  });

  it('fails for another name and for the bare address', async () => {
    setDefaultCACertificates([...known, CERT]);
    expect(await post('other.example')).to.include({ error: 'TLS failure', connected: false });
    expect(await post('127.0.0.1')).to.include({ error: 'TLS failure', connected: false });
    expect(receiver.requests).to.deep.equal([]);
  });
});

const pem = (name: string) => readFileSync(`test/fixtures/tls/hooks/${name}.pem`, 'utf8');
const pair = (name: string) => ({ cert: pem(`${name}.cert`), key: pem(`${name}.key`) });

describe('TLS errors of a receiver name their cause:', () => {
  const known = getCACertificates('default');
  const names = { 'hooks.example': ['127.0.0.1'], 'other.example': ['127.0.0.1'] };
  afterEach(() => setDefaultCACertificates(known));

  /** What an attempt says, and what the check of a webhook URL answers to who set it. */
  async function told(tls: { readonly cert: string; readonly key: string } | undefined, host = 'hooks.example') {
    const receiver = await startReceiver(tls && { tls });
    const poster = openPoster({ names });
    const log = createTestLog();
    const url = `https://${host}:${receiver.port}/hook`;
    const result = await poster.post(url, {}, bytes('a'));
    const check = await createUrlCheck({ poster, guard: openGuard({ names }), log })(url);
    await poster.stop();
    await receiver.stop();
    expect(receiver.requests).to.deep.equal([]);
    expect(log.of('endpoint.unverified')[0]?.fields.error).to.equal(result.kind === 'unanswered' && errorOf(result));
    return {
      attempt: result.kind === 'unanswered' ? errorOf(result) : String(result.status),
      check: check?.replace(String(receiver.port), 'PORT'),
    };
  }

  const cases = [
    { what: 'self-signed', tls: { cert: CERT, key: KEY }, cause: 'the certificate of the server is self-signed' },
    { what: 'expired', tls: pair('expired'), cause: 'the certificate of the server has expired' },
    { what: 'from the future', tls: pair('future'), cause: 'the certificate of the server is not valid yet' },
    {
      what: 'of another name',
      tls: pair('good'),
      host: 'other.example',
      cause: 'the certificate of the server is for hooks.example, not for other.example',
    },
    { what: 'not there: plain HTTP', tls: undefined, cause: 'the server does not speak TLS on this port' },
  ];
  for (const { what, tls, host, cause } of cases)
    it(`a certificate that is ${what}`, async () => {
      setDefaultCACertificates([...known, pem('ca')]);
      expect(await told(tls, host)).to.deep.equal({
        attempt: `TLS failure: ${cause}`,
        check: `TLS failure at 127.0.0.1:PORT: ${cause}`,
      });
    });

  it('a certificate of an unknown issuer', async () => {
    expect((await told(pair('good'))).attempt).to.match(
      /^TLS failure: the certificate of the server has an unknown issuer/,
    );
  });

  it('none for a valid one', async () => {
    setDefaultCACertificates([...known, pem('ca')]);
    const receiver = await startReceiver({ tls: pair('good') });
    const poster = openPoster({ names });
    expect(await poster.post(`https://hooks.example:${receiver.port}/`, {}, bytes('a'))).to.include({ status: 200 });
    await poster.stop();
    await receiver.stop();
  });
});
