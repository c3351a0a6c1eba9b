import { expect } from 'chai';
import { openDatabase } from '../../src/composition/storage.ts';
import { totp } from '../../src/console/second-factor.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { chromium } from '../support/chromium.ts';
import { addTestPerson, PASSWORD } from '../support/console.ts';
import { type ConsolePage, LOOKS, startConsolePage } from '../support/console-page.ts';
import { testSettings } from '../support/daemon.ts';
import { createTestLog } from '../support/log.ts';
import { message } from '../support/mail.ts';
import { until } from '../support/until.ts';

// How a person signs in with a second factor, and is asked again before what matters.

const program = chromium();

const codeOf = (secret: string, steps = 0) => totp(secret, Math.floor(Date.now() / 30_000) + steps);

if (program !== undefined)
  describe('signing in, in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    let store: Store;
    let secret = '';
    let recovery: readonly string[] = [];
    before(async () => {
      page = await startConsolePage(program);
      store = await openStore(await openDatabase(testSettings(page.running.dir, {}), createTestLog()));
      await addTestPerson(store, 'ann', 'owner', (await store.accounts.one({ number: 1 }))?.id ?? '');
    });
    after(async () => {
      await store?.close();
      await page?.stop();
    });

    const menu = () => page.browser.evaluate(`document.querySelector('.menu summary').click()`);
    const location = () => page.browser.evaluate('location.pathname + location.search');
    const shown = () => page.browser.evaluate(`document.querySelector('.secret').innerText`);
    const focused = () => page.browser.evaluate(`document.activeElement.closest('label')?.innerText ?? ''`);
    async function signOut() {
      await menu();
      await page.press('Sign out');
      await page.shows('No password, or forgot it?');
    }
    async function signIn() {
      await page.fill('Name', 'ann');
      await page.fill('Password', PASSWORD);
      await page.press('Sign in');
    }
    /** No screen of this state may be hard to use for anybody. */
    async function isFitForAll(what: string) {
      for (const [scheme] of LOOKS) {
        await page.browser.prefer(scheme);
        expect(await page.faults(), `${what}, ${scheme}`).to.deep.equal([]);
      }
    }

    it('needs only a password at first', async () => {
      await page.open('/');
      await signOut();
      await signIn();
      await page.shows('Overview');
    });

    it('does not show the next person the previous search', async () => {
      await page.mail(message('For two'));
      await page.open('/mail?q=For+two');
      await page.press('For two');
      await page.shows('Timeline');
      await signOut();
      await signIn();
      await page.shows('Timeline');
      await page.browser.press('Escape');
      await until('the list', async () => (await location()) === '/console/mail');
    });

    it('sets up a second factor: a key for the app, a code, and recovery codes that are shown once', async () => {
      await menu();
      await page.press('Two-factor authentication\u2026');
      await page.press('Set up');
      await page.shows('Add this key to your authenticator app');
      secret = (await shown()).replaceAll(' ', '');
      await isFitForAll('the key');
      await page.fill('Code', '000000');
      await page.press('Turn on');
      await page.shows('Wrong code.');
      await page.fill('Code', codeOf(secret));
      await page.press('Turn on');
      await page.shows('Save these recovery codes');
      recovery = (await shown()).split('\n');
      expect(recovery).to.have.length(10);
      await isFitForAll('the recovery codes');
      await page.press('I have saved them');
      await menu();
      await page.press('Two-factor authentication\u2026');
      await page.shows('You have 10 recovery codes left');
      await page.browser.press('Escape');
    });

    it('asks for a code from then on, with the field focused, and reports a wrong one', async () => {
      await page.open('/');
      await signOut();
      await signIn();
      await page.shows('The 6-digit code from your authenticator app');
      await until('the cursor', async () => (await focused()).startsWith('Code'));
      await isFitForAll('the field for the code');
      await page.browser.type('000000');
      await page.press('Sign in');
      await page.shows('Wrong or used code.');
      await page.fill('Code', codeOf(secret, 1));
      await page.press('Sign in');
      await page.shows('Overview');
    });

    it('asks for the password again before it creates a key', async () => {
      const [session] = await store.consoleSessions.many({ by: 'password' }, { sort: '-until' });
      const earlier = new Date(Date.now() - 20 * 60_000);
      await store.consoleSessions.change({ id: session?.id ?? '' }, { createdAt: earlier });
      await page.open('/keys');
      await page.press('Create key\u2026');
      await page.fill('Label (optional)', 'shop');
      await page.press('Create key');
      await page.shows('Enter your password again to do this.');
      await isFitForAll('the question');
      await page.fill('Password', 'wrong password');
      await page.fill('Code', recovery[0] ?? '');
      await page.press('Confirm');
      await page.shows('Wrong name or password.');
      await page.fill('Password', PASSWORD);
      await page.press('Confirm');
      await page.shows('not shown again');
      expect(await store.consoleSessions.many({})).to.have.length.above(0);
    });

    it('cancels the call when the prompt is cancelled', async () => {
      const [session] = await store.consoleSessions.many({ by: 'password' }, { sort: '-until' });
      await store.consoleSessions.change({ id: session?.id ?? '' }, { provedAt: null });
      const before = (await page.running.api('/keys/list')).length;
      await page.open('/keys');
      await page.press('Create key\u2026');
      await page.fill('Label (optional)', 'never');
      await page.press('Create key');
      await page.shows('Confirm your password');
      await page.browser.press('Escape');
      await until('the question to go', async () =>
        page.browser.evaluate(`!document.body.innerText.includes('Confirm your password')`),
      );
      await page.shows('Enter your password again to do this.');
      expect(await page.running.api('/keys/list')).to.have.length(before);
    });
  });
