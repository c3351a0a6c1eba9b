import { expect } from 'chai';
import { toMessageRow } from '../../../src/events/record.ts';
import type { Draft, Outgoing } from '../../../src/mail/outgoing.ts';
import { ACCOUNT, type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { queued } from '../../support/shared-spool.ts';

// Bodies of third-party clients: their requests with the fewest options.

const RAW = 'From: ops@example.com\r\nTo: ann@example.com\r\nSubject: App failed\r\n\r\nStack';
/** As PHP's http_build_query and Guzzle's form_params write a value. */
const php = (text: string) =>
  encodeURIComponent(text)
    .replaceAll('%20', '+')
    .replace(/[!'()*~]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const JSON_TYPE = { 'content-type': 'application/json' };

describe('default requests of well-known clients', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const form = (path: string, body: string) => world.send(`${path}.json`, body, FORM);
  const json = (path: string, body: object) =>
    world.send(`${path}.json`, JSON.stringify({ key: KEY, ...body }), JSON_TYPE);
  async function taken(): Promise<{ outgoing: Outgoing; draft: Draft; bytes: string; recipients: string[] }> {
    const message = (await queued(world.spool)).at(-1);
    if (!message?.envelope.outgoing) throw new Error('nothing was taken');
    const { text } = message;
    const { outgoing } = message.envelope;
    return {
      outgoing,
      draft: outgoing.form === 'draft' ? JSON.parse(text) : undefined,
      bytes: text,
      recipients: message.deliveries.map(({ recipient }) => recipient),
    };
  }

  it("works for the alert of Monolog's MandrillHandler, with false as 0", async () => {
    const { status, body } = await form('/messages/send-raw', `key=${KEY}&raw_message=${php(RAW)}&async=0`);
    expect(
      { status, sent: body.map((one: { email: string; status: string }) => [one.email, one.status]) },
      JSON.stringify(body),
    ).to.deep.equal({ status: 200, sent: [['ann@example.com', 'queued']] });
    expect((await taken()).bytes).to.equal(RAW);
  });

  it("works for the form of Laravel's transport, with true as 1 and a numbered list", async () => {
    const { status, body } = await form(
      '/messages/send-raw',
      `key=${KEY}&to%5B0%5D=ann%40example.com&to%5B1%5D=bob%40example.com&raw_message=${php(RAW)}&async=1`,
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    expect((await taken()).recipients).to.have.members(['ann@example.com', 'bob@example.com']);
  });

  it('works for a message of jQuery: structs in brackets, null as an empty text, true as a word', async () => {
    const { status, body } = await world.send(
      '/messages/send.json',
      `key=${KEY}&message%5Bfrom_email%5D=news%40example.com&message%5Bto%5D%5B0%5D%5Bemail%5D=ann%40example.com` +
        '&message%5Bto%5D%5B0%5D%5Bname%5D=Ann&message%5Bto%5D%5B0%5D%5Btype%5D=to' +
        '&message%5Bto%5D%5B1%5D%5Bemail%5D=bob%40example.com' +
        '&message%5Bto%5D%5B1%5D%5Bname%5D=&message%5Bto%5D%5B1%5D%5Btype%5D=' +
        '&message%5Bautotext%5D=true&message%5Bauto_text%5D=true' +
        "&message%5Bsubject%5D=Contact+(it's+*new*)!&message%5Bhtml%5D=%3Cp%3E100%25+%26+more+%C3%BC%3C%2Fp%3E" +
        '&message%5Btags%5D%5B%5D=contact&message%5Btags%5D%5B%5D=web&message%5Bmetadata%5D%5Bsite%5D=www' +
        '&message%5Bheaders%5D%5BReply-To%5D=ann%40example.com&message%5Bmerge_language%5D=' +
        '&message%5Bglobal_merge_vars%5D%5B0%5D%5Bname%5D=A&message%5Bglobal_merge_vars%5D%5B0%5D%5Bcontent%5D=1' +
        '&message%5Btrack_opens%5D=false&async=&ip_pool=',
      { 'content-type': 'application/x-www-form-urlencoded; charset=UTF-8' },
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    const { outgoing, draft } = await taken();
    expect(outgoing).to.deep.include({
      sender: 'news@example.com',
      subject: "Contact (it's *new*)!",
      tags: ['contact', 'web'],
      trackOpens: false,
      globalVars: [{ name: 'A', content: '1' }],
    });
    expect(draft).to.deep.include({ html: '<p>100% & more ü</p>', headers: [['Reply-To', 'ann@example.com']] });
    expect(draft.to).to.deep.equal([
      { email: 'ann@example.com', name: 'Ann', type: 'to' },
      { email: 'bob@example.com', name: null, type: 'to' },
    ]);
  });

  it('works for a query built by PHP: numbered lists with gaps, 1 and 0, base64 with plus signs', async () => {
    const { status, body } = await form(
      '/messages/send',
      [
        `key=${KEY}`,
        'message[from_email]=news%40example.com',
        'message[subject]=Hi',
        'message[text]=x',
        'message[important]=1',
        'message[track_clicks]=0',
        'message[preserve_recipients]=',
        'message[to][0][email]=ann%40example.com',
        'message[to][2][email]=bob%40example.com',
        'message[attachments][0][type]=',
        'message[attachments][0][name]=a.bin',
        `message[attachments][0][content]=${php('++//')}`,
        'message[metadata][0]=a',
        'message[metadata][1]=b',
        'message[tags]=one',
        'template_content=',
      ].join('&'),
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    const { outgoing, draft } = await taken();
    expect(outgoing).to.deep.include({ tags: ['one'], trackClicks: 'none', preserveRecipients: false });
    expect(Object.entries(outgoing.metadata)).to.deep.equal([
      ['0', 'a'],
      ['1', 'b'],
    ]);
    expect(draft.to.map(({ email }) => email)).to.deep.equal(['ann@example.com', 'bob@example.com']);
    expect(draft.attachments).to.deep.equal([{ name: 'a.bin', type: 'application/octet-stream', content: '++//' }]);
    expect(draft.headers).to.deep.include(['Importance', 'High']);
  });

  it('works for structs in a list by Ruby, where a repeated field starts a new one', async () => {
    const { status, body } = await form(
      '/messages/send',
      [
        `key=${KEY}`,
        'message[from_email]=news@example.com',
        'message[text]=x',
        'message[to][][email]=ann@example.com',
        'message[to][][name]=Ann',
        'message[to][][email]=bob@example.com',
        'message[to][][name]=Bob',
      ].join('&'),
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    expect((await taken()).draft.to.map(({ email, name }) => [email, name])).to.deep.equal([
      ['ann@example.com', 'Ann'],
      ['bob@example.com', 'Bob'],
    ]);
  });

  it('works for the official PHP client: no .json, null and empty lists omitted, key last', async () => {
    const { status, body } = await world.send(
      '/messages/send',
      'message%5Bfrom_email%5D=news%40example.com&message%5Bsubject%5D=Gr%C3%BC%C3%9Fe' +
        '&message%5Bhtml%5D=%3Cp%3E100%25+%26+more%3C%2Fp%3E' +
        '&message%5Bto%5D%5B0%5D%5Bemail%5D=ann%40example.com' +
        '&message%5Bto%5D%5B0%5D%5Btype%5D=to&message%5Bimportant%5D=1' +
        '&message%5Btrack_clicks%5D=0&message%5Btags%5D%5B0%5D=a&message%5Btags%5D%5B1%5D=b' +
        '&message%5Bmetadata%5D%5Bsite%5D=www&message%5Battachments%5D%5B0%5D%5Btype%5D=text%2Fplain' +
        '&message%5Battachments%5D%5B0%5D%5Bname%5D=a+b.txt' +
        `&message%5Battachments%5D%5B0%5D%5Bcontent%5D=%2B%2B%2F%2F&async=0&key=${KEY}`,
      FORM,
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    const { outgoing, draft } = await taken();
    expect(outgoing).to.deep.include({ subject: 'Grüße', tags: ['a', 'b'], trackClicks: 'none' });
    expect(Object.entries(outgoing.metadata)).to.deep.equal([['site', 'www']]);
    expect(draft).to.deep.include({
      html: '<p>100% & more</p>',
      to: [{ email: 'ann@example.com', name: null, type: 'to' }],
      attachments: [{ name: 'a b.txt', type: 'text/plain', content: '++//' }],
    });
    expect(draft.headers).to.deep.include(['Importance', 'High']);
  });

  it('works for a template without content: no list in a form, an empty struct in samples', async () => {
    const sent = 'message%5Bfrom_email%5D=news%40example.com&message%5Bto%5D%5B0%5D%5Bemail%5D=ann%40example.com';
    for (const content of ['', '&template_content=', '&template_content%5B%5D='])
      expect(
        (
          await world.send(
            '/messages/send-template',
            `template_name=Example+Template&${sent}${content}&key=${KEY}`,
            FORM,
          )
        ).body,
        `form ${content}`,
      ).to.have.nested.property('[0].status', 'queued');
    expect((await form('/templates/render', `template_name=Example+Template&key=${KEY}`)).status).to.equal(200);
    const message = { from_email: 'news@example.com', to: [{ email: 'ann@example.com' }] };
    const sample = { template_name: 'Example Template', template_content: [{}] };
    expect((await json('/messages/send-template', { ...sample, message })).body).to.have.nested.property(
      '[0].status',
      'queued',
    );
    expect((await json('/templates/render', sample)).status).to.equal(200);
    for (const [content, fault] of [
      [[{}, {}], '[0].name: Please enter a value'],
      [[[]], '[0]: Please enter a struct'],
      [[{ name: 'a' }], '[0].content: Please enter a value'],
    ] as const)
      expect(
        (await json('/templates/render', { template_name: 'Example Template', template_content: content })).body
          .message,
      ).to.equal(`Validation error: ${JSON.stringify({ template_content: fault })}`);
    expect(
      (await json('/messages/send', { message: { ...message, text: 'x', to: [{}] } })).body.name,
      'a recipient who is nobody is a mistake',
    ).to.equal('ValidationError');
    expect(
      (await json('/messages/send-template', { template_name: 'Example Template', message })).body.message,
      'JSON can say that a list is empty',
    ).to.equal('You must specify a template_content value');
  });

  it('works for gochimp: metadata as a list of structs, the campaign as a list', async () => {
    const { status, body } = await world.send(
      '/messages/send.json',
      `{"async":false,"key":"${KEY}","message":{"text":"Hi","subject":"go","from_email":"news@example.com",` +
        '"from_name":"","to":[{"email":"ann@example.com","name":"","type":""}],' +
        '"track_opens":false,"track_clicks":false,' +
        '"google_analytics_domains":["example.com"],"google_analytics_campaign":["spring"],' +
        '"metadata":[{"website":"www"},{"user":"7","__proto__":"p"}],' +
        '"recipient_metadata":[{"rcpt":"ann@example.com","values":{"x":"y"}}]}}',
      JSON_TYPE,
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    const { outgoing, draft } = await taken();
    expect(outgoing.extras?.analytics).to.deep.equal({ domains: ['example.com'], campaign: 'spring' });
    expect(Object.entries(outgoing.metadata)).to.deep.include.members([
      ['website', 'www'],
      ['user', '7'],
    ]);
    expect(draft.to).to.deep.equal([{ email: 'ann@example.com', name: null, type: 'to' }]);
    const plain = { text: 'x', from_email: 'news@example.com', to: [{ email: 'ann@example.com' }] };
    for (const metadata of [['a'], [{ a: 'b' }, 'c'], [['a']]])
      expect(
        (await json('/messages/send', { message: { ...plain, metadata } })).body.name,
        JSON.stringify(metadata),
      ).to.equal('ValidationError');
    expect((await json('/messages/send', { message: [plain] })).body.name, 'a message is one struct').to.equal(
      'ValidationError',
    );
  });

  it('parses numbers and booleans sent as text, in JSON too, where the operation declares them', async () => {
    const { body: before } = await json('/webhooks/info', { id: '4' });
    expect(before).to.include({ id: 4 });
    expect(
      (await form('/webhooks/update', `key=${KEY}&id=4&url=${php(before.url)}&description=&events%5B%5D=`)).body,
    ).to.deep.equal({ ...before, description: '' });
    for (const [value, publish] of [
      ['true', true],
      ['1', true],
      [1, true],
      ['on', true],
      ['false', false],
      ['0', false],
      [0, false],
      ['no', false],
    ] as const) {
      const { body } = await json('/templates/add', { name: `T ${typeof value} ${value}`, publish: value });
      expect(body.published_at !== null, JSON.stringify({ value, body })).to.equal(publish);
    }
    expect((await json('/subaccounts/add', { id: '7', name: '8', custom_quota: '42' })).body).to.include({
      id: '7',
      name: '8',
      custom_quota: 42,
    });
    for (const wrong of ['ten', '1e3', '0x10', '', ' 1', '1 000'])
      expect((await json('/webhooks/info', { id: wrong })).body, wrong).to.include({
        name: 'ValidationError',
        code: -2,
      });
    expect((await json('/templates/add', { name: 'x', publish: 'maybe' })).body.message).to.equal(
      'Validation error: {"publish":"Please enter true or false"}',
    );
    expect(
      (
        await json('/messages/send', {
          message: { text: 'x', from_email: 'a@example.com', to: [{ email: 'ann@example.com' }] },
          async: 'true',
        })
      ).status,
    ).to.equal(200);
  });

  it('treats an empty text as missing where text is invalid, at any depth, and keeps it elsewhere', async () => {
    const message = {
      text: 'x',
      from_email: 'news@example.com',
      merge_language: '',
      metadata: '',
      tags: '',
      headers: [],
      attachments: '',
      recipient_metadata: '',
      merge_vars: [{ rcpt: 'ann@example.com', vars: [{ name: 'A', content: '' }] }],
      to: [{ email: 'ann@example.com', name: '', type: '' }],
    };
    expect(
      (await json('/messages/send', { message, send_at: '', ip_pool: '', async: '' })).body,
    ).to.have.nested.property('[0].status', 'queued');
    expect(
      (
        await json('/messages/send-template', {
          template_name: 'Example Template',
          template_content: [],
          message: { ...message, from_email: '' },
        })
      ).body,
    ).to.have.nested.property('[0].status', 'queued');
    expect(
      (
        await json('/exports/activity', {
          notify_email: '',
          date_from: '',
          date_to: '',
          tags: '',
          senders: '',
          states: '',
          api_keys: '',
        })
      ).body,
    ).to.include({ state: 'waiting' });
    expect(
      (await json('/messages/search', { query: '', date_from: '', date_to: '', tags: '', senders: '', limit: '' }))
        .status,
    ).to.equal(200);
    expect((await json('/templates/update', { name: 'Example Template', subject: '' })).body).to.include({
      subject: '',
    });
    expect((await json('/inbound/update-route', { id: '1.1', url: '', pattern: '' })).body).to.include({
      pattern: 'mailbox-*',
    });
    expect((await json('/inbound/add-domain', { domain: '' })).body, 'what is required stays so').to.include({
      code: -2,
      message: 'Validation error: {"domain":"Please enter a value"}',
    });
    expect(
      (await json('/exports/activity', { senders: ['news@example.com', ''] })).body,
      'an empty item of a list is a mistake',
    ).to.include({ name: 'ValidationError' });
  });

  it('treats zero values of gochimp as missing, and parses its times', async () => {
    const zero = '0001-01-01T00:00:00Z';
    await world.store.messages.insert({
      ...toMessageRow({
        id: '0'.repeat(32),
        account: ACCOUNT,
        createdAt: new Date('2026-01-05T09:00:00Z'),
        sender: 'news@example.com',
        email: 'ann@example.com',
        subject: 'Hi',
        tags: [],
        template: null,
        subaccount: null,
        metadata: {},
        apiKey: null,
      }),
    });
    const everything = (await json('/messages/search', {})).body;
    expect(everything.map(({ email }: { email: string }) => email)).to.include('ann@example.com');
    expect(
      (
        await json('/messages/search', {
          query: '',
          date_from: zero,
          date_to: zero,
          tags: null,
          senders: null,
          limit: 0,
        })
      ).body,
    ).to.deep.equal(everything);
    const within = { date_from: '2026-01-05T00:00:00.123456789+01:00', date_to: '2026-01-05T12:00:00-05:00' };
    expect((await json('/messages/search', within)).body).to.deep.equal(everything);
    expect(
      (await json('/messages/search', { ...within, date_to: '2026-01-05T00:30:00.5+02:00' })).body.name ?? 'no fault',
    ).to.equal('ValidationError');
    expect((await json('/inbound/deliveries', { limit: 0 })).status).to.equal(200);
  });

  it('rejects an oversize form: too many fields, too deep', async () => {
    const many = Array.from({ length: 20_001 }, (_, n) => `message[to][${n}][email]=a`).join('&');
    expect((await form('/messages/send', many)).body.message).to.include('more than 20000 fields');
    expect((await form('/messages/send', `key=${KEY}&message${'[a]'.repeat(40)}=x`)).body.message).to.include(
      'nested deeper than 32 levels',
    );
    const sparse = await form(
      '/messages/send',
      `key=${KEY}&message[text]=x&message[from_email]=a@example.com&message[to][999999999][email]=ann@example.com&message[to][][email]=bob@example.com`,
    );
    expect(sparse.status, JSON.stringify(sparse.body)).to.equal(200);
    const names = await form(
      '/messages/send',
      `key=${KEY}&message[text]=x&message[from_email]=a@example.com&message[to][0][email]=ann@example.com&message[metadata][__proto__]=p&message[__proto__][polluted]=1`,
    );
    expect(names.status, JSON.stringify(names.body)).to.equal(200);
    expect(Object.hasOwn(Object.prototype, 'polluted')).to.equal(false);
  });
});
