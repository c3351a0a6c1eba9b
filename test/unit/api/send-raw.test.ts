import { expect } from 'chai';
import type { Routing } from '../../../src/inbound/types.ts';
import { type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { queued } from '../../support/shared-spool.ts';

const URL_OF_ROUTE = 'https://app.example.com/hooks/mail';
const hit = (email: string) => ({ email, pattern: 'mailbox-*', url: URL_OF_ROUTE });

describe('/inbound/send-raw', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const send = (raw_message: string, params: object = {}) =>
    world.call('/inbound/send-raw', { raw_message, ...params });
  const messages = () => queued(world.spool);
  const accepted = async () => (await messages())[0]?.text;

  it('queues the message with its envelope, one delivery per matched recipient', async () => {
    const to = [
      'mailbox-1@inbound.example.com',
      'Mailbox-2@INBOUND.example.com',
      'other@inbound.example.com',
      'mailbox-3@elsewhere.example.org',
    ];
    const { status, body } = await send('Subject: Hi\r\n\r\nText', {
      to,
      mail_from: 'sender@example.net',
      helo: 'mail.example.net',
      client_address: '::ffff:192.0.2.25',
    });
    expect({ status, body }).to.deep.equal({
      status: 200,
      body: [hit('mailbox-1@inbound.example.com'), hit('Mailbox-2@INBOUND.example.com')],
    });
    const [message, ...others] = await messages();
    expect(others).to.deep.equal([]);
    expect(message?.envelope).to.deep.equal({
      mailFrom: 'sender@example.net',
      client: { address: '192.0.2.25', helo: 'mail.example.net', tls: null },
    });
    expect(message?.trace).to.contain('from mail.example.net ([192.0.2.25])').and.to.contain('with HTTP id');
    expect(message?.deliveries.map((one) => one.recipient)).to.deep.equal([
      'mailbox-1@inbound.example.com',
      'Mailbox-2@INBOUND.example.com',
    ]);
  });

  it('returns an empty array, never null, if no route matched, and stores nothing', async () => {
    const { status, body } = await send('Subject: Hi\r\n\r\nText', { to: ['nobody@inbound.example.com'] });
    expect({ status, body }).to.deep.equal({ status: 200, body: [] });
    expect(await messages()).to.deep.equal([]);
  });

  it('takes the recipients from To, Cc and Bcc if `to` is missing or null', async () => {
    const document = [
      'To: "Mail, box" <mailbox-1@inbound.example.com>, Team: mailbox-2@inbound.example.com, (a (nested) comment) mailbox-3@inbound.example.com;',
      'Cc: =?utf-8?q?J=C3=B6rg?= <mailbox-4@inbound.example.com>,',
      '\t<@relay.example:mailbox-5@inbound.example.com>',
      'bcc: mailbox-6@inbound.example.com',
      'X-To: mailbox-7@inbound.example.com',
      '',
      'To: mailbox-8@inbound.example.com',
    ].join('\r\n');
    const wanted = [1, 2, 3, 4, 5, 6].map((n) => `mailbox-${n}@inbound.example.com`);
    for (const params of [{}, { to: null }]) {
      const { body } = await send(document, params);
      expect(body.map((one: { email: string }) => one.email)).to.deep.equal(wanted);
    }
  });

  for (const path of ['/inbound/send-raw', '/messages/send-raw']) {
    it(`rejects an empty list of recipients instead of using the headers, by ${path}`, async () => {
      const raw_message = 'From: news@example.com\r\nTo: mailbox-1@inbound.example.com\r\n\r\nx';
      const { status, body } = await world.call(path, { raw_message, to: [] });
      expect({ status, message: body.message }).to.deep.equal({
        status: 422,
        message: 'Validation error: {"to":"Please enter at least one recipient, or leave it out"}',
      });
      expect(await messages()).to.deep.equal([]);
    });
  }

  it('removes Bcc if the envelope came from it, and leaves the document unchanged if `to` is given', async () => {
    const document =
      'Subject: a\r\nBcc: mailbox-1@inbound.example.com,\r\n mailbox-2@inbound.example.com\r\nTo: x@y.example\r\n\r\nBcc: stays\r\n';
    await send(document);
    expect(await accepted()).to.equal('Subject: a\r\nTo: x@y.example\r\n\r\nBcc: stays\r\n');
    await send(document, { to: ['mailbox-1@inbound.example.com'] });
    expect((await messages())[1]?.text).to.equal(document);
  });

  it('converts line endings of every kind to CRLF', async () => {
    await send('Subject: a\n\nb\rc\r\nd\n\r\n', { to: ['mailbox-1@inbound.example.com'] });
    expect(await accepted()).to.equal('Subject: a\r\n\r\nb\r\nc\r\nd\r\n\r\n');
  });

  it('removes duplicate recipients', async () => {
    const { body } = await send('Subject: a\n\nb', {
      to: ['mailbox-1@inbound.example.com', 'mailbox-1@Inbound.Example.com'],
    });
    expect(body).to.have.length(1);
    expect(await world.spool.list({}, 10)).to.have.length(1);
  });

  it('accepts the null sender, with and without brackets', async () => {
    for (const mail_from of ['', '<>'])
      await send('Subject: a\n\nb', { to: ['mailbox-1@inbound.example.com'], mail_from });
    expect((await messages()).map((message) => message.envelope.mailFrom)).to.deep.equal(['', '']);
  });

  it('accepts a message of two megabytes, and rejects one byte above the limit', async () => {
    const head = 'Subject: a\r\n\r\n';
    const most = head + 'x'.repeat(2_000_000 - head.length);
    expect((await send(most, { to: ['mailbox-1@inbound.example.com'] })).status).to.equal(200);
    expect(await accepted()).to.have.length(2_000_000);
    const { status, body } = await send(most + 'x', { to: ['mailbox-1@inbound.example.com'] });
    expect({ status, name: body.name, message: body.message }).to.deep.equal({
      status: 422,
      name: 'ValidationError',
      message: 'Validation error: {"raw_message":"The message is larger than 2000000 bytes"}',
    });
  });

  it('names every invalid parameter', async () => {
    const { status, body } = await send('', {
      to: ['no address'],
      mail_from: 'nobody',
      helo: 'two words',
      client_address: '300.1.1.1',
    });
    expect(status).to.equal(422);
    expect(JSON.parse(body.message.slice('Validation error: '.length))).to.deep.equal({
      raw_message: 'Please enter a value',
      to: '[0]: Not a valid email address',
      mail_from: 'Not a valid email address',
      helo: 'Please enter a HELO name without spaces',
      client_address: 'Not a valid IP address',
    });
  });

  it('accepts at most 1000 recipients, and reads no more from the headers', async () => {
    const many = Array.from({ length: 1001 }, (_, i) => `mailbox-${i}@inbound.example.com`);
    expect((await send('Subject: a\n\nb', { to: many })).body.message).to.contain('Please enter at most 1000 items');
    expect((await send(`To: ${many.join(', ')}\n\nb`)).body).to.have.length(1000);
  });

  for (const [why, change] of [
    [
      'the disk is nearly full',
      (spool: ApiWorld['spool']) => {
        spool.hasRoom = () => false;
      },
    ],
    [
      'the queue is full',
      (spool: ApiWorld['spool']) => {
        spool.accept = async () => 'full';
      },
    ],
    [
      'a sync failed',
      (spool: ApiWorld['spool']) => {
        spool.accept = async () => 'fault';
      },
    ],
    [
      'a write failed',
      (spool: ApiWorld['spool']) => {
        const { body } = spool;
        spool.body = (id) => ({ ...body(id), write: () => Promise.reject(new Error('the disk failed')) });
      },
    ],
  ] as const) {
    it(`returns ServiceUnavailable when ${why}, and stores nothing`, async () => {
      change(world.spool);
      let aborted = 0;
      const { body: open } = world.spool;
      world.spool.body = (id) => {
        const writer = open(id);
        return { ...writer, abort: () => writer.abort().finally(() => aborted++) };
      };
      const { status, body } = await send('Subject: a\n\nb', { to: ['mailbox-1@inbound.example.com'] });
      expect({ status, name: body.name, code: body.code }).to.deep.equal({
        status: 503,
        name: 'ServiceUnavailable',
        code: -2,
      });
      expect(await messages()).to.deep.equal([]);
      expect(aborted).to.equal(why === 'a write failed' ? 1 : 0);
    });
  }

  it('returns ServiceUnavailable, not an empty array, before the routes were read', async () => {
    await world.stop();
    const routing: Routing = {
      lookup: () => ({ kind: 'unknown' }),
      routeOf: () => undefined,
      isTooNew: () => false,
      choices: () => [],
      routesTo: () => [],
      change: (_domain, make) => make(),
      refresh: async () => {},
      ownerOf: () => undefined,
      ready: () => false,
    };
    world = await startApi({ deps: { routing } });
    expect((await send('Subject: a\n\nb', { to: ['mailbox-1@inbound.example.com'] })).status).to.equal(503);
  });

  it('logs nothing of the message', async () => {
    await send('Subject: very secret\n\nwords', { to: ['mailbox-1@inbound.example.com'] });
    expect(JSON.stringify(world.log.lines))
      .to.not.contain('secret')
      .and.to.not.contain('words')
      .and.to.not.contain(KEY);
  });
});
