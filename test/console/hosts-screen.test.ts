import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { PATIENCE } from '../support/until.ts';

const program = chromium();

if (program !== undefined && mongoDriver)
  describe('the hosts of a store in a browser', function () {
    this.timeout(120_000 * PATIENCE);
    let page: ConsolePage;
    let other: TestDaemon | undefined;
    before(async () => {
      const env = { POSTERN_STORE__URL: (await mongoServer()).url(newDatabaseName()) };
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
      expect(await page.browser.evaluate(`document.querySelector('.this-host a').getAttribute('href')`)).to.match(
        /\/host/,
      );
    });
  });
