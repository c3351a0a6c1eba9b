import { expect } from 'chai';
import type { Draft, Outgoing } from '../../../src/mail/outgoing.ts';
import { keyHash } from '../../../src/store/rows/accounts.ts';
import { ACCOUNT, type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';
import { subaccountRow } from '../../support/lists.ts';
import { queued } from '../../support/shared-spool.ts';

const TO = [{ email: 'ann@example.com', name: 'Ann' }];
const MESSAGE = {
  html: '<p>Hi *|NAME|*</p>',
  subject: 'Hello',
  from_email: 'News@Example.com',
  from_name: 'The News',
  to: TO,
};

describe('messages/send', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const send = (message: object, params: object = {}) =>
    world.call('/messages/send', { message: { ...MESSAGE, ...message }, ...params });
  /** What stands on the spool of the last message. */
  async function taken(): Promise<{ outgoing: Outgoing; draft: Draft; recipients: string[] }> {
    const message = (await queued(world.spool)).at(-1);
    if (!message?.envelope.outgoing) throw new Error('nothing was taken');
    return {
      outgoing: message.envelope.outgoing,
      draft: JSON.parse(message.text),
      recipients: message.deliveries.map(({ recipient }) => recipient),
    };
  }
  /** What the refusal says of `message`. */
  async function fault(message: object): Promise<string> {
    const { status, body } = await send(message);
    expect({ status, code: body.code, name: body.name }).to.deep.equal({
      status: 422,
      code: -2,
      name: 'ValidationError',
    });
    return JSON.parse(body.message.slice('Validation error: '.length)).message;
  }

  it('queues all supported parameters', async () => {
    const { status, body } = await send(
      {
        text: 'Hi',
        headers: {
          'Reply-To': 'r@example.com',
          'X-Many': ['a', 'b'],
          'X-Number': 7,
          'X-Folded': 'a\r\n Bcc: evil@example.com',
        },
        important: true,
        track_opens: true,
        track_clicks: true,
        auto_text: false,
        preserve_recipients: true,
        signing_domain: 'Example.NET',
        merge: true,
        tags: ['welcome', 'welcome', ''],
        subaccount: 'cust-123',
        metadata: { user: 7, vip: true, plan: 'a' },
        global_merge_vars: [
          { name: 'NAME', content: 'you' },
          { name: 'n', content: 3 },
          { name: 'none', content: null },
        ],
        merge_vars: [{ rcpt: 'Ann@EXAMPLE.com', vars: [{ name: 'name', content: 'Ann' }] }],
        recipient_metadata: [{ rcpt: 'ann@example.com', values: { user: 8 } }],
        attachments: [{ type: 'text/plain', name: 'a.txt', content: 'aGk=\n' }],
        images: [{ type: 'image/gif', name: 'pixel', content: 'R0lG' }],
      },
      { ip_pool: 'Transactional', async: true },
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    const { outgoing, draft, recipients } = await taken();
    expect(recipients).to.deep.equal(['ann@example.com']);
    expect(outgoing).to.deep.equal({
      sender: 'news@example.com',
      fromName: 'The News',
      subject: 'Hello',
      tags: ['welcome'],
      template: null,
      subaccount: 'cust-123',
      metadata: { user: 7, vip: true, plan: 'a' },
      apiKey: keyHash(KEY),
      trackOpens: true,
      trackClicks: 'all',
      globalVars: [
        { name: 'NAME', content: 'you' },
        { name: 'n', content: '3' },
        { name: 'none', content: '' },
      ],
      rcptVars: { 'ann@example.com': [{ name: 'name', content: 'Ann' }] },
      rcptMetadata: { 'ann@example.com': { user: 8 } },
      preserveRecipients: true,
      autoText: false,
      signingDomain: 'example.net',
      pool: 'Transactional',
      form: 'draft',
      host: 'mx.postern.test',
    });
    expect(draft).to.deep.equal({
      html: '<p>Hi *|NAME|*</p>',
      text: 'Hi',
      to: [{ email: 'ann@example.com', name: 'Ann', type: 'to' }],
      headers: [
        ['Reply-To', 'r@example.com'],
        ['X-Many', 'a'],
        ['X-Many', 'b'],
        ['X-Number', '7'],
        ['X-Folded', 'a Bcc: evil@example.com'],
        ['X-Priority', '1 (Highest)'],
        ['X-MSMail-Priority', 'High'],
        ['Importance', 'High'],
      ],
      attachments: [{ name: 'a.txt', type: 'text/plain', content: 'aGk=' }],
      images: [{ name: 'pixel', type: 'image/gif', content: 'R0lG' }],
    });
    expect(await world.store.messages.many({ account: ACCOUNT, id: body[0]._id })).to.have.length(1);
  });

  it('sets no option that was not requested', async () => {
    await send({});
    expect((await taken()).outgoing).to.include({
      trackOpens: false,
      trackClicks: 'none',
      globalVars: null,
      preserveRecipients: false,
      autoText: true,
      signingDomain: null,
      pool: null,
      subaccount: null,
    });
    await send(
      {
        track_opens: null,
        merge_vars: [],
        global_merge_vars: null,
        subaccount: '',
        signing_domain: '',
        metadata: [],
        headers: [],
        tags: null,
      },
      { ip_pool: '', send_at: null },
    );
    expect((await taken()).outgoing).to.include({
      trackOpens: false,
      globalVars: null,
      subaccount: null,
      signingDomain: null,
      pool: null,
    });
  });

  it('uses the tracking defaults of the operator if a message sets none', async () => {
    const tracking = await startApi({ settings: { tracking: { opens: true, clicks: 'html' } } });
    await tracking.call('/messages/send', { message: MESSAGE });
    await tracking.call('/messages/send', { message: { ...MESSAGE, track_opens: false, track_clicks: false } });
    const asked = (await queued(tracking.spool)).map(({ envelope }) => [
      envelope.outgoing?.trackOpens,
      envelope.outgoing?.trackClicks,
    ]);
    await tracking.stop();
    expect(asked).to.deep.equal([
      [true, 'html'],
      [false, 'none'],
    ]);
  });

  it('returns the status of each recipient as given, in order', async () => {
    const { body } = await send({
      to: [
        { email: ' Ann@Example.com ' },
        { email: 'gone@example.com', type: 'cc' },
        { email: 'no address', type: 'bcc' },
        { email: 'ann@example.com' },
      ],
    });
    expect(
      body.map(({ email, status, reject_reason: reason, queued_reason: queued }: Record<string, unknown>) => ({
        email,
        status,
        reason,
        queued,
      })),
    ).to.deep.equal([
      { email: 'Ann@Example.com', status: 'queued', reason: null, queued: 'sending-backlog' },
      { email: 'gone@example.com', status: 'rejected', reason: 'hard-bounce', queued: null },
      { email: 'no address', status: 'invalid', reason: 'invalid', queued: null },
    ]);
    for (const { _id: id } of body) expect(id).to.match(/^[0-9a-f]{32}$/);
  });

  it('sends bcc_address a copy with the variables of the only recipient, without reporting it', async () => {
    const { body } = await send({
      bcc_address: 'boss@example.com',
      merge_vars: [{ rcpt: 'ann@example.com', vars: [{ name: 'name', content: 'Ann' }] }],
    });
    expect(body.map(({ email }: { email: string }) => email)).to.deep.equal(['ann@example.com']);
    expect((await taken()).recipients).to.deep.equal(['ann@example.com', 'boss@example.com']);
    expect((await taken()).draft.to[1]).to.deep.equal({ email: 'boss@example.com', name: null, type: 'bcc' });
    expect((await taken()).outgoing.rcptVars['boss@example.com']).to.deep.equal([{ name: 'name', content: 'Ann' }]);
  });

  it('schedules for a future time, and sends at once for a past one', async () => {
    expect((await send({}, { send_at: '2026-01-06 08:00:00' })).body[0].status).to.equal('scheduled');
    expect((await send({}, { send_at: '2020-01-01 00:00:00' })).body[0].status).to.equal('queued');
  });

  it('queues rare options, and none by default', async () => {
    await send({
      inline_css: true,
      auto_html: true,
      url_strip_qs: true,
      view_content_link: false,
      tracking_domain: 'Track.example.com',
      return_path_domain: 'b.example.com',
      google_analytics_domains: ['Example.com', '', 'example.com'],
      google_analytics_campaign: ['', 'a'],
      unheard_of: [{}],
    });
    expect((await taken()).outgoing.extras).to.deep.equal({
      inlineCss: true,
      autoHtml: true,
      stripQuery: true,
      hideContent: true,
      trackingDomain: 'track.example.com',
      returnPathDomain: 'b.example.com',
      analytics: { domains: ['example.com'], campaign: 'a' },
    });
    await send({
      inline_css: false,
      auto_html: null,
      view_content_link: true,
      tracking_domain: '',
      return_path_domain: null,
      google_analytics_domains: [],
      google_analytics_campaign: 'a',
    });
    expect((await taken()).outgoing).to.not.have.property('extras');
  });

  it('rejects invalid domains with an explanation', async () => {
    for (const field of ['tracking_domain', 'return_path_domain', 'signing_domain']) {
      for (const wrong of [
        'a b',
        '192.0.2.1',
        '[::1]',
        'https://a.example',
        'a.example:80',
        'a.example\r\nBcc: b@c.example',
        'a@b.example',
        '-',
        `${'a.'.repeat(150)}example`,
      ]) {
        expect(await fault({ [field]: wrong }), wrong).to.equal(`.${field}: Not a valid domain name`);
      }
      expect(await fault({ [field]: 'a'.repeat(2000) })).to.equal(`.${field}: Please enter at most 1000 characters`);
      expect(await fault({ [field]: 7 })).to.equal(`.${field}: Please enter a string`);
    }
    expect(await fault({ google_analytics_domains: ['a.example', '192.0.2.1'] })).to.equal(
      '.google_analytics_domains[1]: Not a valid domain name',
    );
    expect(await fault({ google_analytics_domains: 'a.example' })).to.equal(
      '.google_analytics_domains: Please enter an array',
    );
    expect(await fault({ google_analytics_domains: Array.from({ length: 101 }, () => 'a.example') })).to.include(
      'at most 100',
    );
    for (const wrong of ['a\r\nb', 'x'.repeat(256), 7])
      expect(await fault({ google_analytics_campaign: wrong }), String(wrong).slice(0, 9)).to.include(
        '.google_analytics_campaign: ',
      );
    expect(await fault({ inline_css: 'sometimes' })).to.equal('.inline_css: Please enter true or false');
  });

  it('keeps handlebars values, including lists and structs', async () => {
    const content = { a: [1, 'b', { c: true }], d: 0.5 };
    await send({
      html: '{{v.a}}',
      merge_language: 'handlebars',
      global_merge_vars: [{ name: 'v', content }, { name: 'no', content: false }, { name: 'none' }],
      bcc_address: 'copy@example.com',
      merge_vars: [{ rcpt: 'ann@example.com', vars: [{ name: 'w', content: [[]] }] }],
    });
    const own = [{ name: 'w', content: [[]] }];
    expect((await taken()).outgoing).to.deep.include({
      mergeLanguage: 'handlebars',
      globalVars: [
        { name: 'v', content },
        { name: 'no', content: false },
        { name: 'none', content: '' },
      ],
      rcptVars: { 'ann@example.com': own, 'copy@example.com': own },
    });
    await send({ merge_language: 'mailchimp', global_merge_vars: [{ name: 'n', content: 5 }] });
    expect((await taken()).outgoing).to.deep.include({
      mergeLanguage: 'mailchimp',
      globalVars: [{ name: 'n', content: '5' }],
    });
  });

  it('rejects an invalid handlebars template, naming the field', async () => {
    const language = { merge_language: 'handlebars', merge: true };
    expect(await fault({ ...language, html: 'a\n{{#if x}}' })).to.equal(
      '.html: line 2: the block {{#if}} is not closed',
    );
    expect(await fault({ ...language, text: '{{x' })).to.contain('.text: the tag {{x is not closed');
    expect(await fault({ ...language, subject: '{{shout x}}' })).to.equal(
      '.subject: line 1: there is no helper "shout"',
    );
    expect(await fault({ ...language, from_name: '{{> x}}' })).to.contain('.from_name: partials');
    expect(
      (await send({ merge_language: 'handlebars', html: '{{#if x}}' })).status,
      'nothing asks for merging',
    ).to.equal(200);
    expect((await send({ merge: true, html: '{{#if x}}' })).status, 'it is the other language').to.equal(200);
  });

  it('shows lists in the mailchimp language by their values, and structs as nothing', async () => {
    for (const [content, shown] of [
      [[], ''],
      [{}, ''],
      [['a', 2, true], 'a,2,true'],
      [{ a: 'b' }, ''],
    ] as const) {
      for (const vars of [
        { global_merge_vars: [{ name: 'v', content }] },
        { merge_vars: [{ rcpt: 'ann@example.com', vars: [{ name: 'v', content }] }] },
      ]) {
        const { status, body } = await send(vars);
        expect(status, JSON.stringify(body)).to.equal(200);
        const {
          outgoing: { globalVars, rcptVars },
        } = await taken();
        expect([...(globalVars ?? []), ...(rcptVars['ann@example.com'] ?? [])]).to.deep.equal([
          { name: 'v', content: shown },
        ]);
      }
    }
  });

  it('gives a known reason for a queued message', async () => {
    const reasonOf = async (fields: object) => (await send(fields)).body[0].queued_reason;
    await world.store.subaccounts.insert(subaccountRow(ACCOUNT, 'paused', { status: 'paused' }));
    await world.store.subaccounts.insert(subaccountRow(ACCOUNT, 'small', { customQuota: 5 }));
    await putCounts(world.store, ACCOUNT, 'subaccount', 'small', { sent: 5 }, new Date(world.clock.now()));
    expect(await reasonOf({})).to.equal('sending-backlog');
    expect(await reasonOf({ subaccount: 'paused' })).to.equal('sending-paused');
    expect(await reasonOf({ subaccount: 'small' })).to.equal('hourly-quota');
    expect((await send({}, { send_at: '2027-01-01 00:00:00' })).body[0]).to.include({
      status: 'scheduled',
      queued_reason: null,
    });
  });

  it('shows the subject of the recipient everywhere, and keeps numbers in metadata', async () => {
    const vars = {
      merge_vars: [
        { rcpt: 'ann@example.com', vars: [{ name: 'name', content: 'Ann' }] },
        { rcpt: 'gone@example.com', vars: [{ name: 'name', content: 'Gone' }] },
      ],
    };
    const to = [{ email: 'ann@example.com' }, { email: 'gone@example.com' }];
    const { body } = await send({ ...vars, to, subject: 'Hi *|NAME|*', metadata: { user: 7, vip: true, plan: 'a' } });
    const infos = await Promise.all(
      body.map(async ({ _id: id }: { _id: string }) => (await world.call('/messages/info', { id })).body),
    );
    expect(infos.map(({ subject }) => subject)).to.deep.equal(['Hi Ann', 'Hi Gone']);
    expect(infos[0].metadata).to.deep.equal({ user: 7, vip: true, plan: 'a' });
    const found = (await world.call('/messages/search', { query: 'subject:"Hi Ann" u_user:7' })).body;
    expect(found.map(({ subject, metadata }: Record<string, unknown>) => ({ subject, metadata }))).to.deep.equal([
      { subject: 'Hi Ann', metadata: { user: 7, vip: true, plan: 'a' } },
    ]);
    const rejected = world.published.map(({ event }) => JSON.parse(event.body)).find(({ event }) => event === 'reject');
    expect(rejected.msg).to.deep.include({
      subject: 'Hi Gone',
      metadata: { user: 7, vip: true, plan: 'a' },
      reject: { reason: 'hard-bounce' },
    });
    await send(
      { ...vars, subject: '{{#if name}}Hi {{name}}{{/if}}', merge_language: 'handlebars' },
      { send_at: '2027-01-01 00:00:00' },
    );
    expect(
      (await world.call('/messages/list-scheduled', { to: 'ann@example.com' })).body.map(
        ({ subject }: { subject: string }) => subject,
      ),
    ).to.deep.equal(['Hi Ann']);
  });

  it('keeps the unmerged subject when merging costs too much', async () => {
    const items = Array.from({ length: 20_000 }, (_, n) => n);
    const subject = '{{#each items}}{{#if this}}{{/if}}{{/each}}';
    const { body } = await send({
      subject,
      merge_language: 'handlebars',
      global_merge_vars: [{ name: 'items', content: items }],
    });
    expect((await world.call('/messages/info', { id: body[0]._id })).body.subject).to.equal(subject);
  });

  it('names the invalid parameter', async () => {
    expect(await fault({ to: [] })).to.equal('.to: Please enter at least 1 items');
    expect(await fault({ to: undefined })).to.equal('.to: Please enter a value');
    expect(await fault({ to: Array.from({ length: 1001 }, (_, n) => ({ email: `a${n}@example.com` })) })).to.equal(
      '.to: Please enter at most 1000 items',
    );
    expect(await fault({ from_email: undefined })).to.equal('.from_email: Please enter a value');
    expect(await fault({ from_email: 'nobody' })).to.equal('.from_email: Not a valid email address');
    expect(await fault({ tags: ['a'.repeat(51)] })).to.equal('.tags[0]: Please enter at most 50 characters');
    expect(await fault({ tags: ['_reserved'] })).to.include('underscore');
    expect(await fault({ metadata: { deep: { a: 1 } } })).to.include('.metadata');
    expect(await fault({ global_merge_vars: [{ name: '_name', content: 'a' }] })).to.include('may not start with _');
    expect(await fault({ headers: { 'X-A: b\r\nBcc': 'c' } })).to.include('header fields');
    expect(await fault({ attachments: [{ type: 'text/plain', name: 'a', content: 'not base64!' }] })).to.include(
      'base64',
    );
    expect(await fault({ images: [{ type: 'text/html', name: 'a', content: 'aGk=' }] })).to.include('image/');
    expect(await fault({ signing_domain: 'a b' })).to.include('.signing_domain');
    expect(await fault({ html: 'x'.repeat(2_100_000) })).to.include('larger than 2000000 bytes');
    expect(await queued(world.spool)).to.deep.equal([]);
  });

  it('removes only the line endings from a subject', async () => {
    await send({ subject: 'a\r\nBcc: evil@example.com' });
    expect((await taken()).outgoing.subject).to.equal('a Bcc: evil@example.com');
  });

  it('returns ServiceUnavailable when the spool cannot accept it', async () => {
    const { hasRoom } = world.spool;
    world.spool.hasRoom = () => false;
    expect((await send({})).body).to.include({ name: 'ServiceUnavailable', code: -2 });
    world.spool.hasRoom = hasRoom;
    for (const outcome of ['full', 'fault'] as const) {
      world.spool.accept = async () => outcome;
      expect((await send({})).status).to.equal(503);
    }
    expect(await world.store.messages.many({})).to.deep.equal([]);
  });

  it('accepts a body as large as a message may be', async () => {
    const { status } = await send({ attachments: [{ type: 'text/plain', name: 'a', content: 'A'.repeat(1_400_000) }] });
    expect(status).to.equal(200);
  });

  describe('messages/send-template', () => {
    const sendTemplate = (params: object = {}, message: object = {}) =>
      world.call('/messages/send-template', {
        template_name: 'Example Template',
        template_content: [{ name: 'editable', content: 'Hello *|NAME|*' }],
        message: { to: TO, ...message },
        ...params,
      });

    it('fills the regions of the published template and leaves merge tags for each recipient', async () => {
      await world.call('/templates/update', {
        name: 'example-template',
        code: '<p>a draft</p>',
        subject: 'draft',
        publish: false,
      });
      const { status, body } = await sendTemplate({}, { global_merge_vars: [{ name: 'name', content: 'you' }] });
      expect(status, JSON.stringify(body)).to.equal(200);
      const { draft, outgoing } = await taken();
      expect(draft).to.include({ html: '<p>Hello *|NAME|*</p>', text: 'Example text' });
      expect(outgoing).to.include({
        template: 'example-template',
        subject: 'example subject',
        sender: 'news@example.com',
        fromName: 'Example Name',
      });
      expect(outgoing.globalVars).to.deep.equal([{ name: 'name', content: 'you' }]);
      expect((await world.store.messages.one({ id: body[0]._id }))?.template).to.equal('example-template');
    });

    it('lets fields of the message override those of the template, except the HTML', async () => {
      await sendTemplate(
        { template_name: 'example-template', template_content: [] },
        { subject: 'Mine', from_email: 'me@example.net', from_name: 'Me', text: 'my text', html: '<b>mine</b>' },
      );
      expect((await taken()).outgoing).to.include({ subject: 'Mine', sender: 'me@example.net', fromName: 'Me' });
      expect((await taken()).draft).to.include({ text: 'my text', html: '<p mc:edit="editable">editable content</p>' });
    });

    it('reports missing and unpublished templates', async () => {
      expect((await sendTemplate({ template_name: 'nowhere' })).body).to.include({ name: 'Unknown_Template', code: 5 });
      await world.call('/templates/add', { name: 'Draft', code: 'x', publish: false });
      expect((await sendTemplate({ template_name: 'Draft' })).body).to.include({ name: 'Invalid_Template', code: 6 });
      await world.call('/templates/add', { name: 'Bare', code: 'x' });
      expect((await sendTemplate({ template_name: 'Bare' })).body.message, 'nobody says who sends it').to.include(
        '.from_email',
      );
    });
  });

  describe('messages/send-raw', () => {
    const RAW =
      'From: "The News" <News@Example.com>\nTo: Ann <ann@example.com>, no address\nCc: bob@example.com\nBcc: eve@example.com\nSubject: =?utf-8?B?SGVsbMO2?=\nX-MC-Tags: welcome, new\nX-MC-Metadata: {"user":"7"}\n\nText';
    const sendRaw = (params: object = {}) => world.call('/messages/send-raw', { raw_message: RAW, ...params });
    const last = async () => (await queued(world.spool)).at(-1);

    it('takes sender, subject and recipients from the headers, and applies X-MC headers', async () => {
      const { status, body } = await sendRaw();
      expect(status, JSON.stringify(body)).to.equal(200);
      expect(body.map(({ email, status }: { email: string; status: string }) => [email, status])).to.deep.equal([
        ['ann@example.com', 'queued'],
        ['no address', 'invalid'],
        ['bob@example.com', 'queued'],
        ['eve@example.com', 'queued'],
      ]);
      expect((await last())?.envelope.outgoing).to.deep.include({
        sender: 'news@example.com',
        fromName: 'The News',
        subject: 'Hellö',
        tags: ['welcome', 'new'],
        metadata: { user: '7' },
        form: 'mime',
        apiKey: keyHash(KEY),
      });
      expect((await last())?.text).to.equal(RAW.replaceAll('\n', '\r\n'));
    });

    it('applies its headers, with the return path of the call before theirs', async () => {
      const raw = `X-MC-AutoHtml: true\nX-MC-ReturnPathDomain: header.example\nX-MC-ViewContentLink: false\n${RAW}`;
      await sendRaw({ raw_message: raw });
      expect((await last())?.envelope.outgoing?.extras).to.deep.equal({
        autoHtml: true,
        hideContent: true,
        returnPathDomain: 'header.example',
      });
      await sendRaw({ raw_message: raw, return_path_domain: 'Call.example' });
      expect((await last())?.envelope.outgoing?.extras).to.include({ returnPathDomain: 'call.example' });
      const { status, body } = await sendRaw({ return_path_domain: '192.0.2.1' });
      expect([status, body.name, body.message]).to.deep.equal([
        422,
        'ValidationError',
        'Validation error: {"return_path_domain":"Not a valid domain name"}',
      ]);
    });

    it('lets parameters override headers', async () => {
      const { body } = await sendRaw({
        from_email: 'me@example.net',
        from_name: 'Me',
        to: ['carl@example.com'],
        ip_pool: 'Transactional',
        send_at: '2026-01-07 00:00:00',
        async: false,
        return_path_domain: null,
      });
      expect(body.map(({ email, status }: { email: string; status: string }) => [email, status])).to.deep.equal([
        ['carl@example.com', 'scheduled'],
      ]);
      expect((await last())?.envelope.outgoing).to.include({
        sender: 'me@example.net',
        fromName: 'Me',
        pool: 'Transactional',
      });
    });

    it('rejects a missing sender or recipient, a template, and a forbidden header', async () => {
      const fault = async (params: object, field: string) => {
        const { status, body } = await sendRaw(params);
        expect(status, JSON.stringify(body)).to.equal(422);
        return JSON.parse(body.message.slice('Validation error: '.length))[field];
      };
      expect(await fault({ raw_message: 'To: a@example.com\n\nx' }, 'raw_message')).to.include('no sender');
      expect(await fault({ raw_message: 'From: nobody\nTo: a@example.com\n\nx' }, 'raw_message')).to.include(
        'no sender',
      );
      expect(await fault({ raw_message: 'From: a@example.com\n\nx' }, 'to')).to.include('no recipient');
      expect(await fault({ raw_message: `X-MC-Template: welcome\n${RAW}` }, 'raw_message')).to.include('X-MC-Template');
      expect(await fault({ raw_message: `${'X-A: b\n'.repeat(2000)}${RAW}` }, 'raw_message')).to.include('header');
      expect(await fault({ raw_message: RAW + 'x'.repeat(2_100_000) }, 'raw_message')).to.include('larger');
      expect(
        (await sendRaw({ raw_message: 'x', from_email: 'a@example.com', to: ['b@example.com'] })).status,
        'a body alone is a message',
      ).to.equal(200);
    });
  });
});
