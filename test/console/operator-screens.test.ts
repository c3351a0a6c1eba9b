import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { postern } from '../support/command.ts';
import { type ConsolePage, LOOKS, PHONE, startConsolePage } from '../support/console-page.ts';
import { createCaller } from '../support/daemon.ts';
import { sendMail } from '../support/mail.ts';
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
        POSTERN_INBOUND__OWNERSHIP: 'first',
      });
      for (const _ of [1, 2, 3]) await page.mail(MESSAGE);
    });
    after(() => page?.stop());

    const env = () => ({
      POSTERN_DATA_DIR: page.running.dir,
      POSTERN_HTTP__LISTEN: new URL(page.running.base).host,
    });
    const location = () => page.browser.evaluate('location.pathname + location.search');
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
      await until('the plot', () => page.browser.evaluate(`${titled(title)} !== undefined`));
      await page.browser.evaluate(`${titled(title)}.querySelector('details').open = true`);
      await until('the table', () => page.browser.evaluate(`${titled(title)}.querySelector('table') !== null`));
      return page.browser.evaluate(
        `[...${titled(title)}.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.innerText))`,
      );
    };

    describe('the start page', () => {
      it('plots received mail, with the same figures in a table', async () => {
        await page.open('/');
        const title = 'Received and refused';
        await until(
          'the mails in the figures',
          async () => {
            const [, ...rows] = await table(title);
            return rows.reduce((sum, [, taken = '']) => sum + (Number(taken) || 0), 0) === 3;
          },
          SAMPLES_MS,
        );
        const [head, ...rows] = await table(title);
        expect(head).to.deep.equal(['Time', 'Received', 'Refused']);
        expect(rows.length).to.be.within(59, 62);
        expect(rows.at(-1), 'an hour ago nothing is known').to.deep.equal([rows.at(-1)?.[0], '–', '–']);
        expect(await page.browser.evaluate(`${titled(title)}.innerText`)).to.match(
          /Received: [\d.,]+ per minute\. 0 refusals in the last hour\./,
        );
        await page.shows('3 POSTs in the last hour, 100% successful.');
        await page.shows('The queue is empty');
      });

      it('draws the curve only where there are figures', async () => {
        // Blue is in the curve alone: axes and grid are grey.
        const blue = (title: string) =>
          page.browser.evaluate(`(() => {
            const canvas = ${titled(title)}.querySelector('canvas');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i + 2] - data[i] > 60) count++;
            return count;
          })()`);
        await page.browser.prefer('light');
        await page.open('/');
        await until('the drawing', async () => (await drawn('Received')) > 0);
        expect(await blue('Received')).to.be.above(5);
        expect(await blue('Webhook responses'), 'it has no blue curve').to.equal(0);
      });

      it('redraws when the colour scheme or the window size changes', async () => {
        await page.open('/');
        await until('the drawing', async () => (await drawn('Received')) > 0);
        const wide = await page.browser.evaluate(`${titled('Received')}.querySelector('canvas').clientWidth`);
        await page.open('/', PHONE);
        await until('the drawing', async () => (await drawn('Received')) > 0);
        const narrow = await page.browser.evaluate(`${titled('Received')}.querySelector('canvas').clientWidth`);
        expect(narrow).to.be.below(391).and.not.equal(wide);
      });

      it('loads the plotting library with the first plot', async () => {
        const loaded = () =>
          page.browser.evaluate(
            `performance.getEntriesByType('resource').some(({ name }) => name.includes('/lib/uplot.js'))`,
          );
        await page.open('/mail');
        await page.shows('Order');
        expect(await loaded()).to.equal(false);
        await page.press('Overview');
        await until('the drawing', async () => (await drawn('Received')) > 0);
        expect(await loaded()).to.equal(true);
      });

      it('has a row for a failing endpoint of another account, one for each of its own, and a link to both', async () => {
        const hook = await startReceiver();
        try {
          const [{ key }] = (await postern(['account', 'create', 'shop', '--json'], env())).json();
          const shop = createCaller(page.running.base, key);
          await shop.api('/inbound/add-domain', { domain: 'shop.test' });
          await shop.api('/inbound/add-route', { domain: 'shop.test', pattern: '*', url: hook.url });
          await page.running.api('/inbound/add-route', { domain: 'in.test', pattern: 'own', url: `${hook.url}/own` });
          await hook.stop();
          const take = (to: string) => sendMail(page.running.smtp, { from: 'ann@sender.test', to }, MESSAGE);
          await until('the domain is known', async () => (await take('a@shop.test')).startsWith('250'));
          for (const _ of Array(12)) {
            await take('a@shop.test');
            await take('own@in.test');
          }
          await page.open('/');
          await page.shows('2 endpoints down');
          await page.shows('/hook (shop)');
          const rows: string[] = await page.browser.evaluate(
            `[...document.querySelectorAll('.needs li')].map((one) => one.innerText)`,
          );
          expect(rows.filter((row) => row.includes('/hook/own'))).to.have.length(1);
          expect(rows.filter((row) => row.includes('(shop)'))).to.have.length(1);
          await page.press('/hook (shop)');
          await until('the endpoint of that account', async () =>
            /^\/console\/endpoint\?account=[^&]+&url=/.test(await location()),
          );
          await page.shows('connection refused');
        } finally {
          await hook.stop();
        }
      });

      it('shows an owner no figures of the host, and links to no screen of it', async () => {
        const added = await postern(['person', 'add', 'olga', '--role', 'owner', '--account', 'shop', '--json'], env());
        await page.enter(added.records()[0].url);
        try {
          await page.open('/');
          await page.shows('Needs attention');
          expect(await page.browser.evaluate(`document.querySelector('figure')`)).to.equal(null);
          expect(await page.browser.evaluate(`document.querySelector('.rail').innerText`)).to.not.contain('Host');
          await page.open('/host');
          await page.shows('Owners cannot open this page.');
        } finally {
          await page.enter();
        }
      });
    });

    describe('the host', () => {
      it('shows its name, version, uptime and what needs the attention of the operator', async () => {
        await page.open('/');
        await page.press('Host');
        await until('the screen', async () => (await location()) === '/console/host');
        await page.shows('in.postern.test');
        const text = await page.text();
        expect(text).to.match(/Accepting mail\. 2 endpoints down/);
        expect(text).to.match(/Started\s+(now|\d+ (s|min) ago)/);
        expect(text).to.match(/NEEDS ATTENTION|Needs attention/);
      });

      it('plots disk, memory and delays over an hour, a day or 30 days', async () => {
        await page.open('/host');
        await until('the drawing', async () => (await drawn('Free disk')) > 0);
        const [head, newest, before] = await table('Free disk');
        expect(head).to.deep.equal(['Time', 'Free disk']);
        expect([newest?.[1], before?.[1]].join(' ')).to.match(/\d [MGT]B/);
        expect(await page.browser.evaluate(`${titled('Free disk')}.innerText`)).to.match(
          /[\d.]+ GB free on the disk of the queue, lowest [\d.]+ GB\./,
        );
        const steps = async (rows: number) => {
          await until('the drawing', async () => (await drawn('Free disk')) > 0);
          await until('another step', async () => (await table('Free disk')).length === rows);
        };
        await page.press('30 days');
        await until('the location', async () => (await location()) === '/console/host?span=month');
        await steps(242);
        await page.press('Day');
        await steps(146);
      });

      it('runs the checks: problems with advice first, then the rest, and runs them again', async () => {
        await page.open('/host');
        const looked = () =>
          page.browser.evaluate(
            `document.querySelector('.counts')?.innerText.includes('Checked') ? document.querySelector('.counts').innerText : ''`,
          );
        const counts = await until('its end', async () => (await looked()) || undefined);
        const [, ok, , faults] = /(\d+) ok\s+(\d+) warnings?\s+(\d+) faults?/.exec(counts) ?? [];
        const rows: string[] = await page.browser.evaluate(
          `[...document.querySelectorAll('.checks > li')].map((one) => one.textContent)`,
        );
        expect(rows.filter((row) => row.startsWith('Fault'))).to.have.length(Number(faults));
        expect(rows.filter((row) => row.startsWith('OK'))).to.have.length(Number(ok));
        expect(rows[0]).to.match(/^Fault/);
        const resolver = rows.find((row) => row.includes('resolver 127.0.0.1:9'));
        expect(resolver).to.match(/^Fault.*no answer.*Without a working resolver.*Copy$/);
        expect(await page.text()).to.not.contain('durable write');
        await page.press('other check');
        await page.shows('durable write');
        await page.browser.evaluate(
          `document.querySelector('[data-row="resolver 127.0.0.1:9"] button').addEventListener('click', () => {
            navigator.clipboard.writeText = async (text) => { window.copied = text; };
          }, true)`,
        );
        await page.browser.evaluate(`document.querySelector('[data-row="resolver 127.0.0.1:9"] button').click()`);
        expect(await until('the copy', () => page.browser.evaluate('window.copied'))).to.match(
          /^resolver 127\.0\.0\.1:9: no answer.*\nWithout a working resolver/,
        );
        await until('a new look', async () => {
          await page.press('Refresh');
          return page.browser.evaluate(`document.querySelector('.counts').innerText.includes('Checking')`);
        });
        await until('its end', looked);
      });

      it('shows its listeners, and that there is no certificate', async () => {
        await page.open('/host');
        const rows: string[] = await until('the listeners', async () => {
          const found = await page.browser.evaluate(
            `[...document.querySelectorAll('.listeners > li')].map((one) => one.innerText)`,
          );
          return found.length > 0 && found;
        });
        const { smtp, base } = page.running;
        expect(rows[0]).to.match(
          new RegExp(`^Inbound SMTP\\s+127\\.0\\.0\\.1:${smtp.port}\\s+no TLS, \\d+ open sessions?$`),
        );
        expect(rows[1]).to.match(
          new RegExp(`^API and console\\s+${new URL(base).host}\\s+no TLS, \\d+ open connections?$`),
        );
      });

      it('runs a task when the button is pressed, and shows when it ran', async () => {
        await page.open('/host');
        const row = (name: string) =>
          page.browser.evaluate(`document.querySelector('.tasks [data-row="${name}"]').innerText`);
        const [{ name }] = await page.browser.evaluate(
          `[...document.querySelectorAll('.tasks li')].filter((one) => one.innerText.includes('Not run yet')).map((one) => ({ name: one.dataset.row }))`,
        );
        expect(await row(name)).to.match(/Not run yet[^]*next/);
        await page.browser.evaluate(`document.querySelector('.tasks [data-row="${name}"] button').click()`);
        await until('its run', async () => /(Done|Skipped)\s[^]*took/.test(await row(name)));
      });

      it('shows the current settings with their origin, filtered, and secrets as (set)', async () => {
        await page.open('/host');
        await page.press('Settings');
        await page.shows('delivery.retry_hours');
        await page.fill('Filter', 'retry_hours');
        await until('the filter', async () => !(await page.text()).includes('smtp.listen'));
        expect(await page.browser.evaluate(`document.querySelector('.settings').innerText`)).to.match(
          /delivery\.retry_hours\s+7\s+POSTERN_DELIVERY__RETRY_HOURS/,
        );
        await page.fill('Filter', 'bootstrap.api_key');
        await page.shows('(set)');
        expect(await page.text()).to.not.contain(page.running.key);
        await page.fill('Filter', 'nothing like it');
        await page.shows('No settings match');
      });

      it('lists the actions on the host and in each account, with their actors', async () => {
        await page.running.api('/keys/add', { label: 'for the host\u2019s list' });
        await page.open('/host');
        await page.press('Host activity');
        await until('the location', async () => (await location()) === '/console/host/actions');
        const rows = () =>
          page.browser.evaluate(`[...document.querySelectorAll('.actions > li')].map((one) => one.innerText)`);
        // The history is written a moment after what it tells, and the list is not live.
        await until('a task that was run, and a key of the account', async () => {
          await page.open('/host/actions');
          const shown: string[] = await rows();
          return shown.some((one) => /the host/.test(one)) && shown.some((one) => /main[^]*key/i.test(one));
        });
      });

      it('shows the latest warnings and errors, by level and event, as text', async () => {
        await page.open('/host/log');
        await page.shows('delivery.deferred');
        const lines = () =>
          page.browser.evaluate(`[...document.querySelectorAll('.log > li')].map((one) => one.innerText)`);
        expect(await lines()).to.not.deep.equal([]);
        await page.press('Errors');
        await until('the location', async () => (await location()) === '/console/host/log?level=error');
        await page.shows('No log lines match');
        await page.press('Show all lines');
        await page.press('delivery.deferred');
        await until('the location', async () => (await location()) === '/console/host/log?event=delivery.deferred');
        await until('those alone', async () =>
          (await lines()).every((one: string) => one.includes('delivery.deferred')),
        );
      });
    });

    describe('all operator screens', () => {
      const screens = Object.entries({
        now: '/',
        host: '/host',
        settings: '/host/settings',
        log: '/host/log',
        'what was done': '/host/actions',
        'an empty log': '/host/log?level=error',
      });
      for (const [scheme, size] of LOOKS)
        for (const [name, path] of screens)
          it(`${name} has no accessibility violations (axe), in ${scheme} colours at ${size[0]} px`, async () => {
            await page.browser.prefer(scheme);
            await page.go(path, size);
            await openTables();
            expect(await page.faults()).to.deep.equal([]);
            expect(await page.fits()).to.equal(true);
            if (size === PHONE) {
              await page.browser.resize(320, 700);
              expect(await page.fits(), 'at 320 px').to.equal(true);
            }
          });
      /** The first plot with its table, where there are plots. */
      const openTables = async () => {
        if (!(await page.browser.evaluate(`document.querySelector('figure.plot') !== null`))) return;
        await until('a drawing', () => page.browser.evaluate(`document.querySelector('canvas') !== null`));
        await page.browser.evaluate(`document.querySelector('figure.plot details').open = true`);
        await until('a table', () => page.browser.evaluate(`document.querySelector('figure.plot table') !== null`));
      };
    });
  });
