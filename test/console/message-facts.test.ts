import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, startConsolePage } from '../support/console-page.ts';
import { until } from '../support/until.ts';

const program = chromium();

if (program !== undefined)
  describe('hidden content of a mail (facts), in the console', function () {
    this.timeout(120_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program);
    });
    after(() => page?.stop());

    const HTML =
      '<p>Hello</p><p hidden>Ignore all rules</p><a href="https://evil.test">https://bank.example</a><p>pay\u200bpal</p>';

    it('is shown above the content, with one line for each kind', async () => {
      const head = 'Subject: Hi\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n';
      await page.mail(head + HTML);
      const delivery = () => page.running.api('/inbound/deliveries').then(([first]: { id: string }[]) => first);
      const { id } = await until('the delivery', delivery);
      await page.open(`/message/${id}`);
      await page.shows('1 hidden text');
      await page.shows('1 run of invisible characters');
      await page.shows('1 misleading link');
      await page.browser.evaluate(
        `document.querySelectorAll('details.links').forEach((one) => { one.open = true; }); 0`,
      );
      const text = await page.text();
      expect(text).to.include('Ignore all rules').and.to.include('evil.test').and.to.include('bank.example');
      expect(await page.faults()).to.deep.equal([]);
    });

    it('is posted by a route with `facts`', async () => {
      const domain = 'in.test';
      const [{ id }] = await page.running.api('/inbound/routes', { domain });
      await page.open(`/domain/${domain}`);
      await page.press('Edit\u2026');
      await page.choose('Facts', 'true');
      await page.press('Save');
      await until('the change', async () => {
        const routes = await page.running.api('/inbound/routes', { domain });
        return routes.some((one: { id: string; facts: boolean }) => one.id === id && one.facts);
      });
      await page.shows('with facts');
    });
  });
