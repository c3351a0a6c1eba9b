import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { freePort } from '../support/free-port.ts';
import { message } from '../support/mail.ts';
import { PATIENCE, until } from '../support/until.ts';

const program = chromium();

if (program !== undefined && mongoDriver)
  describe('the hosts of a store in a browser', function () {
    this.timeout(120_000 * PATIENCE);
    let page: ConsolePage;
    let env: Readonly<Record<string, string>>;
    let other: TestDaemon | undefined;
    let third: TestDaemon;
    let port: number;
    const startThird = () =>
      startDaemon({
        ...env,
        POSTERN_HOSTNAME: 'third.postern.test',
        POSTERN_CONSOLE__ENABLED: 'false',
        POSTERN_HTTP__LISTEN: `127.0.0.1:${port}`,
        POSTERN_HTTP__PEER_URL: `http://127.0.0.1:${port}`,
      });
    before(async () => {
      env = { POSTERN_STORE__URL: (await mongoServer()).url(newDatabaseName()) };
      port = await freePort();
      other = await startDaemon({ ...env, POSTERN_HOSTNAME: 'other.postern.test' });
      page = await startConsolePage(program, env);
      third = await startThird();
      page.hook.answer({ status: 503 });
      await page.mail(message('here'));
      for (const subject of ['one', 'two'])
        await third.api('/inbound/send-raw', { raw_message: message(subject), to: ['box-1@in.test'] });
    });
    const chosen = () => page.browser.evaluate(`document.querySelector('.chips select')?.value`);
    after(async () => {
      await page?.stop();
      await third?.stop();
      await other?.stop();
    });

    it('are listed, with those that do not answer', async () => {
      await page.open('/host');
      await page.shows('3 deliveries waiting on all hosts, not counting 1 host that did not answer.');
      await page.shows('other.postern.test');
      await page.shows('No answer');
      expect(await page.faults()).to.deep.equal([]);
    });

    it('are summed up on the queue, the overview and the accounts, and named above if they do not answer', async () => {
      await page.open('/queue');
      await page.shows('3 deliveries waiting on all hosts, oldest');
      await page.shows('Not included: other.postern.test.');
      await page.go('/');
      await page.shows('Last hour on all hosts');
      await page.shows('3 deliveries waiting, oldest');
      await page.shows('other.postern.test has no http.peer_url.');
      await page.go('/accounts');
      await page.shows('Mail of the last 24 hours on all hosts.');
      await until('the mail of all', async () => /3\s+received[^]*3\s+waiting/i.test(await page.text()));
    });

    it('show mail that another host accepts in an open list', async () => {
      await page.open('/mail');
      await page.shows('here');
      await third.api('/inbound/send-raw', { raw_message: message('afterwards'), to: ['box-1@in.test'] });
      // The page reads the mail of other hosts every 15 seconds.
      await until('it is listed', async () => (await page.text()).includes('afterwards'), 60_000 * PATIENCE);
    });

    it('are each shown as chosen: status, settings and log, with the activity of all', async () => {
      const task = `document.querySelector('[data-row=keep-time] button')`;
      await page.open('/host');
      await page.choose('Host', 'third.postern.test');
      await until('its facts', async () => /Name\s+third\.postern\.test[^]*Waiting\s+3,/.test(await page.text()));
      await until('its tasks', () => page.browser.evaluate(`${task} !== null`));
      await page.browser.evaluate(`${task}.click()`);
      await page.shows('keep-time was started');
      await page.press('Settings');
      await page.fill('Filter', 'hostname');
      await page.shows('third.postern.test\n');
      expect(await chosen()).to.equal('third.postern.test');
      await page.press('Log');
      await page.shows('delivery.deferred');
      expect(await page.faults()).to.deep.equal([]);
      await page.press('Host activity');
      await page.shows('operator \u00b7 third.postern.test');
    });

    it('lead back to this host from one that does not answer, or that nobody knows', async () => {
      for (const [screen, name, says] of [
        ['', 'other.postern.test', 'other.postern.test has no http.peer_url. Set it there, and restart that host'],
        ['/settings', 'other.postern.test', 'other.postern.test has no http.peer_url'],
        ['/log', 'nobody.test', 'There is no host nobody.test'],
      ] as const) {
        await page.open(`/host${screen}?host=${name}`);
        await page.shows(says);
        expect(await chosen()).to.equal(name);
        expect(await page.text()).to.not.contain('Listeners');
        await page.press(' (this host)');
        await until('this host', async () => (await chosen()) === 'in.postern.test');
        expect(await page.text()).to.not.contain(says);
      }
    });

    it('are all changed by the operator, with the number of each, and a line for one that does not answer', async () => {
      await page.open('/queue');
      await page.press('Change by filter\u2026');
      await page.choose('Action', 'host/drop');
      await page.fill('Filter', '*');
      await page.press('Count');
      const shown = async () => {
        await page.shows('third.postern.test: 3 deliveries');
        await page.shows(': 1 delivery');
        await page.shows('other.postern.test has no http.peer_url; its mail is unchanged.');
      };
      await page.shows('4 deliveries (4 waiting)');
      await shown();
      expect(await page.faults()).to.deep.equal([]);
      await page.fill('Type 4 to confirm', '4');
      await page.press('Drop 4');
      await page.shows('Drop complete: 4 deliveries.');
      await shown();
      const left = await third.api('/inbound/deliveries', { state: 'waiting' });
      expect(left).to.deep.equal([]);
    });
  });
