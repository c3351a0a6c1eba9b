import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Consumer, startConsumer, type Understood } from '../support/interop/consumer.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// What django-anymail, which was written against the real services, understands of each format. Mandrill's has a test of its own.

const PASSWORD = 'kept by both';
const PNG = Buffer.from('iVBORw0KGgo=', 'base64');
const BYTES = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7919) % 256));

const FORMATS = [
  { format: 'postmark', view: 'postmark/inbound', esp: 'Postmark' },
  { format: 'mailgun', view: 'mailgun/inbound', esp: 'Mailgun' },
  { format: 'mailgun-mime', view: 'mailgun/inbound', esp: 'Mailgun' },
  { format: 'sendgrid', view: 'sendgrid/inbound', esp: 'SendGrid' },
  { format: 'sendgrid-raw', view: 'sendgrid/inbound', esp: 'SendGrid' },
] as const;

describe('django-anymail as the consumer of other formats', function () {
  this.timeout(120_000);
  let zone: Zone;
  let postern: TestDaemon;
  let consumer: Consumer;

  before(async () => {
    zone = await startZone({ 'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'], A: ['127.0.0.1'] } });
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
    });
    consumer = await startConsumer('not-known-yet');
    await postern.api('/inbound/add-domain', { domain: 'in.example.org' });
    let key = '';
    for (const { format, view } of FORMATS) {
      const settings = { pattern: format, url: consumer.urlOf(view), format, password: PASSWORD };
      const { id } = await postern.api('/inbound/add-route', { domain: 'in.example.org', ...settings });
      if (format.startsWith('mailgun')) key = (await postern.api('/inbound/route-key', { id })).auth_key;
    }
    await consumer.stop();
    consumer = await startConsumer(key, consumer.port, `actionmailbox:${PASSWORD}`);
  });
  after(async () => {
    await consumer?.stop();
    await postern?.stop();
    await zone?.stop();
  });

  async function send(format: string, message: SendMailOptions): Promise<Understood> {
    const [before, refused] = [consumer.messages.length, consumer.refusals.length];
    const to = `${format}@in.example.org`;
    const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
    await transport.sendMail({
      envelope: { from: 'zoe@sender.test', to },
      from: 'Zoë Müller <zoe@sender.test>',
      to,
      ...message,
    });
    transport.close();
    return until('anymail to take the message', () => {
      expect(consumer.refusals.slice(refused), consumer.complaint()).to.deep.equal([]);
      return consumer.messages[before];
    });
  }

  for (const { format, esp } of FORMATS) {
    describe(format, () => {
      it('gives a message with its envelope, addresses, subject, text and HTML', async () => {
        const got = await send(format, {
          subject: 'Grüße aus Köln',
          cc: 'copy@sender.test',
          text: 'für alle',
          html: '<p>für <b>alle</b> – 漢字</p>',
        });
        expect(got).to.deep.include({
          esp,
          envelope_recipient: `${format}@in.example.org`,
          envelope_sender: 'zoe@sender.test',
          from_name: 'Zoë Müller',
          from_email: 'zoe@sender.test',
          to: [`${format}@in.example.org`],
          cc: ['copy@sender.test'],
          subject: 'Grüße aus Köln',
        });
        expect([got.text?.trimEnd(), got.html?.trimEnd()]).to.deep.equal(['für alle', '<p>für <b>alle</b> – 漢字</p>']);
      });

      it('gives files byte for byte, and inline images by their Content-ID', async () => {
        const got = await send(format, {
          subject: 'Files',
          html: '<img src="cid:dot@sender.test">',
          attachments: [
            { filename: 'bytes.bin', content: BYTES, contentType: 'application/octet-stream' },
            {
              ...{ filename: 'dot.png', content: PNG, contentType: 'image/png' },
              ...{ cid: 'dot@sender.test', contentDisposition: 'inline' },
            },
          ],
        });
        expect(got.attachments.map(({ name, type }) => [name, type])).to.deep.equal([
          ['bytes.bin', 'application/octet-stream'],
        ]);
        expect(Buffer.from(got.attachments[0]?.base64 ?? '', 'base64').equals(BYTES)).to.equal(true);
        expect(got.inline['dot@sender.test']).to.deep.equal({
          name: 'dot.png',
          type: 'image/png',
          base64: PNG.toString('base64'),
        });
      });

      it('decodes 8-bit text in ISO 8859-1 the same way', async () => {
        const head = `From: Zo\u00eb <zoe@sender.test>\r\nTo: ${format}@in.example.org\r\nSubject: Eight bits\r\nMIME-Version: 1.0\r\n`;
        const raw = Buffer.concat([
          Buffer.from(head.replace('\u00eb', 'e')),
          Buffer.from('Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n'),
          Buffer.from('Grüße, 10 £\r\n', 'latin1'),
        ]);
        const got = await send(format, { raw });
        expect(got.text?.trimEnd()).to.equal('Grüße, 10 £');
      });

      it('accepts three megabytes', async () => {
        const content = Buffer.alloc(3 * 1024 * 1024, 'postern ');
        const got = await send(format, {
          subject: 'Large',
          text: 'See the file.',
          attachments: [{ filename: 'large.bin', content }],
        });
        expect(Buffer.from(got.attachments[0]?.base64 ?? '', 'base64').equals(content)).to.equal(true);
      });
    });
  }

  describe('control', () => {
    it('rejects a post without the password', async () => {
      const { url } = consumer;
      const answer = await fetch(url.replace('mandrill', 'postmark/inbound'), { method: 'POST', body: '{}' });
      expect(answer.status).to.equal(400);
    });
  });
});
