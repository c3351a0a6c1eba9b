import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { hasRails, type Mailbox, startMailbox } from '../support/interop/mailbox.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// Rails' Action Mailbox as the consumer: an application that read mail from another service changes a URL and nothing else.

const PASSWORD = 'kept by both';
const MEGABYTE = 1024 * 1024;
const DOMAIN = 'in.example.org';

/** `key`: the variable that has the key of the route, where posts are signed in the form of the service. */
const INGRESSES = [
  { ingress: 'relay', path: 'relay/inbound_emails', format: 'raw', key: undefined },
  { ingress: 'postmark', path: 'postmark/inbound_emails', format: 'postmark', key: undefined },
  {
    ingress: 'mailgun',
    path: 'mailgun/inbound_emails/mime',
    format: 'mailgun-mime',
    key: 'MAILGUN_INGRESS_SIGNING_KEY',
  },
  { ingress: 'sendgrid', path: 'sendgrid/inbound_emails', format: 'sendgrid-raw', key: undefined },
  { ingress: 'mandrill', path: 'mandrill/inbound_emails', format: 'mandrill', key: 'MANDRILL_INGRESS_API_KEY' },
] as const;

const SIZES = [3 * MEGABYTE, 15 * MEGABYTE];
/** Rack takes 4 MiB in a form, and 16 MiB in the text fields of a multipart form, in which services post the raw message. */
const TAKEN = {
  ...{ raw: SIZES, postmark: SIZES, mandrill: [] },
  ...{ 'mailgun-mime': [3 * MEGABYTE, 10 * MEGABYTE], 'sendgrid-raw': [3 * MEGABYTE, 10 * MEGABYTE] },
};
const REFUSED: Readonly<Record<string, readonly number[]>> = {
  mandrill: [1.5 * MEGABYTE],
  'mailgun-mime': [15 * MEGABYTE],
  'sendgrid-raw': [15 * MEGABYTE],
};

interface Delivery {
  readonly email: string;
  readonly state: string;
  readonly attempts: readonly {
    readonly time: string;
    readonly status: number | null;
    readonly error: string | null;
  }[];
}

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const bytes = (size: number) => Buffer.alloc(size, 'The quick brown fox jumps over the lazy dog. ');

describe('Action Mailbox of Rails as the consumer', function () {
  this.timeout(120_000);
  let zone: Zone;
  let postern: TestDaemon;
  before(async function () {
    if (!hasRails()) {
      console.log('left out: apt-get install ruby-actionmailbox ruby-railties ruby-sqlite3 ruby-webrick');
      return this.skip();
    }
    zone = await startZone({ 'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'], A: ['127.0.0.1'] } });
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
    });
    await postern.api('/inbound/add-domain', { domain: DOMAIN });
  });
  after(async () => {
    await postern?.stop();
    await zone?.stop();
  });

  for (const { ingress, path, format, key } of INGRESSES)
    describe(`by the ingress for ${ingress}`, () => {
      let rails: Mailbox;
      let route = '';
      before(async () => {
        // Rails has to know the key of the route when it starts, and the route asks its URL when it is made.
        const nobody = await startReceiver();
        const url = `http://127.0.0.1:${nobody.port}/rails/action_mailbox/${path}`;
        const settings = { pattern: `${ingress}*`, format, password: PASSWORD };
        route = (await postern.api('/inbound/add-route', { domain: DOMAIN, url, ...settings })).id;
        const { auth_key: own } = await postern.api('/inbound/route-key', { id: route });
        await nobody.stop();
        const keys = key === undefined ? { RAILS_INBOUND_EMAIL_PASSWORD: PASSWORD } : { [key]: own };
        rails = await startMailbox(ingress, keys, nobody.port);
      });
      after(() => rails?.stop());

      async function submit(message: SendMailOptions, to = [`${ingress}@${DOMAIN}`]): Promise<void> {
        const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
        await transport.sendMail({
          envelope: { from: 'zoe@sender.test', to },
          from: 'Zoë Müller <zoe@sender.test>',
          to: to[0],
          ...message,
        });
        transport.close();
      }

      async function arrivals(count: number, work: () => Promise<void>) {
        const [before, refused] = [rails.messages.length, rails.refusals.length];
        await work();
        const arrived = () => {
          expect(rails.refusals.slice(refused), rails.complaint()).to.deep.equal([]);
          return rails.messages.length >= before + count;
        };
        await until('the mailbox to have it', arrived, 60_000).catch(async (error: Error) => {
          error.message += `; ${rails.messages.length - before} of ${count} came; ${await posts()}`;
          throw error;
        });
        return rails.messages.slice(before);
      }
      /** The newest deliveries, and how their attempts went. */
      async function posts(): Promise<string> {
        const newest = (await postern.api('/inbound/deliveries', { route })).slice(0, 4);
        return JSON.stringify(
          newest.map(({ email, state, attempts }: Delivery) => ({
            ...{ email, state },
            attempts: attempts.map(({ time, status, error }) => ({ time, status, error })),
          })),
        );
      }
      const send = async (message: SendMailOptions) => (await arrivals(1, () => submit(message)))[0];

      it('gets a plain message with its envelope recipient', async () => {
        const got = await send({ subject: 'Grüße aus Köln', cc: 'copy@sender.test', text: 'Schöne Grüße\n' });
        expect(got).to.deep.include({
          subject: 'Grüße aus Köln',
          from: ['zoe@sender.test'],
          to: [`${ingress}@${DOMAIN}`],
          cc: ['copy@sender.test'],
        });
        expect(got?.text?.replaceAll('\r\n', '\n').trimEnd()).to.equal('Schöne Grüße');
        // Rails' own ingress for Mandrill does not read it.
        if (ingress !== 'mandrill') expect(got?.original_to).to.include(`${ingress}@${DOMAIN}`);
      });

      it('decodes 8-bit text in ISO 8859-1', async () => {
        const head = `From: zoe@sender.test\r\nTo: ${ingress}@${DOMAIN}\r\nSubject: Eight\r\nMIME-Version: 1.0\r\n`;
        const type = 'Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n';
        const got = await send({
          raw: Buffer.concat([Buffer.from(head + type), Buffer.from('Grüße, 10 £\r\n', 'latin1')]),
        });
        expect(got?.text?.trimEnd()).to.equal('Grüße, 10 £');
      });

      it('gets each of two recipients, one of them in Bcc', async function () {
        // Rails takes the second for a copy: nothing in Mandrill's raw_msg tells them apart.
        if (ingress === 'mandrill') return this.skip();
        const to = [`${ingress}@${DOMAIN}`, `${ingress}-hidden@${DOMAIN}`];
        const both = await arrivals(2, () => submit({ subject: 'Both', text: 'x' }, to));
        expect(both.map(({ subject }) => subject)).to.deep.equal(['Both', 'Both']);
        expect(both.flatMap(({ original_to: tried }) => tried[0] ?? '').toSorted()).to.deep.equal(to.toSorted());
      });

      for (const size of TAKEN[format])
        it(`gets a file of ${size / MEGABYTE} MB, byte for byte`, async () => {
          const content = bytes(size);
          const got = await send({ subject: 'Large', text: 'x', attachments: [{ filename: 'large.bin', content }] });
          expect(got?.attachments).to.deep.equal([['large.bin', sha256(content)]]);
        });

      for (const size of REFUSED[format] ?? [])
        it(`control: rejects a file of ${size / MEGABYTE} MB because of limits in Rack`, async () => {
          const before = rails.messages.length;
          const content = bytes(size);
          await submit({ subject: 'Lost', text: 'x', attachments: [{ filename: 'large.bin', content }] });
          const refused = await until(
            'the refusal',
            async () => {
              const waiting = await postern.api('/inbound/deliveries', { route, state: 'waiting' });
              return waiting.find(({ attempts }: { attempts: unknown[] }) => attempts.length > 0);
            },
            30_000,
          );
          // Rack answers, or closes the connection while the rest still comes.
          expect(refused.last_status ?? 400).to.be.at.least(400);
          expect(rails.messages).to.have.length(before);
        });
    });
});
