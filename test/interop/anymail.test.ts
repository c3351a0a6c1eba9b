import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Consumer, startConsumer, type Understood } from '../support/interop/consumer.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const PATIENT_MS = 40_000;

describe('django-anymail as the consumer of our posts', () => {
  let zone: Zone;
  let postern: TestDaemon;
  let consumer: Consumer;
  let route = '';

  /** The same address, another key: what an operator does who has read the route's key. */
  async function restartConsumer(key: string) {
    await consumer.stop();
    consumer = await startConsumer(key, consumer.port);
  }

  const routeKey = async (params: object = {}): Promise<string> =>
    String((await postern.api('/inbound/route-key', { id: route, ...params })).auth_key);

  before(async () => {
    zone = await startZone({
      'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'], A: ['127.0.0.1'] },
      'elsewhere.test': { TXT: ['v=spf1 -all'], A: ['192.0.2.1'] },
    });
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
      // One post at a time, so that messages wait behind it.
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1',
    });
    // add-route asks the URL with HEAD; a consumer that does not know the key yet answers that too.
    consumer = await startConsumer('not-known-yet');
    await postern.api('/inbound/add-domain', { domain: 'in.example.org' });
    route = String(
      (await postern.api('/inbound/add-route', { domain: 'in.example.org', pattern: 'support*', url: consumer.url }))
        .id,
    );
    await restartConsumer(await routeKey());
  });

  after(async () => {
    await consumer?.stop();
    await postern?.stop();
    await zone?.stop();
  });

  /** Sends by SMTP as any other mail server would, and answers the next message that anymail understood. */
  async function send(message: SendMailOptions): Promise<Understood> {
    const before = consumer.messages.length;
    await submit(message);
    return arrival(before);
  }

  async function submit(message: SendMailOptions) {
    const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
    const info = await transport.sendMail({
      from: 'Zoë Müller <zoe@sender.test>',
      to: 'support@in.example.org',
      subject: 'Hello',
      ...message,
    });
    transport.close();
    expect(info.response).to.match(/^250 /);
  }

  /** The message, once its answer is noted too: a consumer that is stopped before that gets the message again. */
  async function arrival(before: number): Promise<Understood> {
    const message = await until('anymail to take the message', () => consumer.messages[before], PATIENT_MS);
    await until('its answer to be noted', async () => {
      const deliveries: { state: string }[] = await postern.api('/inbound/deliveries', { route });
      return deliveries.every(({ state }) => state === 'delivered');
    });
    return message;
  }

  it('accepts a plain message: envelope, addresses, subject, text', async () => {
    const got = await send({
      subject: 'Grüße aus Köln',
      cc: 'copy@sender.test',
      text: 'Schöne Grüße\nund ein Punkt:\n.\nEnde\n',
    });
    expect(got).to.deep.include({
      esp: 'Mandrill',
      envelope_recipient: 'support@in.example.org',
      from_name: 'Zoë Müller',
      from_email: 'zoe@sender.test',
      to: ['support@in.example.org'],
      cc: ['copy@sender.test'],
      subject: 'Grüße aus Köln',
      html: null,
      attachments: [],
      inline: {},
      raw_msg_start: 'Received:',
    });
    expect(got.text?.trimEnd()).to.equal('Schöne Grüße\nund ein Punkt:\n.\nEnde');
    expect(Math.abs(Number(got.ts) - Date.now() / 1000)).to.be.lessThan(3600);
  });

  it('gets the parsed fields besides the raw message', async () => {
    const { raw, spam_score: score } = await send({ subject: 'Fields', text: 'plain', html: '<p>rich</p>' });
    expect(raw).to.deep.include({
      email: 'support@in.example.org',
      from_email: 'zoe@sender.test',
      from_name: 'Zoë Müller',
      subject: 'Fields',
      to: [['support@in.example.org', null]],
      dkim: { signed: false, valid: false },
      tags: [],
      sender: null,
      template: null,
    });
    expect(raw['spf']).to.deep.include({ result: 'pass' });
    expect(String(raw['text']).trimEnd()).to.equal('plain');
    expect(String(raw['html']).trimEnd()).to.equal('<p>rich</p>');
    expect(score, 'nothing here scores spam').to.equal(0);
  });

  it('gets the SPF verdict of a forged sender', async () => {
    const { raw } = await send({
      envelope: { from: 'zoe@elsewhere.test', to: 'support@in.example.org' },
      text: 'forged',
    });
    expect(raw['spf']).to.deep.include({ result: 'fail' });
  });

  it('accepts a message in both text and HTML', async () => {
    const got = await send({ text: 'für alle', html: '<p>für <b>alle</b> – 漢字</p>' });
    expect(got.text?.trimEnd()).to.equal('für alle');
    expect(got.html?.trimEnd()).to.equal('<p>für <b>alle</b> – 漢字</p>');
  });

  it('accepts attachments with non-ASCII names, byte for byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7919) % 256));
    const got = await send({
      text: 'see attached',
      attachments: [
        { filename: 'Übersicht – März.pdf', content: bytes, contentType: 'application/pdf' },
        { filename: '日本語の説明.txt', content: 'テキスト', contentType: 'text/plain; charset=utf-8' },
      ],
    });
    expect(got.attachments.map(({ name, type }) => [name, type])).to.deep.equal([
      ['Übersicht – März.pdf', 'application/pdf'],
      ['日本語の説明.txt', 'text/plain'],
    ]);
    expect(Buffer.from(got.attachments[0]?.base64 ?? '', 'base64').equals(bytes)).to.equal(true);
    expect(Buffer.from(got.attachments[1]?.base64 ?? '', 'base64').toString()).to.equal('テキスト');
    expect(got.raw['attachments']).to.have.all.keys('Übersicht – März.pdf', '日本語の説明.txt');
  });

  it('accepts an inline image of the HTML', async () => {
    const got = await send({
      html: '<img src="cid:dot@sender.test">',
      attachments: [
        {
          filename: 'dot.png',
          content: PNG,
          contentType: 'image/png',
          cid: 'dot@sender.test',
          contentDisposition: 'inline',
        },
      ],
    });
    expect(got.inline['dot@sender.test']).to.deep.equal({
      name: 'dot.png',
      type: 'image/png',
      base64: PNG.toString('base64'),
    });
  });

  it('accepts a message of several megabytes', async () => {
    const bytes = Buffer.alloc(5 * 1024 * 1024, 'postern ');
    const got = await send({ text: 'large', attachments: [{ filename: 'large.bin', content: bytes }] });
    expect(Buffer.from(got.attachments[0]?.base64 ?? '', 'base64').equals(bytes)).to.equal(true);
  });

  it('accepts a message sent by swaks', async function () {
    if (spawnSync('swaks', ['--version']).error) {
      console.log('      (skipped: swaks is not installed)');
      this.skip();
    }
    const body = join(await tempDir(), 'body.txt');
    await writeFile(body, 'sent by swaks\n');
    const before = consumer.messages.length;
    const swaks = spawn(
      'swaks',
      [
        '--server',
        postern.smtp.host,
        '--port',
        String(postern.smtp.port),
        '--helo',
        'sender.test',
        '--from',
        'swaks@sender.test',
        '--to',
        'support+1@in.example.org',
        '--header',
        'Subject: by swaks',
        '--body',
        `@${body}`,
        '--silent',
        '2',
      ],
      { stdio: ['ignore', 'inherit', 'inherit'] },
    );
    expect((await once(swaks, 'exit'))[0]).to.equal(0);
    const got = await arrival(before);
    expect(got).to.deep.include({
      envelope_recipient: 'support+1@in.example.org',
      from_email: 'swaks@sender.test',
      subject: 'by swaks',
    });
    expect(got.text?.trimEnd()).to.equal('sent by swaks');
  });

  it('rejects posts while it holds another key; the delivery waits and is accepted with the right key', async () => {
    await restartConsumer('a-key-that-is-not-ours');
    await submit({ subject: 'Patience', text: 'not lost' });
    await until('a refusal', () => consumer.refusals.length > 0, PATIENT_MS);
    expect(consumer.refusals[0]).to.equal(400);
    const waiting = await until('the attempt to be noted', async () => {
      const deliveries: { state: string; last_status: number | null }[] = await postern.api('/inbound/deliveries', {
        route,
      });
      return deliveries.find(({ state, last_status: status }) => state === 'waiting' && status === 400);
    });
    expect(waiting.state).to.equal('waiting');
    expect(consumer.messages).to.deep.equal([]);
    await restartConsumer(await routeKey());
    expect((await arrival(0)).subject).to.equal('Patience');
  });

  it('accepts several messages from one post', async () => {
    const subjects = Array.from({ length: 8 }, (_, i) => `Together ${i}`);
    const before = consumer.messages.length;
    await postern.api('/inbound/update-route', { id: route, batch_events: 3 });
    consumer.pause();
    for (const subject of subjects) await submit({ subject, text: subject });
    consumer.resume();
    await until('all of them', () => consumer.messages.length === before + subjects.length, PATIENT_MS);
    await postern.api('/inbound/update-route', { id: route, batch_events: 1 });
    const got = consumer.messages.slice(before);
    expect(got.map(({ subject }) => subject)).to.have.members(subjects);
    expect(got.map(({ text, subject }) => text?.trimEnd() === subject)).to.deep.equal(subjects.map(() => true));
    expect(consumer.refusals).to.deep.equal([]);
    const deliveries: { state: string; attempts: { batch: string | null }[] }[] = await until(
      'all to be noted',
      async () => {
        const found = await postern.api('/inbound/deliveries', { route, limit: subjects.length });
        return found.every(({ state }: { state: string }) => state === 'delivered') && found;
      },
    );
    const posts = Map.groupBy(
      deliveries.filter(({ attempts }) => attempts[0]?.batch),
      ({ attempts }) => attempts[0]?.batch,
    );
    expect([...posts.values()].map((shared) => shared.length)).to.include(3);
  });

  it('accepts posts with a rotated key, before and after it has the new key', async () => {
    const fresh = await routeKey({ rotate: true });
    const before = consumer.messages.length;
    // Attempts alternate between the new key and the old one, so the untold consumer takes the second.
    expect((await send({ subject: 'Untold', text: '1' })).subject).to.equal('Untold');
    expect(consumer.messages).to.have.length(before + 1);
    await restartConsumer(fresh);
    expect((await send({ subject: 'Told', text: '2' })).subject).to.equal('Told');
    expect(consumer.refusals).to.deep.equal([]);
  });
});
