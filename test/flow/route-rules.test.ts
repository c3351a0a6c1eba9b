import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { makeKey, signMessage } from '../support/dns-keys.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, openSession, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { EICAR, type FakeScanner, GTUBE, nobodyConnected, startClamd, startRspamd } from '../support/scanners.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const KEY = makeKey('good.test', 'k', 1024);
const REJECTED = '550 5.7.1 Message rejected by recipient policy';

describe('conditional routes', function () {
  this.timeout(60_000);
  let env: Readonly<Record<string, string>>;
  let running: TestDaemon;
  let hook: Receiver;
  let zone: Zone;
  let rspamd: FakeScanner;
  let clamd: FakeScanner;
  let domains = 0;

  before(async () => {
    hook = await startReceiver();
    rspamd = await startRspamd();
    clamd = await startClamd();
    zone = await startZone({
      'good.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      '_dmarc.good.test': { TXT: ['v=DMARC1; p=reject'] },
      ...KEY.records,
      'victim.test': { TXT: ['v=spf1 -all'] },
      '_dmarc.victim.test': { TXT: ['v=DMARC1; p=reject'] },
      'silent.test': { TXT: 'silent' as never },
    });
    env = {
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '20000',
      POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
      POSTERN_SCAN__CLAMD: clamd.address,
      POSTERN_SCAN__TIMEOUT_MS: '1500',
    };
    running = await startDaemon(env);
  });
  after(async () => {
    await running?.stop();
    await Promise.all([zone, hook, rspamd, clamd].map((part) => part?.stop()));
  });

  /** A domain with these routes; answers its name and the ids of the routes. */
  async function world(...routes: readonly object[]) {
    const domain = `d${++domains}.test`;
    await running.api('/inbound/add-domain', { domain });
    const ids: string[] = [];
    for (const route of routes)
      ids.push((await running.api('/inbound/add-route', { domain, pattern: '*', url: hook.url, ...route })).id);
    return { domain, ids };
  }

  const refused = async (params: object): Promise<unknown> =>
    (await running.ask('/inbound/add-route', params)).body.message;

  const send = (to: string, subject: string, text = 'Hello', from = 'ada@good.test') =>
    sendMail(running.smtp, { from, to }, message(subject, text).replace(/^From: .*$/m, `From: <${from}>`));

  /** The event of a message, by its subject. */
  const event = async (subject: string): Promise<any> => {
    const found = () =>
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .find(({ msg }) => msg.subject === subject);
    await until(`the post of ${subject}`, () => found() !== undefined, 30_000);
    return found();
  };

  const deliveriesOf = (route: string) => running.api('/inbound/deliveries', { route });

  it('match mail by its sender, subject, header and size; the first match wins', async () => {
    const { domain, ids } = await world(
      { when: { sender: '*@good.test', subject: ['*Rechnung*', '*invoice*'] }, tags: ['invoice'] },
      { when: { header: { 'X-Kind': 'alarm-*', 'X-Test': false } }, tags: ['alarm'], priority: 5 },
      { when: { size: { over: 5000 } }, tags: ['large'] },
      { tags: ['rest'] },
    );
    const to = `box@${domain}`;
    const tagsOf = async (subject: string) => (await event(subject)).msg.tags;
    expect(await send(to, 'Your INVOICE 1')).to.match(/^250/);
    expect(await tagsOf('Your INVOICE 1')).to.deep.equal(['invoice']);
    expect(await send(to, '=?utf-8?q?Die_Rechnung_=E2=82=AC?=')).to.match(/^250/);
    expect(await tagsOf('Die Rechnung €')).to.deep.equal(['invoice']);
    expect(await send(to, 'invoice from elsewhere', 'Hello', 'x@other.test')).to.match(/^250/);
    expect(await tagsOf('invoice from elsewhere')).to.deep.equal(['rest']);
    expect(await send(to, 'large one', 'x'.repeat(70).concat('\r\n').repeat(100))).to.match(/^250/);
    expect(await tagsOf('large one')).to.deep.equal(['large']);
    const raw = (extra: string) =>
      message('an invoice', 'Hello').replace('Subject:', `X-Kind: Alarm-7\r\n${extra}Subject:`);
    await sendMail(running.smtp, { from: 'ada@good.test', to }, raw(''));
    expect(await tagsOf('an invoice')).to.deep.equal(['alarm']);
    const one = await until('it to be delivered', async () =>
      (await deliveriesOf(ids[1] ?? '')).find(({ state }: { state: string }) => state === 'delivered'),
    );
    expect(one.route).to.equal(ids[1]);
  });

  it('behave as before while no route has a condition', async () => {
    const { domain } = await world({ pattern: 'a-*' }, { pattern: '*' });
    expect(await send(`a-1@${domain}`, 'plain one')).to.match(/^250/);
    const { msg } = await event('plain one');
    expect(msg.tags).to.deep.equal([]);
  });

  it('apply their tags even if no route of the domain has a condition', async () => {
    const { domain } = await world({ pattern: 'only', tags: ['alone'] });
    expect(await send(`only@${domain}`, 'tagged alone')).to.match(/^250/);
    expect((await event('tagged alone')).msg.tags).to.deep.equal(['alone']);
  });

  it('add tags, and pass the mail on to the next routes', async () => {
    const { domain, ids } = await world(
      { action: 'tag', when: { from: '*@good.test' }, tags: ['known', 'ours'], priority: 1 },
      { action: 'tag', tags: ['all'], priority: 1 },
      { tags: ['ours', 'end'] },
    );
    expect(await send(`box@${domain}`, 'tagged')).to.match(/^250/);
    expect((await event('tagged')).msg.tags).to.deep.equal(['known', 'ours', 'all', 'end']);
    expect(await deliveriesOf(ids[0] ?? '')).to.deep.equal([]);
  });

  it('reject at RCPT by sender, and after DATA by content', async () => {
    const { domain } = await world(
      { action: 'reject', when: { sender: '*@bad.test' }, url: undefined },
      { action: 'reject', when: { subject: '*casino*' }, url: undefined },
      {},
    );
    const to = `box@${domain}`;
    const session = await openSession(running.smtp);
    await session.say('EHLO client.test');
    await session.say('MAIL FROM:<x@bad.test>');
    expect(await session.say(`RCPT TO:<${to}>`)).to.equal(REJECTED);
    session.close();
    expect(await send(to, 'our CASINO opens')).to.equal(REJECTED);
    expect(await send(to, 'our garden opens')).to.match(/^250/);
    await event('our garden opens');
    const refusals = async () => (await running.api('/inbound/refusals', { query: 'reason:unrouted' })).refusals;
    await until('both refusals', async () => (await refusals()).length === 2);
    expect((await refusals()).map(({ stage }: any) => stage).toSorted()).to.deep.equal(['DATA', 'RCPT']);
  });

  it('limit a message that may be rejected by content to one recipient', async () => {
    const { domain } = await world({ pattern: 'strict', action: 'reject', when: { subject: '*casino*' } }, {});
    const session = await openSession(running.smtp);
    await session.say('EHLO client.test');
    await session.say('MAIL FROM:<x@good.test>');
    expect(await session.say(`RCPT TO:<open@${domain}>`)).to.match(/^250/);
    expect(await session.say(`RCPT TO:<strict@${domain}>`)).to.match(/^452 4\.5\.3/);
    expect(await session.say(`RCPT TO:<other@${domain}>`)).to.match(/^250/);
    await session.say('DATA');
    expect(await session.data(message('for two of them', 'Hi'))).to.match(/^250/);
    await session.say('MAIL FROM:<x@good.test>');
    expect(await session.say(`RCPT TO:<strict@${domain}>`)).to.match(/^250/);
    expect(await session.say(`RCPT TO:<open@${domain}>`)).to.match(/^452 4\.5\.3/);
    session.close();
    await until(
      'two posts',
      () =>
        postsOf(hook.requests)
          .flatMap(eventsOf)
          .filter(({ msg }) => msg.subject === 'for two of them').length === 2,
    );
  });

  it('reject mail that no route matches', async () => {
    const { domain } = await world({ when: { subject: 'ticket *' } });
    expect(await send(`box@${domain}`, 'ticket 1')).to.match(/^250/);
    expect(await send(`box@${domain}`, 'something else')).to.equal(REJECTED);
  });

  it('hold mail until it is replayed, and discard it with a record', async () => {
    const { domain, ids } = await world(
      { action: 'hold', when: { subject: 'hold me*' } },
      { action: 'discard', when: { subject: 'drop me*' } },
      { action: 'discard', when: { subject: 'forget me*' }, url: undefined },
      {},
    );
    const to = `box@${domain}`;
    for (const subject of ['hold me 1', 'drop me 1', 'forget me 1']) expect(await send(to, subject)).to.match(/^250/);
    const [held] = await deliveriesOf(ids[0] ?? '');
    expect(held).to.include({ state: 'held', last_error: `held by route ${ids[0]}`, next_attempt_at: null });
    const [dropped] = await deliveriesOf(ids[1] ?? '');
    expect(dropped).to.include({ state: 'dropped', last_error: `discarded by route ${ids[1]}` });
    expect(await running.api('/inbound/deliveries', { state: 'held' })).to.have.length(1);
    const found = await until('the history', async () => {
      const { mails } = await running.api('/inbound/search', { query: `to:box@${domain}` });
      return mails.length === 3 && mails.every((mail: any) => mail.subject !== null) && mails;
    });
    expect((found as any[]).map(({ subject, state }) => `${subject}: ${state}`).toSorted()).to.deep.equal([
      'drop me 1: dropped',
      'forget me 1: dropped',
      'hold me 1: held',
    ]);
    const { timeline } = await running.api('/inbound/info', { id: held.id });
    expect(timeline.map(({ text }: any) => text)).to.include('Held; a replay releases it');
    expect(
      postsOf(hook.requests)
        .flatMap(eventsOf)
        .some(({ msg }) => /^(hold|drop|forget) me/.test(msg.subject)),
    ).to.equal(false);
    expect(await running.api('/inbound/replay', { id: held.id })).to.include({ matched: 1, replayed: 1 });
    await event('hold me 1');
    expect(await running.api('/inbound/replay', { id: dropped.id })).to.include({ replayed: 1 });
    await event('drop me 1');
    const [forgotten] = await deliveriesOf(ids[2] ?? '');
    expect(await running.api('/inbound/replay', { id: forgotten.id })).to.include({ replayed: 0 });
  });

  it('keep held mail over a restart of the daemon', async () => {
    const { domain, ids } = await world({ action: 'hold' });
    expect(await send(`box@${domain}`, 'held over a restart')).to.match(/^250/);
    const { dir } = running;
    await running.stop();
    running = await startDaemon(env, { dir });
    const [held] = await deliveriesOf(ids[0] ?? '');
    expect(held.state).to.equal('held');
    expect(await running.api('/inbound/replay', { from: '2000-01-01 00:00:00', state: 'held' })).to.include({
      replayed: 1,
    });
    await event('held over a restart');
  });

  it('decide by DMARC before the reply, and post the same verdicts', async () => {
    const { domain } = await world(
      { action: 'reject', when: { dmarc: 'fail' } },
      { when: { authenticated: true }, tags: ['believed'] },
      { tags: ['not believed'] },
    );
    const to = `box@${domain}`;
    const from = (author: string, subject: string) =>
      `From: <${author}>\r\nTo: <${to}>\r\nSubject: ${subject}\r\n\r\nHi\r\n`;
    const counted = async (result: string) =>
      (await scrape(running.base)).of(`postern_authentication_results_total{method="dmarc",result="${result}"}`);
    const before = [await counted('pass'), await counted('none')];
    const signed = signMessage(from('ada@good.test', 'signed'), KEY, { fields: ['from', 'subject'] });
    expect(await sendMail(running.smtp, { from: 'ada@good.test', to }, signed)).to.match(/^250/);
    const { msg } = await event('signed');
    expect(msg.tags).to.deep.equal(['believed']);
    expect(msg.sender_auth).to.include({ authenticated: true, by: 'dmarc' });
    expect(await sendMail(running.smtp, { from: 'ada@good.test', to }, from('ceo@victim.test', 'forged'))).to.equal(
      REJECTED,
    );
    expect(await sendMail(running.smtp, { from: 'x@none.test', to }, from('x@none.test', 'without a policy'))).to.match(
      /^250/,
    );
    expect((await event('without a policy')).msg.tags).to.deep.equal(['not believed']);
    // The verdicts of an accepted message are counted once, wherever they were taken.
    expect([await counted('pass'), await counted('none')]).to.deep.equal(before.map((count) => count + 1));
  });

  it('cannot be evaded by a header that is too large to parse', async () => {
    const junk = `X-Junk: ${'y'.repeat(300 * 1024)}\r\n`;
    const forged = (subject: string) => `${junk}From: <ceo@victim.test>\r\nSubject: ${subject}\r\n\r\nPay at once.\r\n`;
    const from = 'eve@none.test';
    for (const when of [
      { dmarc: 'fail' },
      { authenticated: false },
      { from: '*@victim.test' },
      { subject: '*large*' },
      { header: { 'X-Spam-Flag': 'YES' } },
    ]) {
      const { domain } = await world({ action: 'reject', when }, {});
      const to = `box@${domain}`;
      expect(await sendMail(running.smtp, { from, to }, forged('large')), JSON.stringify(when)).to.equal(REJECTED);
    }
    const { domain, ids } = await world({ action: 'discard', when: { subject: '*large*' } }, {});
    expect(await sendMail(running.smtp, { from, to: `box@${domain}` }, forged('large'))).to.match(/^250/);
    expect((await deliveriesOf(ids[0] ?? '')).map(({ state }: any) => state)).to.deep.equal(['held']);
    const open = await world({ when: { dmarc: 'pass' }, tags: ['passed'] }, { tags: ['rest'] });
    const before = postsOf(hook.requests).length;
    expect(await sendMail(running.smtp, { from, to: `box@${open.domain}` }, forged('large'))).to.match(/^250/);
    await until('the post', () => postsOf(hook.requests).length > before);
    const { msg } = eventsOf(postsOf(hook.requests).at(-1) as never)[0];
    expect(msg).to.deep.include({
      tags: ['rest'],
      dkim: { signed: true, valid: false },
      dmarc: { result: 'permerror', policy: null, aligned: false },
    });
    expect(msg.sender_auth).to.deep.include({ authenticated: false, domain: null, by: null });
  });

  it('never reject or discard because of unknown results', async () => {
    const { domain } = await world(
      { action: 'discard', when: { spam: 'spam' } },
      { action: 'reject', when: { virus: 'infected' } },
      { action: 'hold', when: { spam: 'unknown' } },
      { tags: ['scanned'] },
    );
    const to = `box@${domain}`;
    expect(await send(to, 'ham')).to.match(/^250/);
    const { msg } = await event('ham');
    expect(msg).to.deep.include({ tags: ['scanned'] });
    expect(msg.scan).to.include({ spam: 'ham', virus: 'clean' });
    const asked = rspamd.asked.length;
    expect(await send(to, 'spam', GTUBE)).to.match(/^250/);
    expect(rspamd.asked.length).to.equal(asked + 1);
    expect(await send(to, 'virus', EICAR)).to.equal(REJECTED);
    await rspamd.leave();
    await nobodyConnected(rspamd);
    expect(await send(to, 'spam while the scanner is away', GTUBE)).to.match(/^250/);
    const states = (await running.api('/inbound/deliveries', { domain })).map(({ state }: any) => state);
    expect(states.toSorted()).to.deep.equal(['delivered', 'dropped', 'held']);
    await rspamd.resume();
  });

  it('post to further URLs, each in its own format and independently', async () => {
    const other = await startReceiver();
    const { domain, ids } = await world({ also: [{ url: other.url, format: 'json', password: 'secret' }] });
    other.answer({ status: 500 });
    expect(await send(`box@${domain}`, 'for two URLs')).to.match(/^250/);
    await event('for two URLs');
    await until('a post to the other', () => postsOf(other.requests).length > 0);
    const route = ids[0] ?? '';
    const deliveries = await until('the result of the main URL', async () => {
      const all = await deliveriesOf(route);
      return all.some(({ state }: any) => state === 'delivered') && all;
    });
    expect(deliveries.map(({ route, url, state }: any) => [route, url, state]).toSorted()).to.deep.equal(
      [
        [route, hook.url, 'delivered'],
        [route, other.url, 'waiting'],
      ].toSorted(),
    );
    const [failed] = postsOf(other.requests);
    expect(failed?.headers['content-type']).to.equal('application/json');
    expect(failed?.headers['authorization']).to.match(/^Basic /);
    expect(new Set(deliveries.map(({ id }: any) => id)).size).to.equal(2);
    const listed = await running.api('/endpoints/list');
    expect(listed.find(({ url }: any) => url === other.url)?.routes).to.deep.equal([route]);
    expect(await running.api('/endpoints/info', { url: other.url })).to.deep.include({ routes: [route] });
    const key = await running.api('/inbound/route-key', { id: route, url: other.url });
    expect(key).to.include({ url: other.url });
    expect(key.auth_key).not.to.equal((await running.api('/inbound/route-key', { id: route })).auth_key);
    // Another main URL moves the mail of that one only.
    const moved = await startReceiver();
    await running.api('/inbound/update-route', { id: route, url: moved.url });
    const urls = (await deliveriesOf(route)).filter(({ state }: any) => state === 'waiting').map(({ url }: any) => url);
    expect(urls).to.deep.equal([other.url]);
    const [shown] = await running.api('/inbound/routes', { domain });
    expect(shown.also).to.deep.equal([
      {
        url: other.url,
        format: 'json',
        raw: true,
        attachments: 'auto',
        link_over: 0,
        facts: false,
        has_password: true,
      },
    ]);
    // Mail that waits for a URL that was removed gets nothing of the one that comes after it.
    await running.api('/inbound/update-route', { id: route, also: [] });
    await running.api('/inbound/update-route', {
      id: route,
      also: [{ url: moved.url, format: 'raw', password: 'other' }],
    });
    other.answer({ status: 200 });
    const seen = postsOf(other.requests).length;
    await running.api('/endpoints/retry', { url: other.url }).catch(() => undefined);
    await until('the next post', () => postsOf(other.requests).length > seen, 30_000);
    expect(postsOf(other.requests).at(-1)?.headers).not.to.have.property('authorization');
    await Promise.all([other.stop(), moved.stop()]);
  });

  it('post to further URLs that are pulled, too', async () => {
    const { domain } = await world({ also: [{ url: 'pull:archive', format: 'raw' }] });
    expect(await running.api('/inbound/pull', { url: 'pull:archive' })).to.deep.equal([]);
    expect(await send(`box@${domain}`, 'pulled and posted')).to.match(/^250/);
    await event('pulled and posted');
    const [mail] = await running.api('/inbound/pull', { url: 'pull:archive' });
    expect(Buffer.from(mail.body, 'base64').toString()).to.contain('Subject: pulled and posted');
    await running.api('/inbound/ack', { lease: mail.lease });
    expect((await deliveriesOf(mail.route)).map(({ state }: any) => state)).to.deep.equal(['delivered', 'delivered']);
  });

  it('are rejected if they could never match, or would lose mail', async () => {
    const when = { subject: 'a*', size: { over: 5 } };
    const { domain, ids } = await world({ when }, {});
    const add = (params: object) => refused({ domain, pattern: '*', url: hook.url, ...params });
    expect(await add({ when: { size: { over: 5 }, subject: ['A*'] } })).to.contain(
      `Route ${ids[0]} already has this pattern and these conditions`,
    );
    expect(await add({})).to.contain(`Route ${ids[1]} already has this pattern and takes its mail`);
    expect(await add({ action: 'reject', when: { spam: ['spam', 'unknown'] } })).to.contain('mail would be lost');
    expect(await add({ when: { sunject: 'x' } })).to.contain('"when"');
    expect(await add({ action: 'tag', when: { subject: 'x' } })).to.contain('Please enter the tags that it adds');
    expect(await add({ action: 'discard', when: { subject: 'x' }, also: [{ url: hook.url }] })).to.contain(
      'posts nothing: please omit also',
    );
    expect(await refused({ domain, pattern: 'x-*' })).to.contain('You must specify a url value');
  });

  it('show in test-route why each matched a mail or not', async () => {
    const { domain, ids } = await world(
      { action: 'tag', when: { sender: '*@good.test' }, tags: ['good'], priority: 9 },
      { action: 'hold', when: { subject: '*casino*', dmarc: 'fail' } },
      { pattern: 'sup*', when: { size: { under: 1000 } } },
      { pattern: 'other' },
      {},
    );
    const test = async (message: object | undefined, mailbox = 'support') => {
      const { route, routes, payload } = await running.api('/inbound/test-route', { domain, mailbox, message });
      return {
        hit: route?.id ?? null,
        tags: payload?.[0].msg.tags,
        results: routes.map(({ result, why }: any) => [result, why]),
      };
    };
    expect(await test({ sender: 'x@good.test', subject: 'hi', size: 10, dmarc: 'pass' })).to.deep.equal({
      hit: ids[2],
      tags: ['good'],
      results: [
        ['tags', 'Adds its tags; the next route is tried.'],
        ['conditions', 'Condition not met: subject, dmarc.'],
        ['hit', 'Accepts the mail.'],
        ['no match', 'The pattern does not match the mailbox.'],
        ['less specific', `Route ${ids[2]} is tried first and accepts the mail.`],
      ],
    });
    const casino = { sender: 'x@bad.test', subject: 'a casino', size: 2000 };
    expect((await test({ ...casino, dmarc: 'unknown' })).results.slice(0, 3)).to.deep.equal([
      ['conditions', 'Condition not met: sender.'],
      ['conditions', 'Unknown, so the condition is not met: dmarc.'],
      ['conditions', 'Condition not met: size.'],
    ]);
    const open = await test(casino);
    expect(open.hit).to.equal(null);
    expect(open.results[1]).to.deep.equal(['depends', 'Depends on: dmarc.']);
    expect(open.results[4]).to.deep.equal(['depends', 'Depends on whether an earlier route accepts the mail.']);
  });

  it('apply to send-raw as to SMTP', async () => {
    const { domain, ids } = await world(
      { action: 'reject', when: { subject: '*casino*' }, url: undefined },
      { tags: ['by API'] },
    );
    expect((await running.ask('/inbound/try-route', { id: ids[0] })).body.message).to.contain('posts nothing');
    expect((await running.ask('/inbound/route-key', { id: ids[0] })).body.message).to.contain('posts nothing there');
    const raw = (subject: string) => message(subject, 'Hi');
    const sent = (subject: string) =>
      running.api('/inbound/send-raw', { raw_message: raw(subject), to: [`box@${domain}`], mail_from: 'x@y.test' });
    expect(await sent('casino')).to.deep.equal([]);
    expect(await sent('by API')).to.have.length(1);
    expect((await event('by API')).msg.tags).to.deep.equal(['by API']);
  });
});
