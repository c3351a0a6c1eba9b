import { request } from 'node:http';
import { expect } from 'chai';
import { simpleParser } from 'mailparser';
import { createTransport } from 'nodemailer';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { sendMail } from '../support/mail.ts';
import { type MailSink, type Sunk, startMailSink } from '../support/mail-sink.ts';
import { callMandrill, createMandrill, leadMandrillTo } from '../support/mandrill-client.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { returnOf, waysBack } from '../support/sent-mail.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone, type ZoneNode } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const mx = (exchange: string): ZoneNode => ({ MX: [{ exchange, priority: 10 }] });
const LINK = 'https://shop.example/a?b=1#c';
const TAGGED = 'https://shop.example/a?b=1&utm_source=transactional&utm_medium=email&utm_campaign=spring#c';
const PAGE =
  '<html><head><style>p{color:red}</style></head><body><p>Dear *|NAME|*, <a href="https://shop.example/a?b=1#c">see</a></p></body></html>';
const HOSTILE = ['no.proof.test', 'else.sender.test', '192.0.2.1'];

describe('rare options of messages, through the whole daemon', function () {
  this.timeout(60_000);
  let server: MailSink;
  let zone: Zone;
  let hook: Receiver;
  let running: TestDaemon;
  let letGo: () => void;
  before(async () => {
    server = await startMailSink();
    const records: Record<string, ZoneNode> = {
      'to.test': mx('mx.to.test'),
      'mx.to.test': { A: ['127.0.0.1'] },
      'sender.test': mx('mx.to.test'),
      'sign.test': mx('mx.to.test'),
      'links.postern.test': { A: ['127.0.0.9'] },
      'clicks.sender.test': { CNAME: 'links.postern.test' },
      'returns.sender.test': mx('in.postern.test'),
      'else.sender.test': { CNAME: 'else.example', ...mx('else.example') },
      'no.proof.test': { CNAME: 'links.postern.test' },
    };
    zone = await startZone(records);
    hook = await startReceiver();
    running = await startDaemon({
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_PUBLIC_URL: 'https://links.postern.test',
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_MAIL__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50',
    });
    letGo = leadMandrillTo(Number(new URL(running.base).port));
    for (const domain of ['sender.test', 'sign.test']) {
      const key = await running.api('/senders/domain-key', { domain });
      Object.assign(records, { [domain]: { ...records[domain], TXT: [key.spf] }, [key.name]: { TXT: [key.txt] } });
      zone.set(records);
      expect((await running.api('/senders/check-domain', { domain })).dkim.valid).to.equal(true);
      await verify(domain);
    }
    await running.api('/webhooks/add', { url: hook.url, events: ['click', 'hard_bounce'] });
    await running.api('/templates/add', { name: 'Page', code: PAGE, subject: 'A page', publish: true });
  });
  after(async () => {
    letGo?.();
    await running?.stop();
    await Promise.all([zone.stop(), hook.stop(), server.stop()]);
  });

  async function verify(domain: string): Promise<void> {
    await running.api('/senders/verify-domain', { domain, mailbox: 'postmaster' });
    const { raw } = await until('the mail', () => server.mails.find(({ to }) => to.includes(`postmaster@${domain}`)));
    const path = /(\/verify\/[\w-]{22})\r?\n/.exec(raw.replaceAll('=\r\n', ''))?.[1] ?? '';
    expect((await fetch(running.base + path, { method: 'POST' })).status).to.equal(200);
  }

  const told = (): any[] => postsOf(hook.requests).flatMap(eventsOf);
  const arrived = (to: string) => until(`the mail to ${to}`, () => server.mails.find((mail) => mail.to.includes(to)));
  const parse = ({ raw }: Sunk) => simpleParser(raw, { skipHtmlToText: true, skipTextToHtml: true });
  const ask = async (message: object): Promise<any> =>
    callMandrill(createMandrill(KEY).messages, 'send', {
      message: { from_email: 'news@sender.test', subject: 'x', ...message },
    });
  async function submit(to: string, headers: Record<string, string>, content: object): Promise<void> {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    try {
      expect(
        (await transport.sendMail({ from: 'news@sender.test', to, subject: 'x', headers, ...content })).response,
      ).to.match(/^250 /);
    } finally {
      transport.close();
    }
  }

  /** A visit under the name that stands in the mail. */
  const visit = (url: string) =>
    new Promise<{ status: number | undefined; location: string | undefined }>((resolve, reject) => {
      const { host, pathname, search } = new URL(url);
      request(`${running.base}${pathname}${search}`, { headers: { host } }, (answer) => {
        answer.resume();
        resolve({ status: answer.statusCode, location: answer.headers.location });
      })
        .on('error', reject)
        .end();
    });

  /** Everything that was asked for is in the mail, and works on the way back. */
  async function works(to: string): Promise<void> {
    const mail = await arrived(to);
    const { html } = await parse(mail);
    const back = waysBack(mail.raw);
    expect(html).to.contain('<p style="color: red;">Dear Jo, <a href="https://clicks.sender.test/track/click/');
    expect([back.click, back.open, back.unsubscribe].map((url) => new URL(url).origin)).to.deep.equal(
      Array.from({ length: 3 }, () => 'https://clicks.sender.test'),
    );
    expect([(await visit(back.open)).status, (await visit(back.unsubscribe)).status]).to.deep.equal([200, 200]);
    expect(mail.from).to.match(/@returns\.sender\.test$/);
    expect(back.mailto).to.match(/@returns\.sender\.test$/);
    expect(mail.raw.replace(/\r\n[ \t]+/g, ' ')).to.match(/^DKIM-Signature: [^\r]* d=sign\.test;/m);
    expect(await visit(back.click)).to.deep.equal({ status: 302, location: TAGGED });
    const click = await until('the click', () =>
      told().find(({ event, msg }) => event === 'click' && msg.email === to),
    );
    expect([click.url, click.msg.clicks.map(({ url }: { url: string }) => url)]).to.deep.equal([
      'https://shop.example/a#c',
      ['https://shop.example/a#c'],
    ]);
    expect(
      (await running.api('/messages/info', { id: click._id })).clicks_detail.map(({ url }: { url: string }) => url),
    ).to.deep.equal(['https://shop.example/a#c']);
    expect((await running.ask('/messages/content', { id: click._id })).body.name).to.equal('Unknown_Message');
    expect(await sendMail(running.smtp, { from: '', to: mail.from }, returnOf('postfix-unknown-user', mail))).to.match(
      /^250 /,
    );
    await until('the bounce', () => told().find(({ event, msg }) => event === 'hard_bounce' && msg.email === to));
  }

  const ASKED = {
    inline_css: true,
    url_strip_qs: true,
    view_content_link: false,
    track_opens: true,
    track_clicks: true,
    tracking_domain: 'clicks.sender.test',
    return_path_domain: 'returns.sender.test',
    signing_domain: 'sign.test',
    google_analytics_domains: ['shop.example'],
    google_analytics_campaign: 'spring',
    merge: true,
    global_merge_vars: [{ name: 'name', content: 'Jo' }],
  };
  const HEADERS = {
    'X-MC-InlineCSS': 'true',
    'X-MC-URLStripQS': 'yes',
    'X-MC-ViewContentLink': 'false',
    'X-MC-Track': 'opens,clicks',
    'X-MC-TrackingDomain': 'clicks.sender.test',
    'X-MC-ReturnPathDomain': 'returns.sender.test',
    'X-MC-SigningDomain': 'sign.test',
    'X-MC-GoogleAnalytics': 'shop.example',
    'X-MC-GoogleAnalyticsCampaign': 'spring',
    'X-MC-MergeVars': '{"name":"Jo"}',
  };

  it('work with messages/send, by the official client', async () => {
    await ask({ html: PAGE, to: [{ email: 'send@to.test' }], ...ASKED });
    await works('send@to.test');
  });

  it('work with messages/send-template', async () => {
    await running.api('/messages/send-template', {
      template_name: 'Page',
      template_content: [],
      message: { from_email: 'news@sender.test', to: [{ email: 'template@to.test' }], ...ASKED },
    });
    await works('template@to.test');
  });

  it('work with messages/send-raw, with the return path as a parameter', async () => {
    const { 'X-MC-ReturnPathDomain': returnPath, ...others } = HEADERS;
    const lines = [
      ...Object.entries(others).map(([name, value]) => `${name}: ${value}`),
      'From: news@sender.test',
      'To: raw@to.test',
      'MIME-Version: 1.0',
      'Content-Type: text/html',
      '',
      PAGE,
    ];
    await running.api('/messages/send-raw', { raw_message: lines.join('\r\n'), return_path_domain: returnPath });
    await works('raw@to.test');
  });

  it('work with submission', async () => {
    await submit('submitted@to.test', HEADERS, { html: PAGE });
    await works('submitted@to.test');
  });

  it('make HTML of text, both ways', async () => {
    await ask({ text: `See ${LINK}`, to: [{ email: 'text@to.test' }], auto_html: true });
    await submit('text2@to.test', { 'X-MC-AutoHtml': 'on' }, { text: `See ${LINK}` });
    for (const to of ['text@to.test', 'text2@to.test']) {
      const { text, html } = await parse(await arrived(to));
      expect(text?.trimEnd()).to.equal(`See ${LINK}`);
      expect(html).to.contain(`<p>See <a href="${LINK}">${LINK}</a></p>`);
    }
  });

  it('are ignored for domains that are not verified or point elsewhere: the mail uses ours', async () => {
    for (const [n, domain] of HOSTILE.entries()) {
      const to = `hostile${n}@to.test`;
      if (n < 2)
        await ask({
          html: PAGE,
          to: [{ email: to }],
          track_clicks: true,
          tracking_domain: domain,
          return_path_domain: domain,
          signing_domain: domain,
        });
      else
        await submit(
          to,
          {
            'X-MC-TrackingDomain': domain,
            'X-MC-ReturnPathDomain': domain,
            'X-MC-SigningDomain': domain,
            'X-MC-Track': 'clicks',
          },
          { html: PAGE },
        );
      const mail = await arrived(to);
      const back = waysBack(mail.raw);
      expect([back.click, back.unsubscribe].map((url) => new URL(url).origin)).to.deep.equal([
        'https://links.postern.test',
        'https://links.postern.test',
      ]);
      expect(mail.from).to.match(/@bounces\.in\.postern\.test$/);
      expect(mail.raw.replace(/\r\n[ \t]+/g, ' ')).to.match(/^DKIM-Signature: [^\r]* d=sender\.test;/m);
    }
  });

  it('report an error with a text if the API cannot parse them', async () => {
    const refused = await ask({
      text: 'x',
      to: [{ email: 'a@to.test' }],
      tracking_domain: 'a\r\nBcc: b@c.example',
    }).catch((error: unknown) => error);
    expect(refused).to.deep.include({ name: 'ValidationError', code: -2 });
    expect(JSON.stringify(refused)).to.contain('.tracking_domain: Not a valid domain name');
  });
});
