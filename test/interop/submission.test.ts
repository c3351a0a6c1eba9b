import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect } from 'chai';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { until } from '../support/until.ts';

const fixture = (name: string) => new URL(`../fixtures/tls/${name}.pem`, import.meta.url).pathname;

/** Runs Debian's swaks; answers its exit code and what both sides said. */
async function swaks(...args: readonly string[]): Promise<{ readonly code: number; readonly said: string }> {
  const child = spawn('/usr/bin/swaks', [...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stdout.on('data', (text) => {
    said += String(text);
  });
  child.stderr.on('data', (text) => {
    said += String(text);
  });
  const [code] = await once(child, 'close');
  return { code: Number(code), said };
}

describe('swaks submitting mail', function () {
  this.timeout(60_000);
  let sink: MailSink;
  let postern: TestDaemon;
  before(async () => {
    sink = await startMailSink();
    postern = await startDaemon({
      POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
      POSTERN_SMTP__TLS__KEY: fixture('first.key'),
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0',
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
    });
  });
  after(async () => {
    await postern?.stop();
    await sink?.stop();
  });

  const addressOf = (at: number) => `${postern.submission[at]?.host}:${postern.submission[at]?.port}`;
  const letter = (to: string) => ['--from', 'ann@sender.test', '--to', to, '--header', 'X-MC-Tags: one,two'];
  const login = (mechanism: string, key: string) => ['--auth', mechanism, '--auth-user', 'any', '--auth-password', key];

  for (const [name, at, tls] of [
    ['STARTTLS', 0, '--tls'],
    ['TLS from the start', 1, '--tls-on-connect'],
  ] as const) {
    for (const mechanism of ['PLAIN', 'LOGIN']) {
      it(`logs in by ${mechanism} over ${name}, and its mail is sent`, async () => {
        const to = `${mechanism}-${at}@to.test`.toLowerCase();
        const { code, said } = await swaks('--server', addressOf(at), tls, ...login(mechanism, KEY), ...letter(to));
        expect(code, said).to.equal(0);
        expect(said).to.match(/250 2\.0\.0 OK: queued as [0-9a-f]{32}/);
        const { raw } = await until('the mail', () => sink.mails.find((mail) => mail.to.includes(to)));
        expect(raw).to.not.include('X-MC-Tags');
      });
    }
    it(`is rejected with a wrong key over ${name}`, async () => {
      const { code, said } = await swaks(
        '--server',
        addressOf(at),
        tls,
        ...login('PLAIN', 'wrong'),
        ...letter('jo@to.test'),
      );
      expect(code).to.equal(28); // swaks: authentication failed
      expect(said).to.match(/535 5\.7\.8/);
    });
  }

  it('cannot log in without TLS, nor send without a login', async () => {
    expect((await swaks('--server', addressOf(0), ...login('PLAIN', KEY), ...letter('jo@to.test'))).code).to.equal(28);
    const { code, said } = await swaks('--server', addressOf(0), ...letter('jo@to.test'));
    expect(code).to.equal(23); // swaks: MAIL was refused
    expect(said).to.match(/530 5\.7\.0 Must issue a STARTTLS command first/);
    expect(sink.mails.filter(({ to }) => to.includes('jo@to.test'))).to.deep.equal([]);
  });
});
