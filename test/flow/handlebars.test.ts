import { expect } from 'chai';
import { type ParsedMail, simpleParser } from 'mailparser';
import { createTransport } from 'nodemailer';
import { postern } from '../support/command.ts';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const ITEMS = [
  { name: 'Cup & saucer', price: 12 },
  { name: 'Pen', price: 3 },
];
const HTML =
  '<h1>{{title name}}</h1>{{#each items}}<p>{{@index}} {{name}}{{#if `price > 10`}} (dear){{elseif @last}} (last){{/if}}</p>{{/each}}<a href="https://shop.test/?q={{url name}}">x</a>';
const TEXT = 'Dear {{name}},\n{{#each items}}\n- {{name}}\n{{/each}}\nBye';

describe('mail with handlebars, from the API to the server of its recipient', function () {
  this.timeout(60_000);
  let server: MailServer;
  let hook: Receiver;
  let running: TestDaemon;
  before(async () => {
    [server, hook] = await Promise.all([startMailServer(), startReceiver()]);
    running = await startDaemon({
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${server.port}`,
      POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
    });
    await running.api('/webhooks/add', { url: hook.url, events: ['send', 'reject'] });
  });
  after(async () => {
    await running.stop();
    await Promise.all([hook.stop(), server.stop()]);
  });

  async function arrived(to: string): Promise<ParsedMail> {
    const { raw } = await until(`the mail to ${to}`, () => server.mails.find((mail) => mail.to.includes(to)));
    return simpleParser(raw, { skipHtmlToText: true, skipTextToHtml: true });
  }
  const message = (to: string, more: object) => ({
    from_email: 'news@sender.test',
    subject: 'Hi {{name}}',
    to: [{ email: to }],
    merge_language: 'handlebars',
    ...more,
  });
  const submit = (headers: Record<string, string | string[]>, mail: object) => {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    return transport
      .sendMail({
        from: 'News for {{name}} <news@sender.test>',
        subject: 'Hi {{name}}',
        headers: { 'X-MC-MergeLanguage': 'handlebars', ...headers },
        ...mail,
      })
      .finally(() => transport.close());
  };
  /** The events of a message, and its state on the queue. */
  async function ending(id: string, to: string): Promise<{ event: any; error: string }> {
    const event = await until('the event', () =>
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .find((one: any) => one._id === id),
    );
    const env = { POSTERN_DATA_DIR: running.dir };
    const rows = (await postern(['queue', 'list', '--kind', 'outbound', '--state', 'dead', '--json'], env)).records();
    const found = rows.find(({ recipient }: { recipient: string }) => recipient === to);
    return { event, error: (await postern(['queue', 'show', found.id], env)).out };
  }

  it('is merged for each recipient, in HTML, text, subject and sender name', async () => {
    const to = [{ email: 'ann@to.test' }, { email: 'bob@to.test' }];
    const vars = [
      {
        rcpt: 'ann@to.test',
        vars: [
          { name: 'name', content: 'ann <a>' },
          { name: 'items', content: ITEMS },
        ],
      },
      { rcpt: 'bob@to.test', vars: [{ name: 'NAME', content: 'bob' }] },
    ];
    await running.api('/messages/send', {
      message: message('', {
        to,
        html: HTML,
        text: TEXT,
        from_name: 'News for {{name}}',
        merge_vars: vars,
        global_merge_vars: [{ name: 'items', content: [] }],
      }),
    });
    const [ann, bob] = await Promise.all([arrived('ann@to.test'), arrived('bob@to.test')]);
    expect({ subject: ann.subject, from: ann.from?.value[0]?.name, text: ann.text?.trim() }).to.deep.equal({
      subject: 'Hi ann <a>',
      from: 'News for ann <a>',
      text: 'Dear ann <a>,\n- Cup & saucer\n- Pen\nBye',
    });
    expect(ann.html).to.equal(
      '<h1>Ann &lt;A&gt;</h1><p>0 Cup &amp; saucer (dear)</p><p>1 Pen (last)</p><a href="https://shop.test/?q=ann%20%3Ca%3E">x</a>',
    );
    expect({ subject: bob.subject, text: bob.text?.trim(), html: bob.html }).to.deep.equal({
      subject: 'Hi bob',
      text: 'Dear bob,\nBye',
      html: '<h1>Bob</h1><a href="https://shop.test/?q=bob">x</a>',
    });
  });

  it('is merged in a template, and its content shows the result', async () => {
    await running.api('/templates/add', {
      name: 'Order',
      code: '<div mc:edit="main">old</div>{{#if vip}}<b>vip</b>{{/if}}{{email}}',
      subject: 'Order of {{name}}',
      from_email: 'shop@sender.test',
    });
    const [{ _id: id }] = await running.api('/messages/send-template', {
      template_name: 'order',
      template_content: [{ name: 'main', content: '{{{name}}}' }],
      message: {
        to: [{ email: 'vip@to.test' }],
        merge_language: 'handlebars',
        global_merge_vars: [
          { name: 'name', content: '<i>V</i>' },
          { name: 'vip', content: false },
        ],
      },
    });
    const mail = await arrived('vip@to.test');
    expect({ subject: mail.subject, html: mail.html }).to.deep.equal({
      subject: 'Order of <i>V</i>',
      html: '<div><i>V</i></div>vip@to.test',
    });
    expect(await running.api('/messages/content', { id }))
      .to.include({ subject: 'Order of <i>V</i>' })
      .and.have.property('html')
      .that.contains('<div><i>V</i></div>');
  });

  it('is merged if submitted by SMTP, in whole documents too', async () => {
    await submit(
      {
        'X-MC-MergeVars': [
          JSON.stringify({ name: 'all', items: ITEMS }),
          JSON.stringify({ _rcpt: 'smtp@to.test', name: 'Zoë' }),
        ],
      },
      { to: 'smtp@to.test', text: TEXT, html: HTML },
    );
    const mail = await arrived('smtp@to.test');
    expect({ subject: mail.subject, from: mail.from?.value[0]?.name, text: mail.text?.trim() }).to.deep.equal({
      subject: 'Hi Zoë',
      from: 'News for Zoë',
      text: 'Dear Zoë,\n- Cup & saucer\n- Pen\nBye',
    });
    expect(mail.html).to.contain('<p>0 Cup &amp; saucer (dear)</p>').and.contain('?q=Zo%C3%AB');
    await submit(
      { 'X-MC-Template': 'order', 'X-MC-MergeVars': '{"name":"T","vip":true}' },
      { to: 'tmpl@to.test', html: '<u>{{name}}</u>' },
    );
    expect((await arrived('tmpl@to.test')).html).to.equal('<div><u>T</u>\n</div><b>vip</b>tmpl@to.test');
  });

  it('is rejected at once for an invalid template', async () => {
    const { status, body } = await running.ask('/messages/send', {
      message: message('a@to.test', { html: '<p>\n{{#if name}}', merge: true }),
    });
    expect({ status, name: body.name, message: body.message }).to.deep.equal({
      status: 422,
      name: 'ValidationError',
      message: 'Validation error: {"message":".html: line 2: the block {{#if}} is not closed"}',
    });
    const refused = await submit({ 'X-MC-Template': 'order' }, { to: 'a@to.test', html: '{{/if}}' }).then(
      () => undefined,
      (error: Error) => error.message,
    );
    expect(refused).to.contain('554 5.6.0 Template error: html: line 1: {{/if}} closes no block');
    expect(server.asked).to.not.include('a@to.test');
  });

  it('fails with a reason for an error at composition', async () => {
    const many = Array.from({ length: 1000 }, () => 1);
    const [{ _id: id }] = await running.api('/messages/send', {
      message: message('endless@to.test', {
        text: '{{#each many}}{{#each @root.many}}{{/each}}{{/each}}',
        global_merge_vars: [{ name: 'many', content: many }],
      }),
    });
    const { event, error } = await ending(id, 'endless@to.test');
    expect(event).to.deep.include({ event: 'reject' }).and.have.nested.property('msg.reject.reason', 'invalid');
    expect(error).to.contain('cannot be composed: faulty template: it takes more than 1000000 steps');
    await submit({ 'X-MC-MergeVars': '{"a":"b"}' }, { to: 'unclosed@to.test', text: '{{#if a}}' });
    await until(
      'it is ended',
      async () => (await running.api('/messages/search', { query: 'email:unclosed@to.test' }))[0]?.state === 'rejected',
    );
    expect(server.asked).to.not.include('unclosed@to.test').and.not.include('endless@to.test');
  });
});
