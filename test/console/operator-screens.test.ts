import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { postern } from '../support/command.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

// What operators see of the host: its figures, its tasks, its settings, its log.

const program = chromium();
const MESSAGE = 'From: ann@sender.test\r\nSubject: Order\r\n\r\nHello\r\n';
/** Figures are read every ten seconds, and the page asks as often. */
const SAMPLES_MS = 60_000;

if (program !== undefined)
  describe("the operator's screens in a browser", function () {
    this.timeout(180_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program, {
        POSTERN_DELIVERY__RETRY_HOURS: '7',
        POSTERN_DELIVERY__OPEN_BREAKER_AFTER: '2',
      });
      for (const _ of [1, 2, 3]) await page.mail(MESSAGE);
    });
    after(() => page?.stop());

    const place = () => page.browser.evaluate('location.pathname + location.search');
    const titled = (title: string) =>
      `[...document.querySelectorAll('figure.plot')].find((one) => one.innerText.startsWith(${JSON.stringify(title)}))`;
    /** How many points of the drawing have a colour. */
    const drawn = (title: string) =>
      page.browser.evaluate(`(() => {
        const canvas = ${titled(title)}?.querySelector('canvas');
        if (!canvas) return 0;
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 3; i < data.length; i += 4) if (data[i] > 0) count++;
        return count;
      })()`);
    const table = async (title: string): Promise<string[][]> => {
      await page.browser.evaluate(`${titled(title)}.querySelector('details').open = true`);
      await until('the table', () => page.browser.evaluate(`${titled(title)}.querySelector('table') !== null`));
      return page.browser.evaluate(
        `[...${titled(title)}.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.innerText))`,
      );
    };

    describe('the start page', () => {
      it('plots what was taken in, with the same figures in a table', async () => {
        await page.open('/');
        const title = 'Taken in and refused';
        await until(
          'the mails in the figures',
          async () => {
            const [, ...rows] = await table(title);
            return rows.reduce((sum, [, taken = '']) => sum + (Number(taken) || 0), 0) === 3;
          },
          SAMPLES_MS,
        );
        const [head, ...rows] = await table(title);
        expect(head).to.deep.equal(['Time', 'Taken in', 'Refused']);
        expect(rows.length).to.be.within(59, 62);
        expect(rows.at(-1), 'an hour ago nothing is known').to.deep.equal([rows.at(-1)?.[0], '–', '–']);
        expect(await page.browser.evaluate(`${titled(title)}.innerText`)).to.match(
          /Taken in: [\d.]+ a minute\. 0 refusals in the last hour\./,
        );
        await page.shows('100 % of 3 POSTs in the last hour were answered with 2xx.');
        await page.shows('Nothing waits');
      });

      it('draws the curve where figures are, and nothing of it where there are none', async () => {
        // Blue is in the curve alone: axes and grid are grey.
        const blue = (title: string) =>
          page.browser.evaluate(`(() => {
            const canvas = ${titled(title)}.querySelector('canvas');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0 && data[i + 2] - data[i] > 60) count++;
            return count;
          })()`);
        await page.browser.prefer('light');
        await page.open('/');
        await until('the drawing', async () => (await drawn('Taken in')) > 0);
        expect(await blue('Taken in')).to.be.above(5);
        expect(await blue('Answers of webhooks'), 'it has no blue curve').to.equal(0);
      });

      it('draws again in the colours of the other scheme, and in the size of another window', async () => {
        await page.open('/');
        await until('the drawing', async () => (await drawn('Taken in')) > 0);
        const wide = await page.browser.evaluate(`${titled('Taken in')}.querySelector('canvas').clientWidth`);
        await page.open('/', PHONE);
        await until('the drawing', async () => (await drawn('Taken in')) > 0);
        const narrow = await page.browser.evaluate(`${titled('Taken in')}.querySelector('canvas').clientWidth`);
        expect(narrow).to.be.below(391).and.not.equal(wide);
      });

      it('loads the library that draws only with the first plot', async () => {
        const loaded = () =>
          page.browser.evaluate(
            `performance.getEntriesByType('resource').some(({ name }) => name.includes('/lib/uplot.js'))`,
          );
        await page.open('/mail');
        await page.shows('Order');
        expect(await loaded()).to.equal(false);
        await page.press('Now');
        await until('the drawing', async () => (await drawn('Taken in')) > 0);
        expect(await loaded()).to.equal(true);
      });

      it('says which endpoints of other accounts are down, and none twice', async () => {
        const hook = await startReceiver();
        hook.answer(500);
        try {
          await page.running.api('/inbound/add-route', { domain: 'in.test', pattern: 'down', url: hook.url });
          await page.mail(MESSAGE);
        } finally {
          await hook.stop();
        }
      });
    });
  });
