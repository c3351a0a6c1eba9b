import { connect as connectTls } from 'node:tls';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { KEY, loadTestSettings, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { type MailSink, startMailSink } from '../../support/mail-sink.ts';
import { until } from '../../support/until.ts';

const fixture = (name: string) => new URL(`../../fixtures/tls/${name}.pem`, import.meta.url).pathname;
const TLS = { POSTERN_SMTP__TLS__CERT: fixture('first.cert'), POSTERN_SMTP__TLS__KEY: fixture('first.key') };

describe('submitted mail, through the whole daemon', () => {
  let sink: MailSink;
  let postern: TestDaemon;
  let env: Record<string, string>;
  before(async () => {
    sink = await startMailSink();
    env = {
      ...TLS,
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0',
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
    };
    postern = await startDaemon(env);
  });
  after(async () => {
    await postern.stop();
    await sink.stop();
  });

  async function send(message: SendMailOptions, key = KEY, secure = false) {
    const [plain, tls] = postern.submission;
    const transport = createTransport({
      ...(secure ? tls : plain),
      secure,
      requireTLS: !secure,
      auth: { user: 'any', pass: key },
      tls: { rejectUnauthorized: false },
    });
    try {
      return await transport.sendMail({
        from: 'Ann <ann@sender.test>',
        to: 'jo@to.test',
        subject: 'Hello *|NAME|*',
        text: 'For *|NAME|*',
        ...message,
      });
    } finally {
      transport.close();
    }
  }

  for (const secure of [false, true]) {
    it(`reaches its recipient ${secure ? 'from TLS' : 'from STARTTLS'}, merged, and is a message of the API by the id in its 250`, async () => {
      const to = `jo-${secure}@to.test`;
      const { response } = await send(
        { to, headers: { 'X-MC-Tags': 'weekly', 'X-MC-MergeVars': '{"name":"Jo"}', 'X-MC-Metadata': '{"order":7}' } },
        KEY,
        secure,
      );
      const id = /^250 2\.0\.0 OK: queued as ([0-9a-f]{32})$/.exec(response)?.[1];
      const mail = await until('the mail', () => sink.mails.find((sunk) => sunk.to.includes(to)));
      expect(mail.raw).to.include('Subject: Hello Jo').and.include('For Jo').and.not.match(/x-mc-/i);
      expect(mail.raw).to.match(/^Received: from .*\r?\n(?:\s.*\r?\n)*?.*with ESMTPSA/m);
      await until('the row', async () => (await postern.api('/messages/info', { id })).state === 'sent');
      expect(await postern.api('/messages/info', { id })).to.deep.include({
        email: to,
        sender: 'ann@sender.test',
        tags: ['weekly'],
        metadata: { order: 7 },
      });
    });
  }

  it('is rejected for an unknown subaccount, and accepted for a known one', async () => {
    const headers = { 'X-MC-Subaccount': 'cust-1' };
    const error = await send({ headers }).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).to.deep.include({ responseCode: 550, response: '550 5.7.1 No subaccount exists with the id cust-1' });
    await postern.api('/subaccounts/add', { id: 'cust-1' });
    expect((await send({ headers })).response).to.match(/^250/);
  });

  it('is accepted for a suppressed recipient, who does not get it', async () => {
    await postern.api('/rejects/add', { email: 'listed@to.test' });
    const { response } = await send({ to: ['listed@to.test', 'other@to.test'] });
    expect(response).to.match(/^250/);
    await until('the other', () => sink.mails.some(({ to }) => to.includes('other@to.test')));
    await until('the reject', async () =>
      (await postern.api('/messages/search', { query: 'email:listed@to.test' })).some(
        ({ state }: { state: string }) => state === 'rejected',
      ),
    );
    expect(sink.mails.some(({ to }) => to.includes('listed@to.test'))).to.equal(false);
  });

  it('uses a template on request', async () => {
    await postern.api('/templates/add', {
      name: 'News',
      code: '<h1>News</h1><div mc:edit="main">nothing</div>',
      text: 'News for *|NAME|*',
    });
    await send({
      to: 'template@to.test',
      html: '<p>body for *|NAME|*</p>',
      text: '',
      headers: { 'X-MC-Template': 'news', 'X-MC-MergeVars': '{"name":"Jo"}' },
    });
    const { raw } = await until('the mail', () => sink.mails.find(({ to }) => to.includes('template@to.test')));
    expect(raw)
      .to.include('<h1>News</h1><div><p>body for Jo</p>')
      .and.include('News for Jo')
      .and.include('Subject: Hello Jo');
  });

  it('is rejected with an unknown key', async () => {
    const error = await send({}, 'never-made-by-anybody').then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).to.deep.include({ responseCode: 535 });
  });

  it('uses the new certificate after a reload', async () => {
    const shown = () =>
      new Promise<string>((resolve, reject) => {
        const socket = connectTls({ ...postern.submission[1], rejectUnauthorized: false }, () => {
          resolve(String(socket.getPeerCertificate().subject.CN));
          socket.end('QUIT\r\n').resume(); // who does not read to the end leaves it open
        }).on('error', reject);
      });
    expect(await shown()).to.equal('first.ours.test');
    await postern.daemon.reload(
      loadTestSettings(postern.dir, {
        ...env,
        POSTERN_SMTP__TLS__CERT: fixture('second.cert'),
        POSTERN_SMTP__TLS__KEY: fixture('second.key'),
      }),
    );
    expect(await shown()).to.equal('second.ours.test');
    expect((await send({ to: 'later@to.test' })).response).to.match(/^250/);
  });

  it('is disabled by default', async () => {
    const quiet = await startDaemon();
    expect(quiet.submission).to.deep.equal([]);
    expect((await fetch(`${quiet.base}/readyz`)).status).to.equal(200);
    await quiet.stop();
  });

  it('needs a certificate for TLS from the first byte', () => {
    expect(() => loadTestSettings('x', { POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0' })).to.throw(
      'submission.tls_listen: needs a certificate: set acme.enabled, or smtp.tls.cert and smtp.tls.key',
    );
  });
});
