import { expect } from 'chai';
import { DETAIL_BYTES, type HopDetail, type MailDetail } from '../../../src/queue/detail.ts';
import type { MailAttempt } from '../../../src/queue/settle.ts';
import { MX_CERT, MX_KEY } from '../../support/carrier-tls.ts';
import { carry, createCarrierWorld, HELLO, TWO_MX } from '../../support/carrier-world.ts';
import { createTestClock } from '../../support/clock.ts';
import { startMailSink } from '../../support/mail-sink.ts';
import { CLOSE, HANG, type Said, type Step } from '../../support/scripted-smtp.ts';
import { until } from '../../support/until.ts';

const TLS = { cert: MX_CERT, key: MX_KEY };
const at = (step: Step, said: Said) => (now: Step) => (now === step ? said : undefined);
const textOf = (attempt: MailAttempt): string => attempt.detail?.(false) ?? '';
const detailOf = (attempt: MailAttempt): MailDetail => JSON.parse(textOf(attempt));
const hopsOf = (attempt: MailAttempt): readonly HopDetail[] => detailOf(attempt).hops;

describe('the details of outgoing mail', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  it('have the server, both addresses and every line of the dialog, with only the size of the content', async () => {
    const server = await world.server(at('dot', '250-2.0.0 Ok:\r\n250 2.0.0 queued as 1'));
    const [hop, ...others] = hopsOf(await carry(world.carrier()));
    expect(others).to.deep.equal([]);
    expect(hop).to.deep.include({
      host: 'mx.example.com',
      address: `127.0.0.1:${server.port}`,
      source: '127.0.0.1',
      dialog: [
        '< 220 scripted ESMTP',
        '> EHLO out.postern.test',
        '< 250-scripted',
        '< 250 PIPELINING',
        '> MAIL FROM:<bounce@sender.example>',
        '> RCPT TO:<b@example.com>',
        '> DATA',
        '< 250 2.1.0 ok',
        '< 250 2.1.5 ok',
        '< 354 go ahead',
        `> (${HELLO.length + 3} bytes)`,
        '< 250-2.0.0 Ok:',
        '< 250 2.0.0 queued as 1',
      ],
    });
    expect(hop).not.to.have.any.keys('tls', 'reused', 'error');
    expect(hop?.ms).to.be.within(0, 10_000);
  });

  it('have the TLS version, and whether the connection was reused', async () => {
    await world.server(undefined, { tls: TLS });
    const carrier = world.carrier();
    const [first] = hopsOf(await carry(carrier));
    expect(first).to.include({ tls: 'TLSv1.3' });
    expect(first?.dialog.filter((line) => line.startsWith('> EHLO'))).to.have.length(2);
    const [second] = hopsOf(await carry(carrier));
    expect(second).to.include({ tls: 'TLSv1.3', reused: true, source: '127.0.0.1' });
    expect(second?.dialog.slice(0, 2)).to.deep.equal(['> RSET', '< 250 2.0.0 ok']);
    expect(second?.dialog.at(-1)).to.equal('< 250 2.0.0 queued as 1');
  });

  it('have every connection: the reused one that was lost, TLS that failed, and plain text after it', async () => {
    const server = await world.server(undefined, { tls: TLS });
    const carrier = world.carrier();
    await carry(carrier);
    server.say((step, _line, { tls }) => (step === 'RSET' ? CLOSE : step === 'STARTTLS' && !tls ? CLOSE : undefined));
    const [lost, failed, plain] = hopsOf(await carry(carrier));
    expect(lost).to.deep.include({ reused: true, dialog: ['> RSET'] });
    expect(lost?.error).to.be.a('string');
    expect(failed?.dialog.at(-1)).to.equal('> STARTTLS');
    expect(failed?.error).to.be.a('string');
    expect(plain?.dialog.at(-1)).to.equal('< 250 2.0.0 queued as 1');
    expect(plain).not.to.have.any.keys('tls', 'error');
  });

  it('have every host that was tried, the last one last', async () => {
    const first = await world.server(at('banner', '554 5.3.2 go away'));
    await world.server(at('RCPT', '550 5.1.1 no such user'), { address: '127.0.0.11', port: first.port });
    const attempt = await carry(world.carrier({ zone: TWO_MX }));
    expect(attempt).to.include({ code: 550 });
    const hops = hopsOf(attempt);
    expect(hops.map(({ host, address }) => `${host} ${address}`)).to.deep.equal([
      `mx.example.com 127.0.0.1:${first.port}`,
      `second.example.com 127.0.0.11:${first.port}`,
    ]);
    expect(hops[0]).to.deep.include({ dialog: ['< 554 5.3.2 go away'], error: '554 5.3.2 go away' });
    expect(hops[1]?.dialog).to.include('< 550 5.1.1 no such user');
  });

  it('have a host that refused the connection, and the progress with one that timed out', async () => {
    const gone = await world.server();
    await gone.stop();
    const [refused] = hopsOf(await carry(world.carrier()));
    expect(refused).to.deep.include({ address: `127.0.0.1:${gone.port}`, dialog: [] });
    expect(refused?.error).to.contain('ECONNREFUSED');
    await world.stop();

    const server = await world.server(at('dot', HANG));
    const clock = createTestClock();
    const carrying = carry(world.carrier({ clock }));
    await until('the message', () => server.sessions[0]?.messages.length === 1);
    await clock.advance(60_000);
    expect(hopsOf(await carrying)[0]?.dialog.at(-1)).to.equal(`> (${HELLO.length + 3} bytes)`);
  });

  it('are empty if no server was tried', async () => {
    const attempt = await carry(world.carrier({ zone: {} }));
    expect(attempt).to.include({ kind: 'unanswered', permanent: true });
    expect(attempt.detail?.(false)).to.equal(undefined);
  });

  it('never have the name and password of a relay, for any login method and reply', async () => {
    const zone = { 'relay.test': { A: ['127.0.0.1'] } };
    const [user, pass] = ['mailer-name', 'hunter22-secret'];
    const base64 = (text: string) => Buffer.from(text).toString('base64');
    const secrets = [user, pass, base64(user), base64(pass), base64(`\0${user}\0${pass}`)];
    for (const method of ['PLAIN', 'LOGIN', 'CRAM-MD5']) {
      const sink = await startMailSink({ authMethods: [method], ...(method === 'CRAM-MD5' && CRAM(pass)) });
      const relay = `smtp://${user}:${pass}@relay.test:${sink.port}`;
      const attempt = await carry(world.carrier({ zone, allowPrivate: [], relay }));
      await world.stop(); // the carrier would keep the connection for ten seconds
      await sink.stop();
      expect(attempt, method).to.include({ code: 250 });
      const dialog = hopsOf(attempt)[0]?.dialog ?? [];
      expect(
        dialog.some((line) => line.startsWith(`> AUTH ${method}`)),
        method,
      ).to.equal(true);
      expect(dialog, method).to.include(method === 'PLAIN' ? '> AUTH PLAIN (credentials)' : '> (credentials)');
      for (const secret of secrets) expect(textOf(attempt), method).not.to.contain(secret);
    }
    for (const echo of [pass, base64(pass), base64(`\0${user}\0${pass}`)]) {
      const server = await world.server(at('AUTH', `535 5.7.8 wrong: ${echo}`), { offers: ['AUTH PLAIN'] });
      const relay = `smtp://${user}:${pass}@relay.test:${server.port}`;
      const attempt = await carry(world.carrier({ zone, allowPrivate: [], relay }));
      expect(attempt).to.include({ kind: 'unanswered', reason: 'relay.test (127.0.0.1): 535 5.7.8 wrong: …' });
      for (const secret of secrets) expect(textOf(attempt)).not.to.contain(secret);
      expect(hopsOf(attempt)[0]?.dialog.slice(-2)).to.deep.equal([
        '> AUTH PLAIN (credentials)',
        '< 535 5.7.8 wrong: …',
      ]);
      await world.stop();
    }
  });

  it('have the first and the last of 1,000 lines of a reply', async () => {
    const lines = Array.from({ length: 999 }, (_, i) => `550-5.1.1 line ${i}`);
    await world.server(at('RCPT', [...lines, '550 5.1.1 the end'].join('\r\n')));
    const attempt = await carry(world.carrier());
    const dialog = hopsOf(attempt)[0]?.dialog ?? [];
    const start = dialog.indexOf('< 550-5.1.1 line 0');
    expect(dialog[start + 14]).to.equal('< 550-5.1.1 line 14');
    expect(dialog.slice(start + 15, start + 17)).to.deep.equal(['< (984 lines left out)', '< 550 5.1.1 the end']);
  });

  it('have at most 4 KB, always with the deciding reply, and no terminal control characters', async () => {
    const long = (code: string) => [...Array(20).fill(`${code}-${'é'.repeat(400)}`), `${code} end`].join('\r\n');
    await world.server((step) =>
      step === 'EHLO' ? long('250') : step === 'RCPT' ? `${long('550')}\u001b[31m\u202e` : undefined,
    );
    const attempt = await carry(world.carrier());
    expect(Buffer.byteLength(textOf(attempt))).to.be.within(DETAIL_BYTES - 600, DETAIL_BYTES);
    const dialog = hopsOf(attempt)[0]?.dialog ?? [];
    expect(dialog[0]).to.equal('< 220 scripted ESMTP');
    expect(dialog.some((line) => /^\(\d+ lines left out\)$/.test(line))).to.equal(true);
    expect(dialog).to.include('< 550 end\ufffd[31m\ufffd');
  });

  it('have at most 4 KB of twenty addresses, always with the last', async () => {
    const hosts = Array.from(
      { length: 5 },
      (_, i) => `${'long-name-'.repeat(5)}${i}.${'label.'.repeat(20)}example.com`,
    );
    const zone = {
      'example.com': { MX: hosts.map((exchange, i) => ({ exchange, priority: i })) },
      ...Object.fromEntries(
        hosts.map((host, i) => [host, { A: [1, 2, 3, 4].map((n) => `127.0.${i + 1}.${n}`) }] as const),
      ),
    };
    const nobody = await world.server();
    await nobody.stop();
    const attempt = await carry(world.carrier({ zone }));
    const { hops, leftOut = 0 } = detailOf(attempt);
    expect(Buffer.byteLength(textOf(attempt))).to.be.at.most(DETAIL_BYTES);
    expect(hops.length + leftOut).to.equal(20);
    expect(hops.length).to.be.above(5);
    expect(hops.at(-1)?.address).to.contain('127.0.5.4');
  });

  it('omit the middle of an endless dialog', async () => {
    let asked = 0;
    const server = await world.server(
      (step) => (step === 'AUTH' || step === ('' as Step) ? (++asked < 500 ? '334 again' : '235 in') : undefined),
      { offers: ['AUTH PLAIN'] },
    );
    const relay = `smtp://me:password@relay.test:${server.port}`;
    const attempt = await carry(
      world.carrier({ zone: { 'relay.test': { A: ['127.0.0.1'] } }, allowPrivate: [], relay }),
    );
    expect(attempt).to.include({ code: 250 });
    const dialog = hopsOf(attempt)[0]?.dialog ?? [];
    expect(dialog.length).to.be.at.most(120);
    expect(dialog[0]).to.equal('< 220 scripted ESMTP');
    expect(dialog.at(-1)).to.equal('< 250 2.0.0 queued as 1');
  });
});

/** The server has to know the password that it is proved to know. */
const CRAM = (password: string): Parameters<typeof startMailSink>[0] => ({
  onAuth: (auth, _session, done) =>
    auth.validatePassword(password) ? done(null, { user: 'somebody' }) : done(new Error('wrong')),
});
