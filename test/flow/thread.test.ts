import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { sendMail } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const fieldIn = (raw: string, name: string) => new RegExp(`^${name}: *(.*)$`, 'im').exec(raw)?.[1]?.trim() ?? '';

/** Ids, of which ten thousand are some 200 KB: a longer header is cut. */
const many = (count: number, between: string) => Array.from({ length: count }, (_, n) => `<${n}@mail.x>`).join(between);

describe('the id of a conversation', function () {
  this.timeout(60_000);
  let relay: MailSink;
  let hook: Receiver;
  let events: Receiver;
  let all: Receiver;
  let running: TestDaemon;
  let other: Awaited<ReturnType<typeof addAccount>>;
  let sequence = 0;

  before(async () => {
    [relay, hook, events, all] = await Promise.all([
      startMailSink(),
      startReceiver(),
      startReceiver(),
      startReceiver(),
    ]);
    running = await startDaemon({
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${relay.port}`,
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_INBOUND__OWNERSHIP: 'first',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
    });
    other = await addAccount(running);
    for (const [{ api }, domain] of [
      [running, 'in.test'],
      [other, 'other.test'],
    ] as const) {
      await api('/inbound/add-domain', { domain });
      await api('/inbound/add-route', { domain, pattern: '*', url: hook.url });
    }
  });
  after(async () => {
    await running?.stop();
    await Promise.all([relay?.stop(), hook?.stop(), events?.stop(), all?.stop()]);
  });

  /** Sends a message by the API; its record, and what left. */
  async function send(
    message: object = {},
    api = running.api,
  ): Promise<{ id: string; raw: string; messageId: string }> {
    const email = `jo-${++sequence}@to.test`;
    const [{ _id: id }] = await api('/messages/send', {
      message: { from_email: 'news@sender.test', subject: 'Offer', text: 'x', to: [{ email }], ...message },
    });
    const { raw } = await left(email);
    await until('it is sent', async () => (await api('/messages/info', { id })).state === 'sent');
    return { id, raw, messageId: fieldIn(raw, 'message-id') };
  }

  const left = (email: string) => until('it left', () => relay.mails.find(({ to }) => to.includes(email)));

  /** The `msg` of what is posted for a message with these fields. */
  async function receive(fields: string, { to = 'x@in.test', from = 'jo@to.test' } = {}): Promise<any> {
    const subject = `n-${++sequence}`;
    const raw = `From: Jo <jo@to.test>\r\nSubject: ${subject}\r\n${fields === '' ? '' : `${fields}\r\n`}\r\nYes\r\n`;
    expect(await sendMail(running.smtp, { from, to }, raw)).to.match(/^250/);
    const found = await until('the post', () =>
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .find(({ msg }) => msg?.raw_msg?.includes(`Subject: ${subject}\n`)),
    );
    return found.msg;
  }

  it('is that of its first message, whatever else a reply references', async () => {
    const first = await receive('Message-ID: <First@mail.example>');
    const second = await receive('Message-ID: <2@mail.example>\r\nIn-Reply-To: <first@mail.example>');
    const third = await receive(
      'Message-ID: <3@mail.example>\r\nReferences: (the first)\r\n <first@mail.example>\r\n <2@mail.example>\r\nIn-Reply-To: <2@mail.example>',
    );
    expect(first.thread).to.match(/^[\w-]{22}$/);
    expect([second.thread, third.thread]).to.deep.equal([first.thread, first.thread]);
    expect((await receive('Message-ID: <4@mail.example>')).thread).not.to.equal(first.thread);
    expect(await receive('')).to.include({ thread: null, answers: null });
    expect(Object.keys(first).slice(-2)).to.deep.equal(['thread', 'answers']);
  });

  it('is that of a sent message which a reply references', async () => {
    const { id, messageId } = await send({
      tags: ['offer'],
      metadata: { ticket: 7 },
      headers: { 'Reply-To': 'x@in.test' },
    });
    const { answers, thread } = await receive(`In-Reply-To: ${messageId}`);
    const sent = await running.api('/messages/info', { id });
    expect(answers).to.deep.equal({
      ts: sent.ts,
      _id: id,
      sender: 'news@sender.test',
      template: null,
      subject: 'Offer',
      email: sent.email,
      tags: ['offer'],
      subaccount: null,
      metadata: { ticket: 7 },
    });
    expect(thread).to.equal(sent.thread);
  });

  for (const [how, field] of [
    ['in another case', (id: string) => `References: ${id.toUpperCase()}`],
    ['folded, with blanks and a comment', (id: string) => `References:\r\n (see)\r\n ${id.replace('@', ' @ ')}`],
    ['with text around it', (id: string) => `In-Reply-To: Your message of "Mon, 5 Jan" (a <b@c>) ${id}, thanks`],
    ['after others', (id: string) => `References: <a@b> <c@d> ${id} <e@f>`],
    ['without brackets', (id: string) => `In-Reply-To: ${id.slice(1, -1)}`],
    [
      'encoded, as Outlook does',
      (id: string) => `In-Reply-To: =?utf-8?Q?=3C${id.slice(1, -1).replace('@', '=40')}=3E?=`,
    ],
    ['among a hundred', (id: string) => `References: ${'<x@y>\r\n '.repeat(80)}${id} ${'\r\n <y@z>'.repeat(19)}`],
    ['at the end of ten thousand', (id: string) => `References: ${many(10_000, ' ')} ${id}`],
    ['in a header that is too long to be parsed', (id: string) => `References: ${many(4000, '\r\n ')}\r\n ${id}`],
  ] as const) {
    it(`is found by an id ${how}`, async () => {
      const { id, messageId } = await send();
      expect((await receive(field(messageId))).answers?._id).to.equal(id);
    });
  }

  it('is found by the nearest of several references', async () => {
    const [first, second] = [await send(), await send()];
    const { answers } = await receive(`References: ${first.messageId} ${second.messageId}`);
    expect(answers._id).to.equal(second.id);
  });

  it('is found by the Message-ID that the caller set, for the recipient who replies', async () => {
    const own = `<Own-${++sequence}@crm.example>`;
    const to = [{ email: 'else@to.test' }, { email: 'jo@to.test' }, { email: 'third@to.test' }];
    const sent = await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'x', to, headers: { 'Message-Id': own } },
    });
    expect(fieldIn((await left('third@to.test')).raw, 'message-id')).to.equal(own);
    const { answers, thread } = await receive(`In-Reply-To: ${own.toLowerCase()}`);
    expect(answers).to.include({ _id: sent[1]._id, email: 'jo@to.test' });
    expect((await running.api('/messages/info', { id: sent[0]._id })).thread).to.equal(thread);
  });

  it('includes sent messages', async () => {
    const first = await receive('Message-ID: <question@mail.example>');
    const { id, messageId } = await send({ headers: { 'In-Reply-To': '<question@mail.example>' } });
    expect((await running.api('/messages/info', { id })).thread).to.equal(first.thread);
    const back = await receive(`References: <question@mail.example> ${messageId}`);
    expect(back).to.deep.include({ thread: first.thread });
    expect(back.answers._id).to.equal(id);
  });

  it('is found for mail submitted by SMTP, with and without a Message-ID', async () => {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    const messageId = `<submitted-${++sequence}@mua.example>`;
    for (const [to, id] of [
      ['with@to.test', messageId],
      ['without@to.test', undefined],
    ] as const) {
      const raw = `From: me@sender.test\r\nTo: ${to}\r\nSubject: S\r\n${id === undefined ? '' : `Message-ID: ${id}\r\n`}\r\nx\r\n`;
      await transport.sendMail({ envelope: { from: 'me@sender.test', to }, raw });
      const sent = fieldIn((await left(to)).raw, 'message-id');
      expect((await receive(`In-Reply-To: ${sent}`)).answers?.email).to.equal(to);
    }
    transport.close();
  });

  it('is found by the id that a relay reported in its reply', async () => {
    for (const [reply, made] of [
      [
        'Ok 010201950ee6c6c1-6a9dd7d5-0b1c-4be5-8ea6-5a6a4b1bd8e4-000000',
        '<010201950ee6c6c1-6a9dd7d5-0b1c-4be5-8ea6-5a6a4b1bd8e4-000000@eu-west-1.amazonses.com>',
      ],
      ['Ok: queued as N1zvE5vYQ9yLk0Rv9vJ5Ow', '<N1zvE5vYQ9yLk0Rv9vJ5Ow@geopod-ismtpd-3-0>'],
      ['2.0.0 OK: queued as 0a129aee-e1cd-480d-b08d-4f48548ff48d', '<0a129aee-e1cd-480d-b08d-4f48548ff48d@mtasv.net>'],
      [
        '2.6.0 <AM0PR04MB1@AM0PR04MB1.eurprd04.prod.outlook.com> [InternalId=12345678901234, Hostname=AM0PR04MB1.eurprd04.prod.outlook.com] 9 bytes Queued mail for delivery',
        '<AM0PR04MB1@AM0PR04MB1.eurprd04.prod.outlook.com>',
      ],
    ] as const) {
      relay.say(reply);
      const { id } = await send();
      const sent = await running.api('/messages/info', { id });
      expect(sent.smtp_events[0].diag).to.contain(reply);
      const back = await receive(`References: ${made}`);
      expect(back.answers?._id, made).to.equal(id);
      expect(back.thread).to.equal(sent.thread);
      expect((await receive(`References: ${made}`, { to: 'x@other.test' })).answers).to.equal(null);
    }
    relay.say('OK');
  });

  it('is found by the reply address without any id: the latest message with it', async () => {
    const address = (await running.api('/inbound/reply-address', { domain: 'in.test', mailbox: 'x', data: 'ticket 1' }))
      .email;
    const headers = { 'Reply-To': `Support <${address}>` };
    await send({ headers });
    const { id } = await send({ headers });
    const msg = await receive('', { to: address.toUpperCase() });
    expect(msg).to.deep.include({ reply_data: 'ticket 1' });
    expect(msg.answers?._id).to.equal(id);
    // Somebody else's message with that address is theirs.
    await send({ headers }, other.api);
    expect((await receive('', { to: address })).answers?._id).to.equal(id);
  });

  it('never leads to a message of another account', async () => {
    const own = `<mine-${++sequence}@crm.example>`;
    const plain = await send();
    const given = await send({ headers: { 'Message-Id': own } });
    expect(given.messageId).to.equal(own);
    for (const messageId of [plain.messageId, own]) {
      const there = await receive(`In-Reply-To: ${messageId}`, { to: 'x@other.test' });
      expect(there.answers).to.equal(null);
      expect((await receive(`In-Reply-To: ${messageId}`)).answers).not.to.equal(null);
    }
  });

  it('reports each reply once, to webhooks that subscribe to the event, and lists it with the message', async () => {
    await running.api('/webhooks/add', { url: events.url, events: ['reply'] });
    await running.api('/webhooks/add', { url: all.url });
    const { id, messageId } = await send({ tags: ['told'], metadata: { ticket: 9 } });
    // Two deliveries, and both again.
    const also = await running.api('/inbound/add-route', {
      domain: 'in.test',
      pattern: 'twice',
      url: hook.url,
      also: [{ url: `${hook.url}again` }],
      priority: 5,
    });
    const { id: inbound, subject } = await receive(`In-Reply-To: ${messageId}`, { to: 'twice@in.test' });
    const posted = () =>
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .filter(({ msg }) => msg.id === inbound);
    await until('both posts', () => posted().length === 2);
    const ids = posted().map(({ _id }) => _id);
    // The receiver answers before the queue has noted it.
    await until('both to be noted as delivered', async () => {
      const delivered = await running.api('/inbound/deliveries', { state: 'delivered', limit: 100 });
      return ids.every((one) => delivered.some(({ id }: any) => id === one));
    });
    expect(await running.api('/inbound/replay', { ids, states: ['delivered'] })).to.include({ replayed: 2 });
    await until('both posts again', () => posted().length === 4);
    await receive(`In-Reply-To: ${messageId}`, { from: '' });
    await receive(`In-Reply-To: ${messageId}\r\nContent-Type: multipart/report; boundary=b`);
    await running.api('/inbound/delete-route', { id: also.id });
    const told = () => postsOf(events.requests).flatMap(eventsOf);
    const [reply] = await until('the event', () => told().length > 0 && told());
    const { replies } = await running.api('/messages/info', { id });
    expect(replies).to.deep.equal([
      { ts: reply.ts, id: inbound, from_email: 'jo@to.test', email: 'twice@in.test', subject, automated: null },
    ]);
    expect(reply).to.deep.include({
      event: 'reply',
      _id: id,
      reply: { id: inbound, from_email: 'jo@to.test', email: 'twice@in.test', subject, automated: null },
    });
    expect(reply.msg).to.deep.include({ _id: id, tags: ['told'], metadata: { ticket: 9 }, state: 'sent' });
    await send();
    await until('the other events', () => postsOf(all.requests).flatMap(eventsOf).length >= 2);
    expect(
      postsOf(all.requests)
        .flatMap(eventsOf)
        .map(({ event }) => event),
    ).not.to.include('reply');
    expect(told()).to.have.length(1);
    await receive(`In-Reply-To: ${messageId}\r\nAuto-Submitted: auto-replied\r\nX-Loop: a@b.test`);
    const [, away] = await until('the event of the automatic reply', () => told().length > 1 && told());
    expect(away.reply.automated).to.equal('auto-submitted');
    const [tag] = await running.api('/tags/list').then((tags: any[]) => tags.filter(({ tag }) => tag === 'told'));
    expect(tag).to.include({ sent: 1, soft_bounces: 0, hard_bounces: 0 });
  });

  it('is found in the history with received and sent mail, only by its account', async () => {
    const { id, messageId } = await send({ headers: { References: `<asked-${++sequence}@mail.example>` } });
    const { subject, thread } = await receive(`References: <asked-${sequence - 1}@mail.example> ${messageId}`);
    const { mails } = await until('the history has both', async () => {
      const found = await running.api('/inbound/conversation', { thread });
      return found.mails.length === 2 && found;
    });
    expect(mails.map(({ direction, to, subject }: any) => [direction, to, subject])).to.deep.equal([
      ['out', (await running.api('/messages/info', { id })).email, 'Offer'],
      ['in', 'x@in.test', subject],
    ]);
    expect(mails[0].id).to.equal(id);
    expect((await running.api('/inbound/info', { id: mails[1].id })).thread).to.equal(thread);
    const searched = await running.api('/inbound/search', { query: `thread:${thread}` });
    expect(searched.mails.map(({ id }: any) => id)).to.deep.equal([mails[1].id]);
    expect((await other.api('/inbound/conversation', { thread })).mails).to.deep.equal([]);
    expect((await other.api('/inbound/search', { query: `thread:${thread}` })).mails).to.deep.equal([]);
  });

  it('ignores unknown references', async () => {
    for (const field of [
      `In-Reply-To: <${'a'.repeat(60_000)}@b>`,
      `References: ${'<'.repeat(60_000)}`,
      `References: ${'('.repeat(60_000)}`,
      `References: ${'<>'.repeat(30_000)}`,
      'In-Reply-To: Your message of Monday from jo@to.test',
      'Thread-Index: AQHZ0123456789012345678901234567',
    ])
      expect(await receive(field), field.slice(0, 40)).to.include({ thread: null, answers: null });
  });
});
