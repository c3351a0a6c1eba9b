import { expect } from 'chai';
import { simpleParser } from 'mailparser';
import { createTransport } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { addAccount } from '../support/second-account.ts';
import { authorsOf } from '../support/sent-authors.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const word = (text: string) => `=?utf-8?b?${Buffer.from(text).toString('base64')}?=`;

/** Header lines in which some reader finds op.test as the author, though the account is that of tenant.test. */
const FORGED: readonly string[] = [
  'From: ceo@op.test',
  'From: ceo@op.test, ok@tenant.test',
  'From: ok@tenant.test, ceo@op.test',
  'From: ceo@op.test\r\nFrom: ok@tenant.test',
  'From: ok@tenant.test\r\nFrom: ceo@op.test',
  'From: ok@tenant.test\r\nfROM: ceo@op.test',
  'From: ok@tenant.test\r\nFrom : ceo@op.test',
  'From: ok@tenant.test\r\nFrom\t: ceo@op.test',
  'From: ok@tenant.test\r\nFrom\r\n : ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\rFrom: ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\nFrom: ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\0From: ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\u2028From: ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\x85From: ceo@op.test',
  'From: ok@tenant.test\r\nX-A: b\r\n\tc\x0c\r\nFrom\x7f: ceo@op.test',
  `From${' '.repeat(300)}: ceo@op.test\r\nFrom: ok@tenant.test`,
  `From: ok@tenant.test\r\n${'X-A: b\r\n'.repeat(900)}From: ceo@op.test`,
  'From: ok@tenant.test (ceo@op.test',
  'From: ceo@op.test\u200b',
  'From: ceo@o\u00adp.test',
  'From: ok@tenant.test\r\nX-A: b\x0bFrom: ceo@op.test',
  'From: ok@tenant.test\r\n\0From: ceo@op.test',
  'From: ok@tenant.test\r\n\xa0From: ceo@op.test',
  'From: ok@tenant.test\r\nno field\r\nFrom: ceo@op.test',
  'From: ceo@op.test <ok@tenant.test>',
  'From: ceo@op.test\r\n <ok@tenant.test>',
  'From: info@tenant.test, <ok@tenant.test>',
  'From: <ceo@op.test> <ok@tenant.test>',
  'From: <ok@tenant.test> <ceo@op.test>',
  'From: ok@tenant.test ceo@op.test',
  'From: ok@tenant.test; ceo@op.test',
  'From: Both: ceo@op.test, ok@tenant.test;',
  'From: x: ceo@op.test;, ok@tenant.test',
  'From: ceo@op.test: ok@tenant.test;',
  'From: "x <ok@tenant.test>, ceo@op.test',
  'From: ceo(@tenant.test)@op.test',
  'From: "ceo@op.test"@tenant.test',
  'From: "<ceo@op.test>" "@tenant.test',
  'From: "ceo@op.test> x"@tenant.test',
  'From: ceo@op.test\\, <ok@tenant.test>',
  "From: 'ceo@op.test' <ok@tenant.test>",
  'From: <@tenant.test:ceo@op.test>',
  'From: ceo@OP.test',
  'From: ceo@op.test.',
  'From: ceo@op\uff0etest',
  'From: ceo@\uff4fp.test',
  'From: ceo@deep.op.test',
  'From: ceo @ op . test',
  'From: ceo@[op.test]',
  `From: ${word('ceo@op.test')}`,
  `From: ${word('ceo@op.test')} <ok@tenant.test>`,
  `From: ${word('<ceo@op.test>')} <ok@tenant.test>`,
  `From: ${word('Chef <ceo@op.test>,')} <ok@tenant.test>`,
  `From: ${word('ceo')} ${word('@op.test')} <ok@tenant.test>`,
  `From: "${word('ceo@op.test')}" <ok@tenant.test>`,
  'From: =?utf-7?q?+ADw-ceo+AEA-op.test+AD4-?= <ok@tenant.test>',
  'From:',
  'From: ok@tenant.test\r\nSender: ceo@op.test',
  'From: ok@tenant.test\r\nSender: Ok <ok@tenant.test>, ceo@op.test',
  'From: ok@tenant.test\r\nResent-From: ceo@op.test',
  'From: ok@tenant.test\r\nResent-Sender: ceo@op.test',
];

/** Header lines that name the account's own author alone, in forms that are rare. */
const GENUINE: readonly string[] = [
  'From: ok@tenant.test',
  'from : Ok <ok@tenant.test>',
  'From:\r\n "Ok, of us"\r\n <ok@tenant.test>',
  'From: "ceo@op.test" <ok@tenant.test>',
  'From: "<ceo@op.test>" <ok@tenant.test>',
  'From: ok@tenant.test (ceo@op.test)',
  'From: Ok (ceo@op.test) <ok@tenant.test>',
  'From: Ok <ok@tenant.test (ceo@op.test)>',
  'From: ok(ceo@op.test)@tenant.test',
  'From: info@tenant.test <ok@tenant.test>',
  'From: <@op.test:ok@tenant.test>',
  'From: ok @ tenant . test',
  'From: Team: ok@tenant.test;',
  'From: x:;, ok@tenant.test',
  'From: [Shop] <ok@tenant.test>',
  `From: ${word('Jürgen, ok@tenant.test')} <ok@tenant.test>`,
  'From: J\xfcrgen <ok@tenant.test>',
  `From: ${word('Jürgen (juergen@customer.test) via Shop')} <ok@tenant.test>`,
  'From: ok@TENANT.test\r\nSender: jo@tenant.test\r\nReply-To: ceo@op.test',
];

describe('the author of outgoing mail', function () {
  this.timeout(120_000);
  let zone: Zone;
  let server: MailServer;
  let running: TestDaemon;
  let tenant: Awaited<ReturnType<typeof addAccount>>;
  let transport: { sendMail(mail: object): Promise<{ response: string }>; close(): void };
  let count = 0;

  before(async () => {
    server = await startMailServer();
    zone = await startZone({
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
    });
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_OUTBOUND__SIGNING_DOMAIN: 'op.test',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
    });
    tenant = await addAccount(running, 'tenant');
    transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: tenant.key },
      tls: { rejectUnauthorized: false },
      pool: true,
      maxConnections: 1, // an address may not have many
    });
  });
  after(async () => {
    transport.close();
    await running.stop();
    await Promise.all([zone.stop(), server.stop()]);
  });

  const next = () => `to-${++count}@to.test`;
  const document = (header: string, to: string) => `${header}\r\nTo: ${to}\r\nSubject: Pay this\r\n\r\nNow\r\n`;
  const arrived = (to: string) => until('the mail', () => server.mails.find((mail) => mail.to.includes(to)));

  async function sendRaw(header: string, params: object = {}): Promise<{ to: string; outcome: string }> {
    const to = next();
    const { status, body } = await tenant.ask('/messages/send-raw', {
      raw_message: document(header, to),
      to: [to],
      ...params,
    });
    return { to, outcome: status === 200 ? (body[0].reject_reason ?? body[0].status) : body.name };
  }

  async function submit(header: string): Promise<{ to: string; outcome: string }> {
    const to = next();
    try {
      const raw = Buffer.from(document(header, to), /[^\0-\xff]/.test(header) ? 'utf8' : 'latin1');
      const { response } = await transport.sendMail({ envelope: { from: 'ok@tenant.test', to }, raw });
      return { to, outcome: response.slice(0, 3) };
    } catch (error) {
      return { to, outcome: error instanceof Error && 'responseCode' in error ? String(error.responseCode) : 'lost' };
    }
  }

  for (const header of FORGED) {
    it(`is never that of the operator: ${JSON.stringify(header)}`, async () => {
      for (const params of [{}, { from_email: 'ok@tenant.test' }, { send_at: '2999-01-01 00:00:00' }])
        expect((await sendRaw(header, params)).outcome, JSON.stringify(params)).to.be.oneOf([
          'ValidationError',
          'invalid-sender',
        ]);
      // A client that writes lines cannot send a lone CR or LF: nodemailer mends them, and what arrives is two fields.
      expect((await submit(header)).outcome).to.match(/^5\d\d$/);
    });
  }

  for (const header of GENUINE) {
    it(`is the same for all parsers: ${JSON.stringify(header)}`, async () => {
      for (const send of [sendRaw, submit]) {
        const { to, outcome } = await send(header);
        expect(outcome).to.be.oneOf(['queued', '250']);
        const { raw } = await arrived(to);
        expect(await authorsOf(raw), raw).to.deep.equal(['ok@tenant.test']);
        expect(raw.match(/^From:/gim)).to.have.length(1);
      }
    });
  }

  it('is not changed by headers, names or merge tags of a composed message', async () => {
    const to = next();
    const [{ status }] = await tenant.api('/messages/send', {
      message: {
        from_email: 'ok@tenant.test',
        from_name: 'Jürgen *|NAME|* <ceo@op.test>',
        text: 'x',
        to: [{ email: to }],
        global_merge_vars: [{ name: 'NAME', content: '"\r\nFrom: <ceo@op.test>,\u2028From: ceo@op.test' }],
        headers: {
          From: 'ceo@op.test',
          fROM: 'ceo@op.test',
          'X-A': 'b\r\nFrom: ceo@op.test',
        },
      },
    });
    expect(status).to.equal('queued');
    const { raw } = await arrived(to);
    expect(await authorsOf(raw), raw).to.deep.equal(['ok@tenant.test']);
    expect((await simpleParser(raw)).from?.value[0]?.name)
      .to.contain('Jürgen')
      .and.not.contain('@');
    expect(raw.match(/^[\w-]*From:.*/gim)).to.have.length(1);
  });

  it('is not hidden in a name that looks encoded', async () => {
    for (const from_name of [word('ceo@op.test'), `"${word('<ceo@op.test>')}`, `${word('ceo')} ${word('@op.test')}`]) {
      const to = next();
      await tenant.api('/messages/send', {
        message: { from_email: 'ok@tenant.test', from_name, text: 'x', to: [{ email: to }] },
      });
      const { raw } = await arrived(to);
      expect(await authorsOf(raw), raw).to.deep.equal(['ok@tenant.test']);
      expect((await simpleParser(raw)).from?.value[0]?.name).to.match(/ceo at op\.test/);
    }
  });

  it('is not repeated beside From by a composed message or its template', async () => {
    const message = { from_email: 'ok@tenant.test', text: 'x', to: [{ email: next() }] };
    const [sent] = await tenant.api('/messages/send', { message: { ...message, headers: { Sender: 'ceo@op.test' } } });
    expect(sent.reject_reason).to.equal('invalid-sender');
    await tenant.api('/templates/add', { name: 'T', code: 'x', from_email: 'ceo@op.test', publish: true });
    const { from_email: _, ...rest } = message;
    const [other] = await tenant.api('/messages/send-template', {
      template_name: 'T',
      template_content: [],
      message: rest,
    });
    expect(other.reject_reason).to.equal('invalid-sender');
    const [quoted] = await tenant.api('/messages/send', {
      message: { ...message, from_email: '"ceo@op.test"@tenant.test' },
    });
    expect(quoted.reject_reason).to.equal('invalid-sender');
  });

  it('is the sender named by the account, if the account may send the document', async () => {
    const { to } = await sendRaw('From: ok@tenant.test', { from_email: 'other@tenant.test', from_name: 'Öther' });
    const { raw } = await arrived(to);
    expect(await authorsOf(raw)).to.deep.equal(['other@tenant.test']);
  });
});
