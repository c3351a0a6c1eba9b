import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { expect } from 'chai';
import { openData, type Started, sendMessage, startListener, whereverSessionsAre } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

// Self-signed, made for these tests alone (openssl req -x509, prime256v1, CN=first.ours.test and second.ours.test).
const pem = (name: string) => readFileSync(join(import.meta.dirname, '../../fixtures/tls', `${name}.pem`), 'utf8');
const FIRST = { cert: pem('first.cert'), key: pem('first.key'), minVersion: 'TLSv1.2' } as const;
const SECOND = { cert: pem('second.cert'), key: pem('second.key'), minVersion: 'TLSv1.2' } as const;

async function secured(started: Started) {
  const client = await started.client();
  expect(await client.say('STARTTLS')).to.match(/^220 2\.0\.0/);
  const socket = await client.secure();
  return { client, name: () => socket.getPeerCertificate().subject.CN, socket };
}

whereverSessionsAre('STARTTLS', (start) => {
  let started: Started;
  beforeEach(async () => {
    started = await start({ tls: FIRST });
  });
  afterEach(() => started.stop());

  it('is offered until it is used', async () => {
    const { client } = await secured(started);
    expect(await client.say('EHLO client.test')).to.not.include('STARTTLS');
    expect(await client.say('STARTTLS')).to.match(/^503 5\.5\.1/);
    const plain = await started.client('');
    expect(await plain.say('EHLO client.test')).to.include('250 STARTTLS');
    expect(await plain.say('STARTTLS now')).to.match(/^501 5\.5\.4/);
  });

  it('receives messages under ESMTPS and records the version', async () => {
    const { client } = await secured(started);
    await client.say('EHLO client.test');
    expect(await sendMessage(client, 'text')).to.match(/^250 2\.0\.0/);
    expect(started.below.taken[0]?.arrival).to.deep.include({ protocol: 'ESMTPS' });
    expect(started.below.taken[0]?.arrival.envelope.client.tls).to.equal('TLSv1.3');
  });

  it('forgets earlier commands', async () => {
    const client = await started.client();
    await client.say('MAIL FROM:<a@sender.test>');
    await client.say('RCPT TO:<b@ours.test>');
    await client.say('STARTTLS');
    await client.secure();
    expect(await client.say('DATA')).to.match(/^503 5\.5\.1/);
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^503 5\.5\.1/);
  });

  for (const [where, injected] of [
    ['the same packet', 'STARTTLS\r\nRSET\r\nMAIL FROM:<evil@sender.test>\r\n'],
    ['an unfinished line', 'STARTTLS\r\nNOOP'],
  ] as const) {
    it(`runs nothing that came in plaintext behind it in ${where}`, async () => {
      const client = await started.client();
      client.send(injected);
      expect(await client.reply()).to.match(/^220 2\.0\.0/);
      await client.secure();
      expect(await client.say('EHLO client.test')).to.match(/^250-mx\.ours\.test/);
      expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^250 2\.1\.0/);
      expect(client.pending()).to.deep.equal([]);
    });
  }

  it('runs none of a hundred commands pipelined behind it', async () => {
    const client = await started.client();
    client.send(`STARTTLS\r\n${'MAIL FROM:<evil@sender.test>\r\n'.repeat(500)}`);
    expect(await client.reply()).to.match(/^220/);
    await client.secure();
    expect(await client.say('RCPT TO:<b@ours.test>')).to.match(/^503/);
    expect(client.pending()).to.deep.equal([]);
  });

  it('is not offered without a certificate', async () => {
    await started.listener.reload(undefined);
    const client = await started.client('');
    expect(await client.say('EHLO client.test')).to.not.include('STARTTLS');
    expect(await client.say('STARTTLS')).to.match(/^502 5\.5\.1/);
  });

  it('uses the certificate of a reload for new sessions, and leaves the old ones alone', async () => {
    const before = await secured(started);
    expect(before.name()).to.equal('first.ours.test');
    await started.listener.reload(SECOND);
    expect((await secured(started)).name()).to.equal('second.ours.test');
    expect(await before.client.say('NOOP')).to.match(/^250/);
    expect(started.log.of('smtp.tls_reloaded')).to.have.length(1);
  });

  it('keeps the old certificate when the new one does not match its key', async () => {
    let refused: unknown;
    await started.listener.reload({ ...SECOND, key: FIRST.key }).catch((error: unknown) => {
      refused = error;
    });
    expect(refused).to.be.an.instanceOf(Error);
    expect((await secured(started)).name()).to.equal('first.ours.test');
  });

  it('can be enabled while running', async () => {
    await started.listener.reload(undefined);
    await started.listener.reload(SECOND);
    expect((await secured(started)).name()).to.equal('second.ours.test');
  });

  it('rejects versions older than the limit', async () => {
    await started.listener.reload({ ...FIRST, minVersion: 'TLSv1.3' });
    const client = await started.client();
    await client.say('STARTTLS');
    const old = connectTls({ socket: client.socket(), rejectUnauthorized: false, maxVersion: 'TLSv1.2' });
    const error = await new Promise<Error>((resolve) => old.once('error', resolve));
    expect(error.message).to.match(/protocol version|alert/i);
  });

  it('ends the session of a client that continues in plaintext', async () => {
    const client = await started.client();
    await client.say('STARTTLS');
    client.send('MAIL FROM:<a@sender.test>\r\n');
    await client.closed();
    expect(client.pending().filter((reply) => reply !== '')).to.deep.equal([]);
  });

  it('releases clients that disconnect after reading the certificate', async () => {
    for (let i = 0; i < 5; i++) {
      const client = await started.client();
      await client.say('STARTTLS');
      const raw = client.socket();
      const secure = connectTls({ socket: raw, rejectUnauthorized: false });
      await new Promise<void>((resolve) =>
        secure.once('secureConnect', () => {
          raw.destroy();
          resolve();
        }),
      );
    }
    await until('the end of all', () => started.log.of('smtp.session').length === 5);
  });

  it('stops in the middle of a handshake', async () => {
    const client = await started.client();
    await client.say('STARTTLS');
    await started.listener.stop();
    await client.closed();
  });
});

describe('a session during STARTTLS', () => {
  let started: Started;
  beforeEach(async () => {
    started = await startListener({ tls: FIRST });
  });
  afterEach(() => started.stop());

  it('is closed if the handshake does not come in time', async () => {
    const client = await started.client();
    await client.say('STARTTLS');
    await started.clock.advance(62_000);
    await client.closed();
  });

  it('tolerates disconnects, in plaintext, in a handshake and in TLS', async () => {
    const plain = await started.client();
    await openData(plain);
    plain.socket().resetAndDestroy();
    const shaking = await started.client();
    await shaking.say('STARTTLS');
    shaking.socket().resetAndDestroy();
    const { client, socket } = await secured(started);
    await client.say('EHLO client.test');
    await openData(client);
    client.send('Subject: half\r\n');
    await until('the first bytes', () => started.below.held > 0);
    socket.destroy();
    await until('the end of all', () => started.log.of('smtp.session').length === 3);
    expect(started.below.open).to.equal(0);
    expect(await sendMessage(await started.client(), 'text')).to.match(/^250 2\.0\.0/);
  });
});
