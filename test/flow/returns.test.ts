import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { createLists } from '../../src/events/lists.ts';
import { createRecorder } from '../../src/events/record.ts';
import { bounceAddress, toToken, unsubAddress } from '../../src/mail/addresses/return-address.ts';

import { openSecret } from '../../src/store/rows/hosts.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { startDaemon, type TestDaemon, testSettings } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, openSession, sendMail } from '../support/mail.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { localLink, waysBack } from '../support/sent-mail.ts';
import { until } from '../support/until.ts';

const DOMAIN = 'bounces.in.postern.test';
const SENDER = 'news@example.com';

/** The id of a message of the tests. */
const idOf = (n: number) => n.toString(16).padStart(32, '0');

describe('returned mail and visits', () => {
  let running: TestDaemon;
  let hook: Receiver;
  let store: Store;
  let secret: string;
  before(async () => {
    hook = await startReceiver();
    running = await startDaemon({ POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50' });
    const { log } = running;
    store = await openStore(await openDatabase(testSettings(running.dir), log));
    secret = await openSecret(store, createIds(systemClock));
    await running.api('/webhooks/add', {
      url: hook.url,
      events: ['hard_bounce', 'soft_bounce', 'deferral', 'open', 'click', 'spam', 'unsub', 'blacklist'],
    });
    // Sends are not reported here: the queue belongs to the daemon.
    const outbox = { publish: async () => {} };
    const lists = createLists({ store, outbox, clock: systemClock, ids: createIds(systemClock), log });
    const recorder = createRecorder({ store, lists, outbox, clock: systemClock, log });
    const account = (await store.accounts.one({ number: 1 }))?.id ?? '';
    for (let n = 1; n <= 6; n++) {
      const createdAt = new Date();
      await recorder.begin({
        id: idOf(n),
        account,
        createdAt,
        sender: SENDER,
        email: `r${n}@example.net`,
        subject: 'The news',
        tags: ['news'],
        template: null,
        subaccount: null,
        metadata: {},
        apiKey: null,
      });
      await recorder.record({ id: `send-${n}`, account, message: idOf(n), kind: 'send', at: createdAt });
    }
  });
  after(async () => {
    await running.stop();
    await store.close();
    await hook.stop();
  });

  const bounceTo = (n: number) => bounceAddress(secret, 1, idOf(n), DOMAIN);
  const unsubTo = (n: number) => unsubAddress(secret, 1, idOf(n), DOMAIN);
  const link = (kind: 'open' | 'click' | 'unsub', n: number, about?: string) =>
    toToken(secret, kind, 1, idOf(n), about);
  const told = (): any[] => postsOf(hook.requests).flatMap(eventsOf);
  const send = (to: string, text: string) => sendMail(running.smtp, { from: '', to }, text);

  /** One of the fixtures, about the message with that number. */
  function report(name: string, n: number): string {
    const text = readFileSync(`test/fixtures/returns/${name}.eml`, 'utf8')
      .replaceAll('{{bounce}}@bounces.postern.test', bounceTo(n))
      .replaceAll('{{bounce}}', toToken(secret, 'bounce', 1, idOf(n)))
      .replaceAll('{{unsub}}', toToken(secret, 'unsub', 1, idOf(n)))
      .replaceAll('jo@example.net', `r${n}@example.net`);
    return text.replaceAll('\n', '\r\n');
  }

  it('refuse forged return addresses like unknown mailboxes; routes get no mail there', async () => {
    expect((await running.ask('/inbound/add-domain', { domain: DOMAIN })).status).to.equal(422);
    // One may be there from before that was refused.
    const account = (await store.accounts.one({ number: 1 }))?.id ?? '';
    const createdAt = new Date();
    for (const id of [DOMAIN, 'in.test'])
      await store.inboundDomains.insert({ id, account, domain: id, createdAt, validMx: false, testedAt: null });
    await store.inboundRoutes.insert({ id: '1.900', account, domain: DOMAIN, pattern: '*', url: hook.url, createdAt });
    await store.revisions.add('routing', { count: 1 }, { count: 0 });
    await until('the routes are read', async () => (await send('nobody@in.test', '')).startsWith('550 5.1.1'));
    const session = await openSession(running.smtp);
    await session.say('EHLO client.example.org');
    await session.say('MAIL FROM:<>');
    const unknown = await session.say('RCPT TO:<nobody@in.test>');
    const [local = ''] = bounceTo(1).split('@');
    const forged = [
      `${local.slice(0, -1)}${local.endsWith('0') ? '1' : '0'}`,
      local.replace(/^1/, '2'),
      'news',
      'postmasters',
      `unsub-${local}`,
    ];
    for (const mailbox of forged)
      expect(await session.say(`RCPT TO:<${mailbox}@${DOMAIN}>`), mailbox).to.equal(unknown);
    expect(unknown).to.equal('550 5.1.1 No such mailbox here');
    expect(await session.say(`RCPT TO:<${local.toUpperCase()}@${DOMAIN.toUpperCase()}>`)).to.match(/^250 /);
    expect(await session.say(`RCPT TO:<${local}@other.example>`)).to.match(/^550 5\.7\.1 /);
    session.close();
  });

  const handled = () =>
    running.log
      .of('return.handled')
      .map(({ fields }) => String(fields['words']))
      .sort();

  it('count a bounce, a complaint, unsubscribing by mail and by button, an open and two clicks exactly', async () => {
    for (let i = 0; i < 2; i++) expect(await send(bounceTo(1), report('postfix-unknown-user', 1))).to.match(/^250 /);
    expect(await send(bounceTo(1), report('postfix-relayed', 1))).to.match(/^250 /);
    expect(await send(`fbl@${DOMAIN}`, report('arf-redacted', 2))).to.match(/^250 /);
    await until('the complaint', () => handled().includes('spam recorded'));
    expect(await send(bounceTo(2), report('arf-to-the-return-path', 2))).to.match(/^250 /);
    expect(await send(`abuse@${DOMAIN}`, report('arf-of-somebody-else', 2))).to.match(/^250 /);
    for (let i = 0; i < 2; i++) expect(await send(unsubTo(3), message('unsubscribe'))).to.match(/^250 /);
    expect(await send(bounceTo(5), report('vacation-sieve', 5))).to.match(/^250 /);
    expect(await send(bounceTo(6), report('postfix-delayed', 6))).to.match(/^250 /);
    for (let i = 0; i < 2; i++)
      expect(
        (
          await fetch(`${running.base}/unsubscribe/${link('unsub', 4)}`, {
            method: 'POST',
            body: 'List-Unsubscribe=One-Click',
          })
        ).status,
      ).to.equal(200);
    expect(
      (await fetch(`${running.base}/track/open/${link('open', 5)}`, { headers: { 'user-agent': 'Reader/1.0' } }))
        .status,
    ).to.equal(200);
    for (const url of ['https://shop.example/a?b=c&d=ü', 'https://shop.example/b']) {
      const answer = await fetch(`${running.base}/track/click/${link('click', 5, url)}?u=${encodeURIComponent(url)}`, {
        redirect: 'manual',
        headers: { 'user-agent': 'Reader/1.0' },
      });
      expect([answer.status, answer.headers.get('location')]).to.deep.equal([302, url.replace('ü', '%C3%BC')]);
    }
    await until('all of it read', () => handled().length === 10);
    expect(handled()).to.deep.equal(
      [
        'deferral recorded',
        'hard_bounce duplicate',
        'hard_bounce recorded',
        'nothing: auto-reply',
        'nothing: delivery report: relayed',
        'nothing: the report refers to no known message',
        'spam duplicate',
        'spam recorded',
        'unsub duplicate',
        'unsub recorded',
      ].sort(),
    );
    await until('the webhooks', () => told().length >= 12);

    const counts = {
      sent: 6,
      hard_bounces: 1,
      soft_bounces: 0,
      rejects: 0,
      complaints: 1,
      unsubs: 2,
      opens: 1,
      unique_opens: 1,
      clicks: 2,
      unique_clicks: 1,
    };
    const { unique_opens: _opens, unique_clicks: _clicks, ...plain } = counts;
    for (const info of [
      await running.api('/senders/info', { address: SENDER }),
      await running.api('/tags/info', { tag: 'news' }),
    ]) {
      expect(info).to.include(plain);
      expect(info.stats.last_7_days).to.include(counts);
    }
    expect((await running.api('/users/info')).stats.all_time).to.deep.include(counts);
    const hours = await running.api('/tags/all-time-series');
    for (const [name, count] of Object.entries(counts)) {
      expect(
        hours.reduce((sum: number, hour: any) => sum + hour[name], 0),
        name,
      ).to.equal(count);
    }

    const rejects = await running.api('/rejects/list');
    const reasons = rejects.map(({ email, reason, detail }: any) => `${email} ${reason} ${detail}`).sort();
    expect(reasons).to.deep.equal([
      'r1@example.net hard-bounce smtp;550 5.1.1 <r1@example.net>: Recipient address rejected: User unknown in virtual mailbox table',
      'r2@example.net spam abuse by ReturnPathFBL/1.0',
      'r3@example.net unsub null',
      'r4@example.net unsub null',
    ]);

    const words = told()
      .map(({ event, type, action, msg, reject }) =>
        event ? `${event} ${msg.email}` : `${type} ${action} ${reject.email}`,
      )
      .sort();
    expect(words).to.deep.equal(
      [
        'hard_bounce r1@example.net',
        'blacklist add r1@example.net',
        'spam r2@example.net',
        'blacklist add r2@example.net',
        'unsub r3@example.net',
        'blacklist add r3@example.net',
        'unsub r4@example.net',
        'blacklist add r4@example.net',
        'open r5@example.net',
        'click r5@example.net',
        'click r5@example.net',
        'deferral r6@example.net',
      ].sort(),
    );
    const bounce = told().find(({ event }) => event === 'hard_bounce');
    expect(bounce.msg).to.include({
      state: 'bounced',
      bounce_description: 'bad_mailbox',
      bgtools_code: 10,
      diag: 'smtp;550 5.1.1 <r1@example.net>: Recipient address rejected: User unknown in virtual mailbox table',
      _id: idOf(1),
    });
    const click = told().find(({ event, url }) => event === 'click' && url.includes('ü'));
    expect(click).to.include({ url: 'https://shop.example/a?b=c&d=ü', ip: '127.0.0.1', user_agent: 'Reader/1.0' });
  }).timeout(60_000);

  it('are not posted to a route, and leave nothing waiting', async () => {
    expect(told().filter(({ event }) => event === 'inbound')).to.deep.equal([]);
    expect(await running.api('/inbound/deliveries', { state: 'waiting' })).to.deep.equal([]);
  });

  it('unsubscribe a recipient again after removal from the list', async () => {
    await running.api('/rejects/delete', { email: 'r4@example.net' });
    expect((await fetch(`${running.base}/unsubscribe/${link('unsub', 4)}`, { method: 'POST' })).status).to.equal(200);
    expect(
      (await running.api('/rejects/list', { email: 'r4@example.net' })).map(({ reason }: any) => reason),
    ).to.deep.equal(['unsub']);
  });
});

describe('a sent message', () => {
  let running: TestDaemon;
  let sink: MailSink;
  before(async () => {
    sink = await startMailSink();
    running = await startDaemon({
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${sink.port}`,
      POSTERN_OUTBOUND__QUOTA: 'false',
    });
  });
  after(async () => {
    await running.stop();
    await sink.stop();
  });

  /** Sends one to `email`, and answers what arrived. */
  async function arrived(email: string): Promise<{ readonly from: string; readonly raw: string }> {
    await running.api('/messages/send', {
      message: {
        from_email: SENDER,
        to: [{ email }],
        subject: 'The news',
        html: '<p>See <a href="https://shop.example/a?b=1&amp;c=2">the shop</a></p>',
        track_opens: true,
        track_clicks: true,
        tags: ['loop'],
      },
    });
    return until('the message', () => sink.mails.find(({ to }) => to.includes(email)));
  }

  it('is tracked by return path, links, open image and both ways to unsubscribe', async () => {
    const first = await arrived('a1@example.net');
    expect(first.from).to.match(new RegExp(`^[0-9a-z-]+@${DOMAIN}$`));
    const report = readFileSync('test/fixtures/returns/postfix-over-quota.eml', 'utf8')
      .replaceAll('jo@example.net', 'a1@example.net')
      .replaceAll('\n', '\r\n');
    await sendMail(running.smtp, { from: '', to: first.from }, report);

    const second = await arrived('a2@example.net');
    const { click, open, unsubscribe } = waysBack(second.raw);
    expect((await fetch(localLink(running.base, click), { redirect: 'manual' })).headers.get('location')).to.equal(
      'https://shop.example/a?b=1&c=2',
    );
    expect((await fetch(localLink(running.base, open))).headers.get('content-type')).to.equal('image/gif');
    expect(
      (await fetch(localLink(running.base, unsubscribe), { method: 'POST', body: 'List-Unsubscribe=One-Click' }))
        .status,
    ).to.equal(200);

    const third = await arrived('a3@example.net');
    const { mailto } = waysBack(third.raw);
    expect(await sendMail(running.smtp, { from: 'a3@example.net', to: mailto }, message('unsubscribe'))).to.match(
      /^250 /,
    );

    const fourth = await arrived('a4@example.net');
    const complaint = `From: fbl@example.net\r\nSubject: abuse\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: loop/1.0\r\nVersion: 1\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n${fourth.raw}\r\n--b--\r\n`;
    expect(await sendMail(running.smtp, { from: '', to: `fbl@${DOMAIN}` }, complaint)).to.match(/^250 /);

    const counts = {
      sent: 4,
      hard_bounces: 0,
      soft_bounces: 1,
      rejects: 0,
      complaints: 1,
      unsubs: 2,
      opens: 1,
      unique_opens: 1,
      clicks: 1,
      unique_clicks: 1,
    };
    let stats: any = {};
    await until(
      'all of it counted',
      async () => {
        stats = (await running.api('/senders/info', { address: SENDER })).stats.last_7_days;
        return Object.entries(counts).every(([name, count]) => stats[name] >= count);
      },
      20_000,
    ).catch((error: unknown) => {
      const told = running.log.lines.filter(({ level, event }) => level !== 'info' || event === 'return.handled');
      throw new Error(`${JSON.stringify(stats)} ${JSON.stringify(told)}`, { cause: error });
    });
    expect(stats).to.include(counts);
    expect(
      (await running.api('/rejects/list')).map(({ email, reason }: any) => `${email} ${reason}`).sort(),
    ).to.deep.equal([
      'a1@example.net soft-bounce',
      'a2@example.net unsub',
      'a3@example.net unsub',
      'a4@example.net spam',
    ]);
  }).timeout(60_000);
});
