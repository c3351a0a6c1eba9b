import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import Parse from '@sendgrid/inbound-mail-parser';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { makeKey } from '../support/dns-keys.ts';
import { postsOf } from '../support/events.ts';
import { hasGo } from '../support/interop/go.ts';
import { capturedPosts, type Receivers, startReceivers } from '../support/interop/receivers.ts';
import { type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// What SendGrid and Mailgun themselves publish for receivers: in Go, for Node and for Python.

const KEY = makeKey('sender.test', 's1', 1024);
const FILE = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7919) % 256));
const MAIL: SendMailOptions = {
  from: 'Zoë Müller <zoe@sender.test>',
  subject: 'Grüße aus Köln',
  text: 'für alle\n',
  html: '<p>für alle',
  attachments: [{ filename: 'bytes.bin', content: FILE, contentType: 'application/octet-stream' }],
};
/** The keys documented in its README, except those of scanners. */
const NODE_KEYS = [
  ...['to', 'from', 'subject', 'text', 'html', 'headers', 'dkim', 'SPF', 'envelope', 'charsets', 'sender_ip'],
  ...['attachments', 'attachment-info'],
];
const DOMAIN = 'in.example.org';
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

describe('receivers published by the services', function () {
  this.timeout(180_000);
  let zone: Zone;
  let postern: TestDaemon;
  before(async () => {
    zone = await startZone({
      'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'], A: ['127.0.0.1'] },
      'forged.test': { TXT: ['v=spf1 -all'], A: ['192.0.2.1'] },
      ...KEY.records,
    });
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '20000',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
    });
    await postern.api('/inbound/add-domain', { domain: DOMAIN });
  });
  after(async () => {
    await postern?.stop();
    await zone?.stop();
  });

  const addRoute = async (pattern: string, format: string, url: string): Promise<string> =>
    (await postern.api('/inbound/add-route', { domain: DOMAIN, pattern, format, url })).id;

  /** From the host that sender.test names and signed with its key, or (`forged`) neither. */
  async function send(mailbox: string, forged = false): Promise<void> {
    const transport = createTransport({
      ...{ ...postern.smtp, name: 'sender.test', ignoreTLS: true },
      ...(!forged && {
        dkim: {
          domainName: 'sender.test',
          keySelector: 's1',
          privateKey: String(KEY.privateKey.export({ type: 'pkcs8', format: 'pem' })),
        },
      }),
    });
    const to = `${mailbox}@${DOMAIN}`;
    await transport.sendMail({ ...MAIL, to, envelope: { from: forged ? 'zoe@forged.test' : 'zoe@sender.test', to } });
    transport.close();
  }

  describe('for Go', () => {
    let receivers: Receivers;
    before(async function () {
      if (!hasGo()) {
        console.log('left out: receivers for Go, go is not installed');
        return this.skip();
      }
      try {
        receivers = await startReceivers();
      } catch (error) {
        console.log(`left out: receivers for Go cannot be built: ${String(error).slice(0, 200)}`);
        return this.skip();
      }
      await addRoute('go-sendgrid', 'sendgrid', receivers.urlOf('sendgrid'));
      await addRoute('go-mime', 'mailgun-mime', receivers.urlOf('mailgun'));
      const route = await addRoute('go-mailgun', 'mailgun', receivers.urlOf('mailgun'));
      await receivers.know((await postern.api('/inbound/route-key', { id: route })).auth_key);
    });
    after(() => receivers?.stop());

    async function got(mailbox: string, forged = false) {
      const before = receivers.messages.length;
      await send(mailbox, forged);
      const message = await until('the post', () => receivers.messages[before], 30_000);
      expect(message.fault).to.equal('');
      return message;
    }

    it('mailgun-go accepts our signature, rejects one by another key, and reads the form', async () => {
      const message = await got('go-mailgun');
      expect(message).to.deep.include({
        verified: true,
        from: 'zoe@sender.test',
        to: [`go-mailgun@${DOMAIN}`],
        subject: 'Grüße aus Köln',
        attachments: [{ name: 'bytes.bin', type: 'application/octet-stream', sha256: sha256(FILE) }],
      });
      expect(message.text.trimEnd()).to.equal('für alle');
      expect(message.headers).to.deep.include({ 'X-Mailgun-Spf': 'Pass', 'X-Mailgun-Dkim-Check-Result': 'Pass' });
      expect((await got('go-mime')).verified).to.equal(true);
      await receivers.know('another key');
      expect((await got('go-mailgun')).verified, 'control').to.equal(false);
    });

    it('sendgrid-go reads the form, and trusts the sender only if SPF and DKIM passed', async () => {
      const message = await got('go-sendgrid');
      expect(message).to.deep.include({
        verified: true,
        from: 'zoe@sender.test',
        to: [`go-sendgrid@${DOMAIN}`],
        subject: 'Grüße aus Köln',
        attachments: [{ name: 'bytes.bin', type: 'application/octet-stream', sha256: sha256(FILE) }],
      });
      expect(message.text.trimEnd()).to.equal('für alle');
      expect(message.headers?.['Return-Path']).to.equal('<zoe@sender.test>');
      expect((await got('go-sendgrid', true)).verified, 'forged').to.equal(false);
    });

    it('sendgrid-go finds every field of the posts it was written for', async () => {
      const ours = (await got('go-sendgrid')).fields;
      const before = receivers.messages.length;
      await fetch(receivers.urlOf('sendgrid'), {
        method: 'POST',
        headers: { 'content-type': 'multipart/form-data; boundary=xYzZY' },
        body: await readFile(join(capturedPosts(), 'default_data.txt')),
      });
      const { fields } = await until('the captured one', () => receivers.messages[before]);
      expect(fields).to.have.length.above(10);
      expect(ours).to.include.members(fields);
    });
  });

  describe('for Node and Python', () => {
    let hook: Receiver;
    before(async () => {
      hook = await startReceiver();
      await addRoute('sendgrid', 'sendgrid', hook.url);
      await addRoute('sendgrid-raw', 'sendgrid-raw', hook.url);
    });
    after(() => hook?.stop());

    async function posted(mailbox: string): Promise<Received> {
      const before = postsOf(hook.requests).length;
      await send(mailbox);
      return until('the post', () => postsOf(hook.requests)[before]);
    }

    it('@sendgrid/inbound-mail-parser finds every key it knows, and the file', async () => {
      const { body, headers } = await posted('sendgrid');
      const type = String(headers['content-type']);
      const form = await new Response(Uint8Array.from(body), { headers: { 'content-type': type } }).formData();
      const fields = Object.fromEntries([...form].filter(([, value]) => typeof value === 'string'));
      const file = form.get('attachment1');
      if (!(file instanceof File)) throw new Error('no file');
      // As middleware hands files over: in a folder.
      const path = join(await tempDir(), 'upload');
      await writeFile(path, Buffer.from(await file.arrayBuffer()));
      const files = [{ path, originalname: file.name, mimetype: file.type }];
      const parsed = new Parse({ keys: NODE_KEYS }, { body: fields, files });
      expect(Object.keys(parsed.keyValues())).to.have.members(NODE_KEYS);
      expect(parsed.hasRawEmail()).to.equal(false);
      const attachments = await new Promise<object[]>((resolve) => parsed.attachments(resolve));
      expect(attachments).to.have.length(1);
      expect(attachments[0]).to.include({ filename: 'bytes.bin', content: FILE.toString('base64') });
      expect(new Parse({ keys: [] }, { body: { email: 'x' } }).hasRawEmail(), 'raw').to.equal(true);
    });

    it("SendGrid's parser for Python finds the fields, the raw message and the file", async function () {
      if (process.env['WITH_PYPI'] === undefined) {
        console.log('    left out: fetches packages of PyPI; WITH_PYPI=1 runs it');
        return this.skip();
      }
      const packages = await tempDir();
      const pip = ['-m', 'pip', '--disable-pip-version-check', '-q', 'install', '--no-deps', '--target', packages];
      const wheels = ['sendgrid==6.12.5', 'werkzeug==3.1.3', 'MarkupSafe==3.0.2', 'six==1.17.0'];
      await promisify(execFile)('python3', [...pip, ...wheels]);
      const script = new URL('../support/interop/sendgrid_parser.py', import.meta.url).pathname;
      const read = async (mailbox: string) => {
        const { body, headers } = await posted(mailbox);
        const env = { ...process.env, PYTHONPATH: packages };
        const child = spawn('python3', [script, String(headers['content-type'])], { env });
        child.stdin.end(body);
        const [out, complaint] = await Promise.all([text(child.stdout), text(child.stderr)]);
        if (out === '') throw new Error(complaint);
        return JSON.parse(out);
      };
      const parsed = await read('sendgrid');
      expect(parsed.values).to.include({ subject: 'Grüße aus Köln', SPF: 'pass', dkim: '{@sender.test : pass}' });
      expect(parsed.attachments).to.deep.equal([['bytes.bin', 'application/octet-stream', FILE.toString('base64')]]);
      const raw = await read('sendgrid-raw');
      expect(raw.subject).to.be.a('string');
      const [, , base64] = raw.attachments.find(([name]: string[]) => name === 'bytes.bin');
      expect(Buffer.from(base64, 'base64').equals(FILE)).to.equal(true);
    });
  });
});
