import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { freePort } from '../support/free-port.ts';
import { message } from '../support/mail.ts';
import { PATIENCE } from '../support/until.ts';

const program = chromium();

if (program !== undefined && mongoDriver)
  describe('the hosts of a store in a browser', function () {
    this.timeout(120_000 * PATIENCE);
    let page: ConsolePage;
    let env: Readonly<Record<string, string>>;
    let other: TestDaemon | undefined;
    before(async () => {
      env = { POSTERN_STORE__URL: (await mongoServer()).url(newDatabaseName()) };
      other = await startDaemon({ ...env, POSTERN_HOSTNAME: 'other.postern.test' });
      page = await startConsolePage(program, env);
    });
    after(async () => {
      await page?.stop();
      await other?.stop();
    });

    it('are listed, with those that do not answer; other screens say which host they are about', async () => {
      await page.open('/host');
      await page.shows('Hosts of this store');
      await page.shows('without 1 host that did not answer');
      await page.shows('other.postern.test');
      await page.shows('No answer');
      await page.open('/queue');
      await page.shows('1 other host of this store');
      await page.shows('Changes apply to all hosts');
      expect(await page.browser.evaluate(`document.querySelector('.this-host a').getAttribute('href')`)).to.match(
        /\/host/,
      );
    });

    it('are all changed by the operator, with the number of each, and a line for one that does not answer', async () => {
      const port = await freePort();
      const third = await startDaemon({
        ...env,
        POSTERN_HOSTNAME: 'third.postern.test',
        POSTERN_HTTP__LISTEN: `127.0.0.1:${port}`,
        POSTERN_HTTP__PEER_URL: `http://127.0.0.1:${port}`,
      });
      try {
        page.hook.answer({ status: 503 });
        await page.mail(message('here'));
        for (const subject of ['one', 'two'])
          await third.api('/inbound/send-raw', { raw_message: message(subject), to: ['box-1@in.test'] });
        await page.open('/queue');
        await page.press('Change by filter\u2026');
        await page.choose('Action', 'host/drop');
        await page.fill('Filter', '*');
        await page.press('Count');
        const shown = async () => {
          await page.shows('third.postern.test: 2 deliveries');
          await page.shows(': 1 delivery');
          await page.shows('other.postern.test has no http.peer_url; its mail is unchanged.');
        };
        await page.shows('3 deliveries (3 waiting)');
        await shown();
        expect(await page.faults()).to.deep.equal([]);
        await page.fill('Type 3 to confirm', '3');
        await page.press('Drop 3');
        await page.shows('Drop complete: 3 deliveries.');
        await shown();
        const left = await third.api('/inbound/deliveries', { state: 'waiting' });
        expect(left).to.deep.equal([]);
      } finally {
        await third.stop();
      }
    });
  });
