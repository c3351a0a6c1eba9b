import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import { createTestClock } from '../../support/clock.ts';
import { readScrape } from '../../support/metrics.ts';
import { type Client, openData, type Started, sendMessage, startListener } from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

const pem = (name: string) => readFileSync(join(import.meta.dirname, '../../fixtures/tls', `${name}.pem`), 'utf8');
const TLS = { cert: pem('first.cert'), key: pem('first.key'), minVersion: 'TLSv1.2' } as const;
const MORTAL = new URL('../../support/mortal-smtp-thread.ts', import.meta.url);
const THREADS = 2;
/** Enough sessions for each thread to have some: that one of two gets all 40 happens once in 10^12 runs. */
const CROWD = 40;

describe('sessions on two threads', () => {
  let started: Started;
  let metrics: ReturnType<typeof createPrometheus>;
  let fuse: Int32Array;
  const start = async (settings: Parameters<typeof startListener>[0] = {}, time = systemClock) => {
    metrics = createPrometheus({ clock: systemClock }, { ofProcess: false });
    const buffer = new SharedArrayBuffer(THREADS * Int32Array.BYTES_PER_ELEMENT);
    fuse = new Int32Array(buffer);
    started = await startListener(settings, createTestClock(), {
      threads: THREADS,
      script: MORTAL,
      own: { fuse: buffer },
      metrics,
      time,
    });
  };
  afterEach(() => started.stop());

  const crowd = (count: number) => Promise.all(Array.from({ length: count }, () => started.client()));
  const numbers = async () => readScrape(await metrics.text());
  const kill = (thread: number) => Atomics.store(fuse, thread, 1);
  const hang = (thread: number) => Atomics.store(fuse, thread, 2);

  it('share exact limits', async () => {
    await start({ maxSessions: CROWD, maxSessionsPerAddress: CROWD });
    const clients = Array.from({ length: CROWD + 20 }, () => started.raw());
    const replies = await Promise.all(clients.map((client) => client.reply()));
    expect(replies.filter((reply) => reply.startsWith('220'))).to.have.length(CROWD);
    expect(replies.filter((reply) => reply.startsWith('421 4.3.2'))).to.have.length(20);
  });

  it('are counted once in the metrics', async () => {
    await start({ tls: TLS });
    const clients = await crowd(CROWD);
    await Promise.all(clients.map((client) => sendMessage(client, 'text')));
    await Promise.all(clients.map((client) => client.say('VRFY')));
    const labels = { listener: 'smtp' };
    expect((await numbers()).sum('postern_smtp_sessions_active', labels)).to.equal(CROWD);
    const secured = await Promise.all(
      clients.slice(0, 10).map(async (client) => {
        await client.say('STARTTLS');
        return client.secure();
      }),
    );
    for (const socket of secured) socket.end('QUIT\r\n');
    for (const client of clients.slice(10)) expect(await client.say('QUIT')).to.match(/^221/);
    await until('the ends', () => started.log.of('smtp.session').length === CROWD);
    const seen = await numbers();
    expect(seen.sum('postern_smtp_sessions_active', labels)).to.equal(0);
    expect(seen.sum('postern_smtp_sessions_total', labels)).to.equal(CROWD);
    expect(seen.sum('postern_smtp_tls_sessions_total', labels)).to.equal(10);
    expect(seen.sum('postern_smtp_refusals_total', { ...labels, code: '501', reason: 'bad_argument' })).to.equal(CROWD);
    expect(started.log.of('message.accepted')).to.have.length(CROWD);
    expect(new Set(started.below.taken.map(({ messageId }) => messageId)).size).to.equal(CROWD);
  });

  it('pass on messages byte for byte, small and large, and data behind them in the same packet', async () => {
    await start();
    const client = await started.client();
    for (const size of [0, 1, 100, 5000, 70_000, 250_000, 300_000, 900_000]) {
      const text = 'x'
        .repeat(78)
        .concat('\r\n')
        .repeat(Math.ceil(size / 80))
        .slice(0, size);
      await openData(client);
      client.send(`${text}\r\n.\r\nNOOP\r\nMAIL FROM:<next@sender.test>\r\nRSET\r\n`);
      expect(await client.reply(), `${size} bytes`).to.match(/^250 2\.0\.0 OK: queued/);
      for (const _ of ['NOOP', 'MAIL', 'RSET']) expect(await client.reply()).to.match(/^250/);
      expect(started.below.taken.at(-1)?.bytes.toString()).to.equal(`${text}\r\n`);
    }
  });

  it('are resumed by their tickets on any thread', async () => {
    await start({ tls: TLS });
    const { session } = await secure();
    for (let i = 0; i < CROWD; i++) expect((await secure(session)).socket.isSessionReused()).to.equal(true);
  });

  it('use the certificate of a reload on each of them', async () => {
    await start({ tls: TLS });
    await started.listener.reload({ cert: pem('second.cert'), key: pem('second.key'), minVersion: 'TLSv1.2' });
    for (let i = 0; i < CROWD; i++)
      expect((await secure()).socket.getPeerCertificate().subject.CN).to.equal('second.ours.test');
  });

  it('end with their thread; other sessions, accepted mail and the process are unaffected', async () => {
    await start({ maxSessions: 2 * CROWD, maxSessionsPerAddress: 2 * CROWD });
    const clients = await crowd(CROWD);
    await Promise.all(clients.map((client) => sendMessage(client, 'text')));
    kill(0);
    await until('the end of the thread', () => started.log.of('worker.ended').length === 1);
    const lost = Number(started.log.of('worker.ended')[0]?.fields['sessions']);
    expect(lost).to.be.within(1, CROWD - 1);
    const replies = await Promise.all(clients.map((client) => client.say('NOOP')));
    expect(replies.filter((reply) => reply === 'closed')).to.have.length(lost);
    expect(replies.filter((reply) => reply.startsWith('250'))).to.have.length(CROWD - lost);
    expect(started.below.taken).to.have.length(CROWD);
    const seen = await numbers();
    expect(seen.of('postern_smtp_threads_died_total')).to.equal(1);
    expect(seen.sum('postern_smtp_sessions_active', { listener: 'smtp' })).to.equal(CROWD - lost);
    expect(started.listener.healthy()).to.equal(true);
  });

  it('are accepted again once another thread has replaced it', async () => {
    await start({ maxSessions: 2, maxSessionsPerAddress: 2, tls: TLS });
    await started.listener.reload({ cert: pem('second.cert'), key: pem('second.key'), minVersion: 'TLSv1.2' });
    await started.client();
    await started.client();
    kill(0);
    kill(1);
    await until('the end of both', () => started.log.of('worker.ended').length === 2);
    expect(started.listener.healthy()).to.equal(false);
    await until('others', () => started.listener.healthy());
    // Who was cut off holds no slot, and the certificate is the present one.
    const client = await started.client();
    expect(await sendMessage(client, 'text')).to.match(/^250 2\.0\.0/);
    await client.say('STARTTLS');
    expect((await client.secure()).getPeerCertificate().subject.CN).to.equal('second.ours.test');
    expect(await (await started.client()).say('NOOP')).to.match(/^250/);
  });

  it('are replaced when their thread hangs', async () => {
    // Half a minute of patience passes in a second.
    await start({}, { ...systemClock, after: (ms, run) => systemClock.after(ms / 30, run) });
    hang(0);
    await until('its end', () => started.log.of('worker.ended').length > 0);
    expect(started.log.of('worker.ended')[0]?.fields['reason']).to.include('it did not respond');
    await until('a session on each', async () => (await crowd(CROWD)).length === CROWD && started.listener.healthy());
  });

  it('do not reply 250 for a message whose thread has died, though it may have been accepted', async () => {
    await start();
    let synced = () => {};
    let asked = false;
    const client = await started.client();
    await openData(client);
    started.below.accept = () =>
      new Promise((resolve) => {
        asked = true;
        synced = () => resolve('accepted');
      });
    client.send('text\r\n.\r\n');
    await until('the question', () => asked);
    kill(0);
    kill(1);
    expect(await client.reply()).to.equal('closed');
    synced();
    await until('the message', () => started.below.taken.length === 1);
    expect(started.log.of('smtp.fault')).to.deep.equal([]);
  });

  it('are not started on a port in use', async () => {
    await start();
    const error = await startListener({ listen: [{ host: '127.0.0.1', port: started.port }] }, createTestClock(), {
      threads: THREADS,
    }).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).to.have.property('code', 'EADDRINUSE');
  });

  /** A session that has turned to TLS, and its ticket. */
  async function secure(session?: Buffer): Promise<{ socket: TLSSocket; session: Buffer }> {
    const client: Client = await started.client();
    await client.say('STARTTLS');
    const raw = client.socket();
    raw.removeAllListeners('data');
    const socket = connectTls({ socket: raw, rejectUnauthorized: false, ...(session && { session }) });
    const ticket = new Promise<Buffer>((resolve) => socket.once('session', resolve));
    await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
    const answer = { socket, session: session ?? (await ticket) };
    socket.end('QUIT\r\n').resume();
    return answer;
  }
});
