import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { message } from '../support/mail.ts';
import { until } from '../support/until.ts';

const program = chromium();

if (program !== undefined)
  describe('the queue of the host in a browser', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program);
    });
    after(() => page?.stop());

    const waiting = async () => (await page.running.api('/inbound/deliveries', { state: 'waiting' })).length;

    it('shows that nothing is waiting', async () => {
      await page.open('/queue');
      await page.shows('The queue is empty');
    });

    it('shows waiting mail by age, for an endpoint, a destination or an account', async () => {
      page.hook.answer({ status: 503 });
      for (const subject of ['one', 'two', 'three']) await page.mail(message(subject));
      await until('what waits', async () => (await waiting()) === 3);
      await page.open('/queue');
      await page.shows('3 deliveries waiting');
      const rows = () =>
        page.browser.evaluate(
          `[...document.querySelectorAll('.ages tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))`,
        );
      const [[name, account, , ...figures]] = await rows();
      expect(name).to.equal(page.hook.url.replace('http://', ''));
      expect([account, ...figures.slice(0, 2)]).to.deep.equal(['main', '3', '3']);
      await page.open('/queue?by=account');
      await until('the account', async () => (await rows())[0]?.[0] === 'main');
    });

    it('pauses and resumes an endpoint, after showing the number of deliveries', async () => {
      await page.open('/queue');
      await page.press('Change\u2026');
      await choose('host/pause');
      await page.shows('1 endpoint, with 3 deliveries waiting');
      await page.press('Pause 1');
      await page.shows('Pause complete: 1 endpoint.');
      await page.press('Close');
      await page.shows('Paused, resumes in');
      await page.press('Change\u2026');
      await choose('host/resume');
      await page.press('Resume 1');
      await page.shows('Resume complete: 1 endpoint.');
    });

    it('drops only the counted deliveries, after the number is typed', async () => {
      await page.open('/queue');
      await page.press('Change by filter\u2026');
      await choose('host/drop');
      await page.fill('Filter', '*');
      await page.press('Count');
      await page.shows('3 deliveries (3 waiting). They will not be delivered');
      const locked = () =>
        page.browser.evaluate(`[...document.querySelectorAll('dialog button.danger')].some((one) => one.disabled)`);
      expect(await locked()).to.equal(true);
      await page.fill('Type 3 to confirm', '2');
      expect(await locked()).to.equal(true);
      await page.fill('Type 3 to confirm', '3');
      await page.mail(message('came meanwhile'));
      await until('the fourth', async () => (await waiting()) === 4);
      await page.press('Drop 3');
      await page.shows('4 deliveries match now (limit 3); review and retry');
      expect(await waiting()).to.equal(4);
    });

    it('retries waiting mail now, and names the unknown word of a query', async () => {
      await page.open('/queue');
      await page.press('Change by filter\u2026');
      await page.fill('Filter', 'colour:red');
      await page.press('Count');
      await page.shows('colour');
      await page.fill('Filter', 'kind:inbound');
      await page.press('Count');
      await page.shows('4 deliveries. They are retried now');
      // Not before: a retry of its own would deliver one of them.
      page.hook.answer({ status: 200 });
      await page.press('Retry 4 now');
      await page.shows('Retry complete: 4 deliveries.');
      await until('the posts', async () => (await waiting()) === 0);
      await until('it among the actions', async () => {
        const { actions } = await page.running.api('/actions/list');
        return actions[0].what === 'retried' && actions[0].count === 4;
      });
    });

    it('is accessible in both colour schemes and on a telephone', async () => {
      page.hook.answer({ status: 503 });
      await page.mail(message('four'));
      await until('what waits', async () => (await waiting()) === 1);
      for (const scheme of ['light', 'dark'] as const) {
        await page.browser.prefer(scheme);
        for (const size of [DESK, PHONE, [320, 640] as const]) {
          await page.open('/queue', size);
          await page.shows('1 delivery waiting');
          expect(await page.fits(), size.join()).to.equal(true);
          await page.press('Change by filter\u2026');
          expect(await page.faults(), `${scheme} ${size.join()}`).to.deep.equal([]);
        }
      }
      await page.browser.prefer('light');
    });

    /** Chooses what to do in the dialog. */
    async function choose(operation: string): Promise<void> {
      await until('the choice', () => page.browser.evaluate(`document.querySelector('dialog select') !== null`));
      await page.browser.evaluate(
        `(() => { const one = document.querySelector('dialog select'); one.value = ${JSON.stringify(operation)}; one.dispatchEvent(new Event('change', { bubbles: true })); })()`,
      );
    }
  });
