import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { postern } from '../support/command.ts';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { readArchive, readCsv } from '../support/exports.ts';
import { message, sendMail } from '../support/mail.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import type { Sunk } from '../support/mail-sink.ts';
import { callMandrill, createMandrill, leadMandrillTo } from '../support/mandrill-client.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { localLink, returnOf, waysBack } from '../support/sent-mail.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const NEWS = 'news@sender.test';
const SHOP = 'shop@sender.test';
const LINK = 'https://shop.example/a?b=1&c=2';
const FBL = 'fbl@bounces.in.postern.test';

type Way = 'smtp' | 'send' | 'template';
type Kind = 'send' | 'deferral' | 'hard_bounce' | 'soft_bounce' | 'reject' | 'open' | 'click' | 'spam' | 'unsub';

/** One message of the story: how it was handed over, and everything that became of it. */
interface Told {
  readonly email: string;
  readonly way: Way;
  readonly sender: string;
  readonly tags: readonly string[];
  readonly subaccount: string | null;
  readonly state: string;
  readonly events: readonly Kind[];
}

const row = (
  name: string,
  way: Way,
  sender: string,
  tags: string,
  subaccount: string,
  state: string,
  ...events: readonly Kind[]
): Told => ({
  email: `${name}@to.test`,
  way,
  sender,
  tags: tags === '' ? [] : tags.split(','),
  subaccount: subaccount || null,
  state,
  events,
});

/** The story. Everything below counts from it, and from nothing else. */
const STORY: readonly Told[] = [
  row('plain', 'smtp', NEWS, 'weekly', 'cust', 'sent', 'send'),
  row('gone', 'smtp', NEWS, 'weekly', 'cust', 'bounced', 'hard_bounce'),
  row('listed', 'smtp', NEWS, 'weekly', 'cust', 'rejected', 'reject'),
  row('button', 'smtp', NEWS, 'weekly', 'cust', 'unsub', 'send', 'unsub'),
  row('full', 'send', NEWS, 'weekly,offer', '', 'soft-bounced', 'soft_bounce'),
  row('grey', 'send', SHOP, 'offer', '', 'sent', 'deferral', 'send'),
  row('returned', 'send', SHOP, 'offer', '', 'bounced', 'send', 'hard_bounce'),
  row('angry', 'send', NEWS, 'weekly', 'cust', 'spam', 'send', 'spam'),
  row('reader', 'template', SHOP, 'offer', '', 'sent', 'send', 'open', 'open'),
  row('buyer', 'template', SHOP, 'offer', 'cust', 'sent', 'send', 'click', 'click'),
  row('guest', 'template', NEWS, 'weekly', '', 'sent', 'send', 'click'),
  row('leaver', 'template', NEWS, '', '', 'unsub', 'send', 'unsub'),
];

const SAID = 'smtp;550 5.1.1 <returned@to.test>: Recipient address rejected: User unknown in virtual mailbox table';
/** The rejection list as the story leaves it, by address. */
const REJECTS: readonly (readonly [
  email: string,
  reason: string,
  subaccount: string | null,
  detail: RegExp | string | null,
  sender: string | null,
])[] = [
  ['angry@to.test', 'spam', 'cust', 'abuse by ReturnPathFBL/1.0', NEWS],
  ['button@to.test', 'unsub', 'cust', null, NEWS],
  ['full@to.test', 'soft-bounce', null, /^smtp;552 5\.2\.2 .*Over Quota/, NEWS],
  ['gone@to.test', 'hard-bounce', 'cust', /^smtp;550 5\.1\.1 .*User unknown/, NEWS],
  ['leaver@to.test', 'unsub', null, null, NEWS],
  ['listed@to.test', 'custom', null, 'asked by letter', null],
  ['returned@to.test', 'hard-bounce', null, SAID, SHOP],
];

type Counts = Readonly<Record<string, number>>;

/** What a part of the story comes to. */
function countsOf(mails: readonly Told[]): Counts {
  const of = (kind: Kind) => mails.flatMap(({ events }) => events).filter((event) => event === kind).length;
  const mailsWith = (kind: Kind) => mails.filter(({ events }) => events.includes(kind)).length;
  return {
    sent: of('send'),
    hard_bounces: of('hard_bounce'),
    soft_bounces: of('soft_bounce'),
    rejects: of('reject'),
    complaints: of('spam'),
    unsubs: of('unsub'),
    opens: of('open'),
    unique_opens: mailsWith('open'),
    clicks: of('click'),
    unique_clicks: mailsWith('click'),
  };
}

const without = (counts: Counts, ...names: readonly string[]): Counts =>
  Object.fromEntries(Object.entries(counts).filter(([name]) => !names.includes(name)));
const names = Object.keys(countsOf([]));
/** The counters of records, added up; those that the records do not have are left out. */
const sumOf = (records: readonly any[]): Counts =>
  Object.fromEntries(
    names
      .filter((name) => records.some((record) => name in record))
      .map((name) => [name, records.reduce((sum, record) => sum + record[name], 0)]),
  );

/**
 * Ten past noon: no hour, day, week or month ends while the story is told. Ahead, so that what others call due is due
 * here too.
 */
function noonClock(): Clock {
  const now = systemClock.now();
  const today = new Date(now).setUTCHours(12, 10, 0, 0);
  const ahead = (today < now ? today + 86_400_000 : today) - now;
  return { ...systemClock, now: () => systemClock.now() + ahead };
}

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;

describe('a full cycle of sent mail', function () {
  this.timeout(60_000);
  let server: MailServer;
  let zone: Zone;
  let hook: Receiver;
  let running: TestDaemon;
  let letGo: () => void;
  let hookId: number;
  before(async () => {
    server = await startMailServer();
    zone = await startZone({
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
    });
    hook = await startReceiver();
    running = await startDaemon(
      {
        POSTERN_SMTP__TLS__CERT: certificate('cert'),
        POSTERN_SMTP__TLS__KEY: certificate('key'),
        POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
        // The name server shares this process: a question that a busy machine lets wait would be one more deferral.
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_DNS__TIMEOUT_MS: '5000',
        POSTERN_OUTBOUND__MX_PORT: String(server.port),
        POSTERN_OUTBOUND__MTA_STS: 'false',
        POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50',
      },
      { clock: noonClock() },
    );
    letGo = leadMandrillTo(Number(new URL(running.base).port));
    const events = [
      'send',
      'deferral',
      'hard_bounce',
      'soft_bounce',
      'reject',
      'open',
      'click',
      'spam',
      'unsub',
      'blacklist',
    ];
    hookId = (await running.api('/webhooks/add', { url: hook.url, events })).id;
    await running.api('/templates/add', {
      name: 'The Offer',
      code: '<h1>Offer</h1><div mc:edit="main">nothing</div>',
      subject: 'An offer',
      publish: true,
    });
    await running.api('/subaccounts/add', { id: 'cust' });
    await running.api('/rejects/add', { email: 'listed@to.test', comment: 'asked by letter' });
  });
  after(async () => {
    letGo?.();
    await running?.stop();
    await Promise.all([zone.stop(), hook.stop(), server.stop()]);
  });

  /** Messages that are handed over as one: those of the story that differ in nothing but the recipient. */
  const groups = () => [
    ...Map.groupBy(STORY, ({ way, sender, tags, subaccount }) =>
      JSON.stringify([way, sender, tags, subaccount]),
    ).values(),
  ];

  async function submit({ sender, tags, subaccount }: Told, to: readonly string[]): Promise<void> {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    try {
      const headers = { 'X-MC-Tags': tags.join(','), 'X-MC-Subaccount': subaccount ?? '' };
      expect(
        (await transport.sendMail({ from: sender, to: [...to], subject: 'The news', text: 'Hello', headers })).response,
      ).to.match(/^250 /);
    } finally {
      transport.close();
    }
  }

  async function call({ way, sender, tags, subaccount }: Told, to: readonly string[]): Promise<void> {
    const { messages } = createMandrill(KEY);
    const html = `<p><a href="${LINK.replace('&', '&amp;')}">the shop</a></p>`;
    const common = {
      from_email: sender,
      to: to.map((email) => ({ email })),
      tags,
      subaccount,
      track_opens: true,
      track_clicks: true,
    };
    const answer =
      way === 'send'
        ? await callMandrill(messages, 'send', { message: { ...common, subject: 'The news', html } })
        : await callMandrill(messages, 'sendTemplate', {
            template_name: 'The Offer',
            template_content: [{ name: 'main', content: html }],
            message: common,
          });
    expect(answer.map(({ email, status }: any) => [email, status])).to.deep.equal(to.map((email) => [email, 'queued']));
  }

  const mailTo = (name: string): Sunk | undefined => server.mails.find(({ to }) => to.includes(`${name}@to.test`));
  const mailOf = (name: string): Sunk => mailTo(name) ?? expect.fail(`no mail for ${name}`);
  const batches = () => [...new Map(postsOf(hook.requests).map((post) => [post.headers['webhook-id'], post])).values()];
  const told = (): any[] => batches().flatMap(eventsOf);
  const visit = (url: string, agent: string, init: RequestInit = {}) =>
    fetch(localLink(running.base, url), { redirect: 'manual', headers: { 'user-agent': agent }, ...init });
  const handled = () =>
    running.log
      .of('return.handled')
      .map(({ fields }) => String(fields['words']))
      .sort();

  it('is submitted in three ways and delivered, except to recipients who are gone, full or suppressed', async () => {
    for (const group of groups()) {
      const [first] = group;
      if (first)
        await (first.way === 'smtp' ? submit : call)(
          first,
          group.map(({ email }) => email),
        );
    }
    await until('the deferral', () => told().some(({ event }) => event === 'deferral'));
    const arriving = STORY.filter(({ events }) => events.includes('send'))
      .map(({ email }) => email)
      .sort();
    await until(
      'all mail',
      async () => {
        if (server.mails.length < arriving.length)
          await postern(['queue', 'retry', '--kind', 'outbound'], { POSTERN_DATA_DIR: running.dir });
        return server.mails.length >= arriving.length;
      },
      30_000,
    );
    // Only then does anything come back: a report that overtakes the send would tell another story.
    await until('all sends', () => told().filter(({ event }) => event === 'send').length === arriving.length);
    expect(server.mails.flatMap(({ to }) => to).sort()).to.deep.equal(arriving);
    expect(server.asked).not.to.include('listed@to.test');
  });

  it('gets replies by every return path, link and button', async () => {
    for (let i = 0; i < 2; i++)
      expect(
        await sendMail(
          running.smtp,
          { from: '', to: mailOf('returned').from },
          returnOf('postfix-unknown-user', mailOf('returned')),
        ),
      ).to.match(/^250 /);
    expect(await sendMail(running.smtp, { from: '', to: FBL }, returnOf('arf-redacted', mailOf('angry')))).to.match(
      /^250 /,
    );
    expect(
      await sendMail(
        running.smtp,
        { from: 'leaver@to.test', to: waysBack(mailOf('leaver').raw).mailto },
        message('unsubscribe'),
      ),
    ).to.match(/^250 /);
    for (const agent of ['Reader/1.0', 'Phone/2.0'])
      expect((await visit(waysBack(mailOf('reader').raw).open, agent)).headers.get('content-type')).to.equal(
        'image/gif',
      );
    for (const [name, agent] of [
      ['buyer', 'Reader/1.0'],
      ['buyer', 'Phone/2.0'],
      ['guest', 'Reader/1.0'],
    ] as const) {
      expect((await visit(waysBack(mailOf(name).raw).click, agent)).headers.get('location')).to.equal(LINK);
    }
    const { unsubscribe } = waysBack(mailOf('button').raw);
    for (let i = 0; i < 2; i++)
      expect(
        (await visit(unsubscribe, 'Mail/1.0', { method: 'POST', body: 'List-Unsubscribe=One-Click' })).status,
      ).to.equal(200);
    await until('all of it read', () => handled().length === 4);
    expect(handled()).to.deep.equal([
      'hard_bounce duplicate',
      'hard_bounce recorded',
      'spam recorded',
      'unsub recorded',
    ]);
  });

  it('reaches the webhook event by event, and the webhook counts these events', async () => {
    const expected = [
      ...STORY.flatMap(({ email, events }) => events.map((event) => `${event} ${email}`)),
      ...REJECTS.map(([email]) => `blacklist add ${email}`),
    ].sort();
    const words = () =>
      told()
        .map(({ event, type, action, msg, reject }) =>
          event ? `${event} ${msg.email}` : `${type} ${action} ${reject.email}`,
        )
        .sort();
    await until('all events', () => words().length >= expected.length);
    expect(
      told()
        .filter(({ event }) => event === 'deferral')
        .map(({ msg }) => [msg.email, msg.smtp_events[0].diag]),
    ).to.deep.equal([['grey@to.test', '450 4.2.0 come back']]);
    expect(words()).to.deep.equal(expected);
    const numbers = async () => {
      const { events_sent, batches_sent, last_error } = await running.api('/webhooks/info', { id: hookId });
      return { events_sent, batches_sent, last_error };
    };
    await until('the numbers', async () => (await numbers()).events_sent >= expected.length);
    expect(await numbers()).to.deep.equal({
      events_sent: expected.length,
      batches_sent: batches().length,
      last_error: null,
    });
    expect(
      told()
        .filter(({ event }) => event === 'click')
        .map(({ url, ip, user_agent, msg }) => [msg.email, url, ip, user_agent])
        .sort(),
    ).to.deep.equal([
      ['buyer@to.test', LINK, '127.0.0.1', 'Phone/2.0'],
      ['buyer@to.test', LINK, '127.0.0.1', 'Reader/1.0'],
      ['guest@to.test', LINK, '127.0.0.1', 'Reader/1.0'],
    ]);
    for (const { msg } of told().filter(({ event }) => event)) {
      const { sender, tags, subaccount, way } =
        STORY.find(({ email }) => email === msg.email) ?? expect.fail(msg.email);
      expect(msg).to.deep.include({ sender, tags, subaccount, template: way === 'template' ? 'the-offer' : null });
    }
  });

  it('is found with the state of its last event', async () => {
    const expected = STORY.map(({ email, way, sender, tags, subaccount, state, events }) => ({
      email,
      sender,
      tags,
      subaccount,
      state,
      template: way === 'template' ? 'the-offer' : null,
      opens: events.filter((event) => event === 'open').length,
      clicks: events.filter((event) => event === 'click').length,
    }));
    const own = ({ email, sender, tags, subaccount, state, template, opens, clicks }: any) => ({
      email,
      sender,
      tags,
      subaccount,
      state,
      template,
      opens,
      clicks,
    });
    const search = () => running.api('/messages/search', { limit: 1000 });
    await until(
      'the rows',
      async () =>
        JSON.stringify((await search()).map(({ state }: any) => state).sort()) ===
        JSON.stringify(STORY.map(({ state }) => state).sort()),
    );
    const found = await search();
    expect(found.map(own)).to.have.deep.members(expected);
    expect(new Set(found.map(({ _id }: any) => _id)).size).to.equal(STORY.length);
    const types: Partial<Record<Kind, string>> = {
      send: 'sent',
      deferral: 'deferred',
      hard_bounce: 'bounced',
      soft_bounce: 'soft-bounced',
    };
    for (const { _id: id } of found) {
      const info = await running.api('/messages/info', { id });
      expect(expected).to.deep.include(own(info));
      const { events } = STORY.find(({ email }) => email === info.email) ?? expect.fail(info.email);
      expect(
        info.smtp_events.map(({ type }: any) => type),
        info.email,
      ).to.have.members(events.flatMap((event) => types[event] ?? []));
      expect(info.opens_detail.map(({ ua }: any) => ua).sort()).to.deep.equal(
        info.opens === 2 ? ['Phone/2.0', 'Reader/1.0'] : [],
      );
      expect(info.clicks_detail.map(({ url }: any) => url)).to.deep.equal(
        Array.from({ length: info.clicks }, () => LINK),
      );
    }
  });

  it('counts each tracked link once for each message and for each click, and unique clicks by message', async () => {
    const { clicks, unique_clicks } = countsOf(STORY);
    const sent = server.mails.filter(({ raw }) =>
      /\/track\/click\//.test(String(raw).replaceAll(/=\r?\n/g, '')),
    ).length;
    const expected = { url: LINK, sent, clicks, unique_clicks };
    expect(sent).to.be.greaterThan(5);
    await until('the numbers of the link', async () => (await running.api('/urls/list'))[0]?.sent === sent);
    expect(await running.api('/urls/list')).to.deep.equal([expected]);
    expect(await running.api('/urls/search', { q: LINK.slice(8, -2).toUpperCase() })).to.deep.equal([expected]);
    expect(await running.api('/urls/search', { q: 'elsewhere' })).to.deep.equal([]);
    const hours = await running.api('/urls/time-series', { url: LINK });
    const total = (name: 'sent' | 'clicks' | 'unique_clicks') =>
      hours.reduce((sum: number, hour: any) => sum + hour[name], 0);
    expect({
      url: LINK,
      sent: total('sent'),
      clicks: total('clicks'),
      unique_clicks: total('unique_clicks'),
    }).to.deep.equal(expected);
  });

  it('is counted exactly once for the account, and for each sender, tag, template and subaccount', async () => {
    const all = countsOf(STORY);
    await until(
      'the numbers of the account',
      async () => JSON.stringify(sumOf([(await running.api('/users/info')).stats.all_time])) === JSON.stringify(all),
    );
    const { stats } = await running.api('/users/info');
    expect([stats.last_7_days, stats.all_time]).to.deep.equal([all, all]);

    const senders = await running.api('/senders/list');
    expect(senders.map(({ address }: any) => address)).to.deep.equal([NEWS, SHOP]);
    expect(sumOf(senders), 'every message has one sender').to.deep.equal(all);
    for (const sender of senders) {
      const { address } = sender;
      const counts = countsOf(STORY.filter((one) => one.sender === address));
      expect(sumOf([sender]), address).to.deep.equal(counts);
      const info = await running.api('/senders/info', { address });
      expect([sumOf([info]), info.stats.last_7_days]).to.deep.equal([
        without(counts, 'unique_opens', 'unique_clicks'),
        counts,
      ]);
      expect(sumOf(await running.api('/senders/time-series', { address }))).to.deep.equal(without(counts, 'unsubs'));
    }

    const tags = await running.api('/tags/list');
    const hours = await running.api('/tags/all-time-series');
    expect(tags.map(({ tag }: any) => tag)).to.deep.equal(['offer', 'weekly']);
    for (const record of tags) {
      const { tag } = record;
      const counts = countsOf(STORY.filter((one) => one.tags.includes(tag)));
      const info = await running.api('/tags/info', { tag });
      expect([sumOf([info]), info.stats.last_7_days]).to.deep.equal([
        without(counts, 'unique_opens', 'unique_clicks'),
        counts,
      ]);
      expect(
        [
          sumOf([record]),
          sumOf(await running.api('/tags/time-series', { tag })),
          sumOf(hours.filter((hour: any) => hour.tag === tag)),
        ],
        tag,
      ).to.deep.equal([counts, counts, counts]);
    }
    expect(sumOf(hours), 'a message of two tags is in both').to.deep.equal(sumOf(tags));

    const ofTemplate = countsOf(STORY.filter(({ way }) => way === 'template'));
    expect(sumOf(await running.api('/templates/time-series', { name: 'The Offer' }))).to.deep.equal(
      without(ofTemplate, 'unsubs'),
    );

    const ofSubaccount = countsOf(STORY.filter(({ subaccount }) => subaccount === 'cust'));
    const sent = ofSubaccount['sent'];
    expect(await running.api('/subaccounts/info', { id: 'cust' })).to.deep.include({
      sent_hourly: sent,
      sent_weekly: sent,
      sent_monthly: sent,
      sent_total: sent,
      last_30_days: ofSubaccount,
    });
  });

  it('suppresses the right recipients, in the right list, for the right reason', async () => {
    const rejects = await running.api('/rejects/list');
    const senders = new Map((await running.api('/senders/list')).map((sender: any) => [sender.address, sender]));
    expect(
      rejects.map(({ email, reason, subaccount, expired }: any) => [email, reason, subaccount, expired]),
    ).to.deep.equal(REJECTS.map(([email, reason, subaccount]) => [email, reason, subaccount, false]));
    for (const [at, [email, , , detail, sender]] of REJECTS.entries()) {
      const entry = rejects[at];
      if (detail instanceof RegExp) expect(entry.detail, email).to.match(detail);
      else expect(entry.detail, email).to.equal(detail);
      expect(entry.sender, email).to.deep.equal(sender === null ? null : senders.get(sender));
    }
    const ofCust = await running.api('/rejects/list', { subaccount: 'cust' });
    expect(ofCust.map(({ email }: any) => email)).to.deep.equal(
      REJECTS.filter(([, , subaccount]) => subaccount === 'cust').map(([email]) => email),
    );
  });

  it('is exported with the same numbers', async () => {
    const { id } = await running.api('/exports/activity');
    const job = await until('the job ends', async () => {
      const found = await running.api('/exports/info', { id });
      return found.state === 'complete' && found;
    });
    const response = await fetch(localLink(running.base, job.result_url));
    const [entry] = readArchive(Buffer.from(await response.arrayBuffer()));
    const [header = [], ...lines] = readCsv(entry?.text ?? '');
    expect(header).to.include.members(['Email Address', 'Status', 'Opens', 'Clicks']);
    const cell = (line: readonly string[], name: string) => line[header.indexOf(name)];
    const columns = ['Email Address', 'Sender', 'Status', 'Tags', 'Opens', 'Clicks'];
    expect(lines.map((line) => columns.map((name) => cell(line, name)))).to.have.deep.members(
      STORY.map(({ email, sender, state, tags, events }) => [
        email,
        sender,
        state,
        tags.join(','),
        String(events.filter((event) => event === 'open').length),
        String(events.filter((event) => event === 'click').length),
      ]),
    );
    expect(lines.map((line) => [cell(line, 'Email Address'), cell(line, 'Bounce Detail')])).to.deep.include([
      'returned@to.test',
      SAID,
    ]);
  });

  it('leaves nothing waiting, and sends no notice twice', async () => {
    expect(await running.api('/users/info')).to.include({ backlog: 0 });
    expect(running.log.of('visit.lost')).to.deep.equal([]);
    expect(told()).to.have.length(STORY.flatMap(({ events }) => events).length + REJECTS.length);
    expect(server.mails).to.have.length(STORY.filter(({ events }) => events.includes('send')).length);
  });
});
