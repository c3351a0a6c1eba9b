import { expect } from 'chai';
import { openDatabase } from '../../src/composition/storage.ts';
import { ROLES, type Role } from '../../src/store/rows/people.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { chromium } from '../support/chromium.ts';
import { addTestPerson, PASSWORD } from '../support/console.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { testSettings } from '../support/daemon.ts';
import { createTestLog } from '../support/log.ts';
import { until } from '../support/until.ts';

// What each role finds: no link, no search and no screen is a dead end. And the first hour of somebody who came by a link.

const program = chromium();

/** The number of opened screens of one kind, such as of one message. */
const OF_A_KIND = 2;
/** What a dead end says. */
const DEAD_END = /No access|cannot open this page|Page not found|could not be displayed/;

if (program !== undefined)
  describe('the console as each role sees it, in a browser', function () {
    this.timeout(300_000);
    let page: ConsolePage;
    let store: Store;
    before(async () => {
      page = await startConsolePage(program);
      store = await openStore(await openDatabase(testSettings(page.running.dir, {}), createTestLog()));
      const account = (await store.accounts.one({ number: 1 }))?.id ?? '';
      for (const role of ROLES) await addTestPerson(store, role, role, role === 'operator' ? null : account);
      await page.mail('From: ann@sender.test\r\nSubject: One\r\n\r\nHello.');
      await page.running.api('/inbound/add-route', { domain: 'in.test', pattern: 'only', url: page.hook.url });
      page.hook.answer({ status: 503, body: 'down for now' });
      await page.mail('From: ann@sender.test\r\nSubject: Two\r\n\r\nHello.');
      await until('an attempt that failed', () => page.hook.requests.length >= 2);
      await page.running.api('/rejects/add', { email: 'gone@example.com' });
    });
    after(async () => {
      await store?.close();
      await page?.stop();
    });

    async function signIn(name: string): Promise<void> {
      await page.browser.evaluate(
        `fetch('/console/session', { method: 'DELETE', headers: { 'Content-Type': 'application/json', 'Postern-Console': '1' } }).then(() => 0)`,
      );
      await page.browser.open(`${page.running.base}/console/`, 1440, 900);
      await page.fill('Name', name);
      await page.fill('Password', PASSWORD);
      await page.press('Sign in');
      await until('the start page', () =>
        page.browser.evaluate(`document.querySelector('main h1')?.innerText === 'Overview'`),
      );
    }

    /** What is wrong with the screen that is shown; nothing if it is none. */
    async function faults(): Promise<string> {
      await until('the screen', () =>
        page.browser.evaluate(`document.querySelector('h1') !== null && document.querySelector('main .bars') === null`),
      );
      const text: string = await page.text();
      const alerts: string = await page.browser.evaluate(
        `[...document.querySelectorAll('main [role=alert]')].map((one) => one.innerText).join()`,
      );
      // 429: calls of the screen before have not ended yet, and the page waits. It would show an alert in the end.
      const failed: string = await page.browser.evaluate(
        `performance.getEntriesByType('resource').filter((one) => one.responseStatus >= 400 && one.responseStatus !== 429).map((one) => one.name + ' ' + one.responseStatus).join()`,
      );
      // A page that is not loaded anew keeps 250 of them and no more.
      await page.browser.evaluate('performance.clearResourceTimings()');
      return [DEAD_END.exec(text)?.[0], alerts, failed].filter(Boolean).join(' | ');
    }

    const links = (): Promise<string[]> =>
      page.browser.evaluate(
        `[...document.querySelectorAll('a[href^="/console"]')].map((one) => one.getAttribute('href'))`,
      );

    async function walk(role: Role): Promise<readonly string[]> {
      const seen = new Map<string, number>();
      const waiting = ['/console/'];
      const opened: string[] = [];
      for (let href = waiting.shift(); href !== undefined; href = waiting.shift()) {
        const { pathname, searchParams } = new URL(href, page.running.base);
        const kind = `${pathname.replace(/^(\/console\/[^/]+\/).+/, '$1')} ${[...searchParams.keys()].filter((one) => one !== 'account')}`;
        const count = seen.get(kind) ?? 0;
        if (count >= OF_A_KIND || opened.includes(href)) continue;
        seen.set(kind, count + 1);
        opened.push(href);
        await page.go(href.slice('/console'.length));
        expect(await faults(), `${role}: ${href}`).to.equal('');
        waiting.push(...(await links()));
      }
      return opened;
    }

    for (const role of ROLES)
      it(`shows ${role} only links and search results that open`, async () => {
        await signIn(role);
        const opened = await walk(role);
        expect(opened.length).to.be.at.least(3);
        const paths = new Map(opened.map((one) => [one.replace(/\?.*/, ''), one]));
        for (const from of paths.values()) {
          await page.go(from.slice('/console'.length));
          if (await page.browser.evaluate(`document.querySelector('#search') === null`)) continue;
          await page.browser.evaluate(`document.querySelector('#search').select()`);
          await page.browser.type('in');
          await page.browser.press('Enter');
          await until('the search', () => page.browser.evaluate(`location.search.includes('q=in')`));
          expect(await faults(), `${role}: search from ${from}`).to.equal('');
        }
      });

    it('shows a reader the status, and no message content', async () => {
      await signIn('reader');
      await page.open('/');
      expect(await faults()).to.equal('');
      const text = await page.text();
      expect(text)
        .to.match(/Accepting mail\.|All systems normal\./)
        .and.to.contain('Outbound')
        .and.to.contain('endpoints');
      expect(text).to.not.match(/ann@sender|box-1|Two/);
      expect(await page.browser.evaluate(`document.querySelector('.top .live') === null`)).to.equal(true);
      expect(await page.faults()).to.deep.equal([]);
    });

    describe('in the first hour', () => {
      it('offers a name and a password after the first sign-in by link', async () => {
        await page.enter();
        await page.shows('Set a name and a password');
        await page.press('Set a password\u2026');
        await page.fill('Name', 'first');
        await page.fill('New password', 'four unlikely words');
        await page.press('Save password');
        await page.shows('From now on, sign in as first');
        await page.press('Close');
        await until('no offer any more', () =>
          page.browser.evaluate(`!document.body.innerText.includes('Set a name and a password')`),
        );
      });

      it('asks for that password before it creates a key ten minutes later, in one dialog at a time', async () => {
        const person = await store.people.one({ name: 'first' });
        const [session] = await store.consoleSessions.many({ person: person?.id ?? '' });
        const createdAt = new Date(Date.now() - 11 * 60_000);
        await store.consoleSessions.change({ id: session?.id ?? '' }, { createdAt, provedAt: null });
        const open = (): Promise<string[]> =>
          page.browser.evaluate(`[...document.querySelectorAll('dialog[open] h2')].map((one) => one.innerText)`);
        await page.open('/keys');
        await page.press('Create key\u2026');
        await page.fill('Label (optional)', 'kept while it waits');
        await page.press('Create key');
        await until('the password', async () => (await open()).includes('Confirm your password'));
        expect(await open()).to.deep.equal(['Confirm your password']);
        await page.fill('Password', 'four unlikely words');
        await page.press('Confirm');
        await until('the key', async () => (await open()).includes('Key created'));
        expect(await open()).to.deep.equal(['Key created']);
        await page.press('Close');
        await page.shows('kept while it waits');
      });

      it('restores the waiting dialog if the password is not entered', async () => {
        const person = await store.people.one({ name: 'first' });
        for (const { id } of await store.consoleSessions.many({ person: person?.id ?? '' }))
          await store.consoleSessions.change({ id }, { createdAt: new Date(Date.now() - 11 * 60_000), provedAt: null });
        const open = (): Promise<string[]> =>
          page.browser.evaluate(`[...document.querySelectorAll('dialog[open] h2')].map((one) => one.innerText)`);
        await page.open('/keys');
        await page.press('Create key\u2026');
        await page.fill('Label (optional)', 'not made');
        await page.press('Create key');
        await until('the password', async () => (await open()).includes('Confirm your password'));
        await page.browser.press('Escape');
        await until('the form', async () => (await open()).join() === 'Create an API key');
        const label = await page.browser.evaluate(`document.querySelector('dialog[open] input').value`);
        expect(label).to.equal('not made');
        await page.browser.press('Escape');
        await until('no dialog', async () => (await open()).length === 0);
      });
    });
  });
