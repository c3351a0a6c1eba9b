import { expect } from 'chai';
import { openDatabase } from '../../src/composition/storage.ts';
import { urlId, urlKey } from '../../src/store/rows/counters.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { addTestPerson, type Browser, createBrowser, openLive } from '../support/console.ts';
import { startDaemon, type TestDaemon, testSettings } from '../support/daemon.ts';
import { createTestLog } from '../support/log.ts';
import { sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

// What people who may not see settings, or mail, find in what they may ask.

/** What stands in URLs and mails here, and must not be found by those who may not see it. */
const PASSWORD = 'pass%2Fw0rd-of-the-url';
const TOKEN = 'token-of-the-query';
const SUBJECT = 'subject-of-the-mail';
const SENDER = 'sender@mail.test';
const BOX = 'recipient-box';

describe('the console as each role sees it', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let hook: Receiver;
  let store: Store;
  let account = '';
  let url = '';
  let delivery = '';
  const browsers: Record<string, Browser> = {};
  before(async () => {
    running = await startDaemon({ POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32' });
    hook = await startReceiver();
    store = await openStore(await openDatabase(testSettings(running.dir, {}), createTestLog()));
    account = (await store.accounts.one({ number: 1 }))?.id ?? '';
    const { host } = new URL(hook.url);
    url = `http://user:${PASSWORD}@${host}/hooks/mail?key=${TOKEN}`;
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: `${BOX}*`, url });
    await running.api('/webhooks/add', { url: `${url}&events=1` });
    for (const role of ['owner', 'helper', 'reader'] as const) {
      await addTestPerson(store, role, role, account);
      browsers[role] = createBrowser(Number(new URL(running.base).port));
      await browsers[role].enter(role);
    }
    hook.answer({ status: 200, body: `Stored ${SUBJECT} for ${BOX}` });
    const link = `https://shop.test/offer?key=${TOKEN}`;
    const id = urlId(account, urlKey(link));
    await store.urls.insert({ id, account, url: link, lastHour: new Date(), sent: 1, clicks: 1, uniqueClicks: 1 });
    await mailTo(`${BOX}-1@in.test`);
    await until('it is posted', async () => {
      const { mails } = await running.api('/inbound/search', { query: 'state:delivered' });
      delivery = mails[0]?.id ?? '';
      return delivery !== '';
    });
  });
  after(async () => {
    await store?.close();
    await running?.stop();
    await hook?.stop();
  });

  const mailTo = (to: string) =>
    sendMail(running.smtp, { from: SENDER, to }, `From: <${SENDER}>\r\nSubject: ${SUBJECT}\r\n\r\nHello.`);

  /** Everything that a role can ask, with what could be asked for. */
  async function allAnswers(role: string): Promise<[path: string, text: string][]> {
    const browser = browsers[role];
    const { body, text } = (await browser?.read('/console/me')) ?? {};
    const answers: [string, string][] = [['me', text ?? '']];
    const shown = (await browser?.write('/console/call/endpoints/list'))?.body.map((one: any) => one.url) ?? [];
    for (const path of body.calls as string[]) {
      if (/add|delete|update|send|rotate|pause|drop|revoke|pull|tap/.test(path)) continue;
      for (const params of [
        {},
        { id: delivery },
        { id: url },
        { query: `url:${url}` },
        ...shown.map((one: string) => ({ url: one, query: `url:${one}`, dry_run: true })),
        { url, address: SENDER, tag: url, name: url, domain: url, email: url },
      ]) {
        const reply = await browser?.write(`/console/call/${path}`, params);
        answers.push([`${path} ${JSON.stringify(params)}`, reply?.text ?? '']);
      }
    }
    return answers;
  }

  it('hides user and query of every URL from roles that may not see settings, in records and in errors', async () => {
    for (const role of ['helper', 'reader']) {
      const answers = await allAnswers(role);
      expect(
        answers.some(([, text]) => text.includes('/hooks/mail?hidden=')),
        role,
      ).to.equal(true);
      const told = answers.filter(([asked, text]) => {
        const known = asked.includes(TOKEN) ? '' : text;
        return known.includes(PASSWORD) || known.includes(decodeURIComponent(PASSWORD)) || known.includes(TOKEN);
      });
      expect(told, role).to.deep.equal([]);
    }
    const seen = await allAnswers('owner');
    expect(seen.some(([, text]) => text.includes(url))).to.equal(true);
    expect(seen.some(([, text]) => text.includes('hidden='))).to.equal(false);
  });

  it('accepts a URL as it was shown: for an endpoint, in searches, and for a replay', async () => {
    for (const role of ['helper', 'reader']) {
      const { body: listed } = (await browsers[role]?.write('/console/call/endpoints/list')) ?? {};
      expect(listed.map((one: any) => one.url.replace(/hidden=[\w-]+$/, ''))).to.deep.equal([
        `${hook.url.replace(/\/[^/]*$/, '')}/hooks/mail?`,
        `${hook.url.replace(/\/[^/]*$/, '')}/hooks/mail?`,
      ]);
      for (const { url: shown } of listed) {
        const { status, body } = (await browsers[role]?.write('/console/call/endpoints/info', { url: shown })) ?? {};
        expect([status, body.url], role).to.deep.equal([200, shown]);
      }
    }
    const { body: found } = (await browsers['helper']?.write('/console/call/inbound/search', { query: '' })) ?? {};
    const shown = found.mails[0].url;
    const again = await browsers['helper']?.write('/console/call/inbound/search', { query: `url:${shown}` });
    expect(again?.body.mails.map((one: any) => one.id)).to.deep.equal([delivery]);
    const counted = await browsers['helper']?.write('/console/call/inbound/causes', { query: `url:${shown}` });
    expect(counted?.body.count).to.equal(1);
  });

  it('rejects a made-up URL, or one shown to another account', async () => {
    const [shown = ''] =
      (await browsers['reader']?.write('/console/call/endpoints/list'))?.body.map((one: any) => one.url) ?? [];
    for (const wrong of [
      `${shown}A`,
      shown.replace('/hooks/', '/others/'),
      shown.replace(/hidden=..../, 'hidden=AAAA'),
      shown.replace(/hidden=.*/, 'hidden=AAAA'),
      shown.replace('http://', 'http://evil.test/'),
    ]) {
      const reply = await browsers['reader']?.write('/console/call/endpoints/info', { url: wrong });
      expect([reply?.status, reply?.body.name], wrong).to.deep.equal([404, 'Unknown_Endpoint']);
    }
  });

  it('shows a reader no details of single mails: no sender, recipient, subject or endpoint answer', async () => {
    for (const [asked, text] of await allAnswers('reader')) {
      const told = [SENDER, SUBJECT, BOX].filter((one) => text.includes(one) && !asked.includes(one));
      expect(told, asked).to.deep.equal([]);
    }
    const { body: info } = (await browsers['owner']?.write('/console/call/endpoints/info', { url })) ?? {};
    expect(JSON.stringify(info.answers)).to.contain(BOX);
  });

  it('has no feed for a reader, and one without secrets for a helper, which ends with the role', async () => {
    for (const topics of ['mail', 'refused', 'mail,refused', 'mail&account=x', '']) {
      const reply = await browsers['reader']?.read(`/console/live?topics=${topics}`);
      expect([reply?.status, reply?.body.name], topics).to.deep.equal([403, 'Not_Allowed']);
    }
    const port = Number(new URL(running.base).port);
    const live = await openLive(port, browsers['helper']?.cookie(), 'topics=mail,refused');
    await mailTo(`${BOX}-2@in.test`);
    await until('it is shown', () => live.of('mail').at(-1)?.data.mail.state === 'delivered');
    const told = JSON.stringify(live.events);
    expect(told).to.contain(SUBJECT).and.to.contain('?hidden=');
    expect(told).to.not.contain(TOKEN);
    expect(told).to.not.contain('w0rd-of');
    await store.people.change({ name: 'helper' }, { role: 'reader' });
    await until('the feed has ended', live.ended, 40_000);
    expect(live.of('end')).to.have.length(1);
    expect((await browsers['helper']?.read('/console/live?topics=mail'))?.status).to.equal(403);
  });
});
