import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect } from 'chai';
import type { Poster } from '../../../src/webhooks/types.ts';
import { bytes, openPoster } from '../../support/delivery.ts';
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

  it('fails before a byte is posted when the certificate is not trusted', async () => {
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
