import { expect } from 'chai';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { createAccount } from '../../src/store/rows/accounts.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { chromium } from '../support/chromium.ts';
import { addTestPerson, createBrowser, PASSWORD } from '../support/console.ts';
import { type ConsolePage, LOOKS, PHONE, startConsolePage } from '../support/console-page.ts';
import { testSettings } from '../support/daemon.ts';
import { createTestLog } from '../support/log.ts';
import { until } from '../support/until.ts';

// The screen for who has mail here, who may see it, and who does.

const program = chromium();

if (program !== undefined)
  describe('accounts and people in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    let store: Store;
    let main = '';
    const parts = { clock: systemClock, ids: createIds(systemClock) };
    before(async () => {
      page = await startConsolePage(program);
      store = await openStore(await openDatabase(testSettings(page.running.dir, {}), createTestLog()));
      main = (await store.accounts.one({ number: 1 }))?.id ?? '';
    });
    after(async () => {
      await store?.close();
      await page?.stop();
    });

    const location = () => page.browser.evaluate('location.pathname + location.search');
    const rowOf = (text: string) =>
      page.browser.evaluate(
        `[...document.querySelectorAll('.rows > li')].find((one) => one.innerText.includes(${JSON.stringify(text)}))?.innerText`,
      );
    /** Presses a button in the row that has the text. */
    const pressIn = async (text: string, label: string) => {
      const button = `[...document.querySelectorAll('.rows > li')].find((one) => one.innerText.includes(${JSON.stringify(text)})) && [...[...document.querySelectorAll('.rows > li')].find((one) => one.innerText.includes(${JSON.stringify(text)})).querySelectorAll('button')].find((one) => one.innerText === ${JSON.stringify(label)})`;
      await until(`${label} of ${text}`, () => page.browser.evaluate(`Boolean(${button})`));
      await page.browser.evaluate(`(${button}).click()`);
    };
    const newBrowser = () => createBrowser(Number(new URL(page.running.base).port));
    const isOpen = () => page.browser.evaluate(`document.querySelector('dialog[open]') !== null`);

    it('show the mail of each account in the last day, and open the view of the account', async () => {
      await page.mail('From: ann@sender.test\r\nSubject: One\r\n\r\nHello.');
      await until('it is in the figures', async () => {
        await page.open('/accounts');
        return /1\s+received\s+1\s+delivered\s+0\s+failed/.test((await rowOf('main')) ?? '');
      });
      // An account that was made since the page was loaded can be chosen as well.
      const { id } = await createAccount(store, 'late & new', parts);
      await page.press('People');
      await page.press('Accounts');
      await page.press('late & new');
      await until('its start page', async () => (await location()) === `/console/?account=${id}`);
      expect(
        await page.browser.evaluate(`document.querySelector('.top select').selectedOptions[0].innerText`),
      ).to.equal('late & new');
    });

    it('load further rows with "More"', async () => {
      for (let n = 0; n < 52; n++) await createAccount(store, `many-${n}`, parts);
      await page.open('/accounts');
      expect(await rowOf('many-51')).to.equal(undefined);
      await page.press('More');
      await until('the others', async () => (await rowOf('many-51')) !== undefined);
      expect(
        await page.browser.evaluate(
          `[...document.querySelectorAll('main button')].some((one) => one.innerText === 'More')`,
        ),
      ).to.equal(false);
    });

    it('can be navigated by keyboard', async () => {
      await page.open('/accounts');
      await page.browser.press('j');
      await page.browser.press('j');
      await page.browser.press('Enter');
      const second = (await store.accounts.one({ number: 2 }))?.id;
      await until('the second account', async () => (await location()) === `/console/?account=${second}`);
    });

    it('invite a person with a link that is shown once and opens the console', async () => {
      await page.open('/accounts?show=people');
      await page.shows('No people yet');
      await page.press('Invite a person\u2026');
      await page.fill('Name', 'two words');
      await page.press('Create link');
      await page.shows('Please use at most 64 letters, digits');
      await page.fill('Name', 'Hal');
      await page.choose('Role', 'helper');
      await page.press('Create link');
      await page.shows('it is not shown again');
      const url: string = await page.browser.evaluate(`document.querySelector('.secret').innerText`);
      await page.shows('console.url');
      await page.press('Close');
      await until('the person', async () =>
        /hal\s+helper of main\s+no password yet[^]*no sessions/.test((await rowOf('hal')) ?? ''),
      );
      expect(await page.browser.evaluate(`document.body.innerText.includes(${JSON.stringify(url)})`)).to.equal(false);
      const browser = newBrowser();
      expect((await browser.press(new URL(url).pathname)).status).to.equal(303);
      expect((await browser.read('/console/me')).body.role).to.equal('helper');
    });

    it('do not ask for an account if the role covers all', async () => {
      await page.open('/accounts?show=people');
      await page.press('Invite a person\u2026');
      await page.fill('Name', 'ops');
      await page.choose('Role', 'operator');
      await until('the account is gone', () =>
        page.browser.evaluate(
          `![...document.querySelectorAll('dialog .label')].some((one) => one.innerText === 'Account')`,
        ),
      );
      await page.press('Create link');
      await page.shows('Link for ops');
      await page.press('Close');
      await until('the person', async () => ((await rowOf('ops')) ?? '').includes('operator of all accounts'));
    });

    it('create a new link for a person, and remove one after a confirmation', async () => {
      await page.open('/accounts?show=people');
      await pressIn('hal', 'New link');
      await page.shows('Link for hal');
      await page.browser.press('Escape');
      await until('the dialog to close', async () => !(await isOpen()));
      await pressIn('hal', 'Remove\u2026');
      await page.shows('Their sessions and links end immediately.');
      await page.press('Remove person');
      await until('the person is gone', async () => (await rowOf('hal')) === undefined);
      expect(await store.people.one({ name: 'hal' })).to.equal(undefined);
      // Removed by somebody else meanwhile: in the words of the API.
      await pressIn('ops', 'Remove\u2026');
      await store.people.remove({ name: 'ops' });
      await page.press('Remove person');
      await page.shows('There is no person named ops');
      expect(await page.browser.evaluate('document.body.innerText')).to.not.contain('Validation error');
      await page.browser.press('Escape');
    });

    it('list the sessions, mark the current one, and end another one', async () => {
      await addTestPerson(store, 'ann', 'owner', main);
      const browser = newBrowser();
      await browser.enter('ann');
      await page.open('/accounts?show=sessions');
      expect(await rowOf('This session')).to.match(
        /^operator[^]*operator of all accounts[^]*by link from 127\.0\.0\.1/,
      );
      expect(
        await page.browser.evaluate(
          `[...document.querySelectorAll('.people > li')].filter((one) => one.querySelector('button') === null).length`,
        ),
      ).to.equal(1);
      expect(await rowOf('ann')).to.match(/owner of main[^]*by password from 127\.0\.0\.1[^]*ends in 1[12] h/);
      await pressIn('ann', 'End\u2026');
      await page.shows('They have to sign in again.');
      await page.press('End session');
      await until('the session is gone', async () => (await rowOf('ann')) === undefined);
      expect((await browser.read('/console/me')).status).to.equal(401);
    });

    it('do not offer operators to remove themselves', async () => {
      await addTestPerson(store, 'olga', 'operator');
      await page.browser.evaluate(
        `fetch('/console/session', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Postern-Console': '1' }, body: JSON.stringify({ name: 'olga', password: ${JSON.stringify(PASSWORD)} }) }).then(({ status }) => status)`,
      );
      await page.open('/accounts?show=people');
      expect(await rowOf('olga')).to.match(/^olga\s+You\s+operator of all accounts[^]*New link$/);
      expect(await rowOf('ann')).to.contain('Remove\u2026');
      await page.enter();
    });

    it('are for operators only', async () => {
      await page.open('/accounts?show=people');
      await pressIn('ann', 'New link');
      await page.shows('Link for ann');
      await page.enter(await page.browser.evaluate(`document.querySelector('.secret').innerText`));
      await page.open('/');
      expect(await page.browser.evaluate(`document.querySelector('.rail').innerText`)).to.not.contain('Accounts');
      for (const show of ['', 'people', 'sessions']) {
        await page.open(`/accounts?show=${show}`);
        await page.shows('Owners cannot open this page.');
        expect(await page.browser.evaluate(`document.querySelectorAll('.rows > li').length`)).to.equal(0);
      }
      await page.enter();
    });

    for (const [name, path] of Object.entries({
      accounts: '/accounts',
      people: '/accounts?show=people',
      sessions: '/accounts?show=sessions',
    })) {
      for (const [scheme, size] of LOOKS)
        it(`${name} have no accessibility violations (axe), in ${scheme} colours at ${size[0]} px`, async () => {
          await page.browser.prefer(scheme);
          await page.open(path, size);
          expect(await page.faults()).to.deep.equal([]);
          expect(await page.fits()).to.equal(true);
          if (size === PHONE) {
            await page.browser.resize(320, 700);
            expect(await page.fits(), 'at 320 px').to.equal(true);
          }
        });
    }

    it('have no accessibility violations (axe) in the form and the link', async () => {
      for (const scheme of ['light', 'dark'] as const) {
        await page.browser.prefer(scheme);
        await page.open('/accounts?show=people', PHONE);
        await page.press('Invite a person\u2026');
        await until('the form', isOpen);
        expect(await page.faults()).to.deep.equal([]);
        await page.browser.press('Escape');
        await until('it is closed', async () => !(await isOpen()));
        await pressIn('ann', 'New link');
        await until('the link', isOpen);
        expect(await page.faults()).to.deep.equal([]);
        expect(await page.fits()).to.equal(true);
      }
    });
  });
