import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { systemClock } from '../../src/base/clock.ts';
import { createAuthenticator } from '../../src/inbound/verdicts/authenticate.ts';
import { KEY, startDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { type Sunk, startMailSink } from '../support/mail-sink.ts';
import { startPostfix, whyNoPostfix } from '../support/postfix.ts';
import { verifySender } from '../support/signing.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { startZone, zoneResolver } from '../support/zone.ts';

const fixture = (name: string) => new URL(`../fixtures/tls/${name}.pem`, import.meta.url).pathname;
const MAILS = 50;
const SENDER = 'news@sender.test';

/** nodemailer -> submission of the daemon -> postfix -> a sink; what comes back from postfix finds the daemon. */
async function startWorld() {
  const sink = await startMailSink({
    onRcptTo: ({ address }, _session, done) =>
      done(address.startsWith('gone@') ? Object.assign(new Error('5.1.1 User unknown'), { responseCode: 550 }) : null),
  });
  const zone = await startZone({});
  const port = await freePort();
  const postern = await startDaemon({
    POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
    POSTERN_SMTP__TLS__KEY: fixture('first.key'),
    POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
    POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${port}`,
    POSTERN_DNS__SERVERS: zone.server,
    POSTERN_DNS__TIMEOUT_MS: '2000',
    POSTERN_MAIL__MX_PORT: String(sink.port),
  });
  const postfix = await startPostfix(await tempDir(), {
    listen: [`127.0.0.1:${port}`],
    next: sink.port,
    routes: { 'bounces.in.postern.test': postern.smtp.port },
    tls: { cert: fixture('second.cert'), key: fixture('second.key') },
    main: {
      smtpd_recipient_restrictions: 'check_recipient_access inline:{ { unwanted@to.test = 550 5.7.1 Not here } }',
    },
  });
  const transport = createTransport({
    ...postern.submission[0],
    pool: true,
    maxConnections: 5,
    requireTLS: true,
    auth: { user: 'any', pass: KEY },
    tls: { rejectUnauthorized: false },
  });
  return {
    sink,
    zone,
    postern,
    postfix,
    /** Hands a mail over; answers its id. */
    async send(to: string, text = 'Hello'): Promise<string> {
      const { response } = await transport.sendMail({
        from: SENDER,
        to,
        subject: `for ${to}`,
        text,
        html: `<p>${text}</p>`,
      });
      return /queued as ([0-9a-f]{32})$/.exec(response)?.[1] ?? response;
    },
    async stop() {
      transport.close();
      await postern.stop();
      await postfix.stop();
      await Promise.all([sink.stop(), zone.stop()]);
    },
  };
}

describe("Debian's postfix as the next hop", function () {
  this.timeout(60_000);
  let world: Awaited<ReturnType<typeof startWorld>>;

  before(async function () {
    const why = whyNoPostfix();
    if (why !== undefined) {
      console.log(`    (skipped: ${why})`);
      return this.skip();
    }
    world = await startWorld();
  });
  after(() => world?.stop());

  const numbers = () => world.postern.api('/senders/info', { address: SENDER });

  it(`accepts ${MAILS} mails; each arrives once behind it with a valid signature`, async () => {
    const { sink, postern, zone, postfix, send } = world;
    const records = await verifySender('sender.test', { postern, zone, sink });
    const wanted = Array.from({ length: MAILS }, (_, n) => `jo${n}@to.test`);
    await Promise.all(wanted.map((to, n) => send(to, `.Grüße ${n}\n..\n.\n${'long '.repeat(300)}`)));
    const arrived = () => sink.mails.filter(({ from }) => from.endsWith('@bounces.in.postern.test'));
    await until('all mails', () => arrived().length >= MAILS, 30_000);
    await until('the numbers', async () => (await numbers()).sent === MAILS);
    expect(
      arrived()
        .flatMap(({ to }) => to)
        .sort(),
    ).to.deep.equal(wanted.sort());
    expect(new Set(arrived().map(({ from }) => from)).size, 'return paths').to.equal(MAILS);
    const { authenticate } = createAuthenticator({
      resolver: zoneResolver(records),
      settings: { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'in.postern.test', trustedSealers: [] },
      clock: systemClock,
    });
    const verdict = ({ raw, from }: Sunk, change = (text: string) => text) =>
      authenticate(
        { kind: 'memory', bytes: Buffer.from(change(raw)) },
        { mailFrom: from, client: { address: null, helo: null, tls: null } },
      );
    for (const mail of arrived()) {
      expect(mail.raw).to.match(/^Received: .*\r\n(?:\s.*\r\n)*?\s.*by mx\.postfix\.test \(Postfix\) with ESMTPS/);
      expect((await verdict(mail)).dkim, mail.to[0]).to.deep.equal({ signed: true, valid: true });
    }
    const [first] = arrived();
    expect(first && (await verdict(first, (text) => text.replace(/^Subject: /m, 'Subject: x'))).dkim.valid).to.equal(
      false,
    );
    expect((await postfix.log()).match(/ status=sent /g)).to.have.length(MAILS);
  });

  it('refuses a recipient for its own reason; the message is a soft bounce with its text', async () => {
    const id = await world.send('unwanted@to.test');
    const found = await until('the bounce', async () => {
      const message = await world.postern.api('/messages/info', { id });
      return message.state === 'soft-bounced' && message;
    });
    expect(found).to.include({
      bounce_description: 'mail_block',
      diag: 'smtp;550 5.7.1 <unwanted@to.test>: Recipient address rejected: Not here',
    });
  });

  it('reports a recipient refused by the next server in a bounce message; the sent message is bounced', async () => {
    const { postern, send } = world;
    const before = await numbers();
    const id = await send('gone@to.test');
    await until('the bounce', async () => (await postern.api('/messages/info', { id })).state === 'bounced', 20_000);
    // What happened is in the message first, and in the lists and numbers a moment later.
    await until(
      'the entry of the list',
      async () => (await postern.api('/rejects/list', { email: 'gone@to.test' })).length === 1,
    );
    await until('the numbers', async () => (await numbers()).hard_bounces === before.hard_bounces + 1);
  });
});
