import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { until } from '../support/until.ts';

const program = chromium();

const mail = (subject: string) =>
  `From: =?utf-8?Q?J=C3=B6rg?= <joerg@shop.example>\r\nTo: box-1@in.test\r\nSubject: ${subject}\r\n\r\nHello.\r\n`;

/** Names of visible buttons by how they look: filled with the accent, and those that destroy. */
const BUTTONS = `(() => {
  const accent = getComputedStyle(document.body).getPropertyValue('--accent');
  const probe = document.body.appendChild(document.createElement('i'));
  const colour = (value) => ((probe.style.background = value), getComputedStyle(probe).backgroundColor);
  const plain = [colour('var(--paper)'), colour('var(--raised)'), colour('transparent')];
  const filled = [...document.querySelectorAll('button, .button')]
    .filter((one) => one.checkVisibility() && !plain.includes(getComputedStyle(one).backgroundColor))
    .map((one) => one.innerText.trim());
  probe.remove();
  return filled;
})()`;

if (program !== undefined)
  describe('waiting mail, in a browser', function () {
    this.timeout(180_000);
    let page: ConsolePage;
    before(async () => {
      page = await startConsolePage(program);
      page.hook.answer({ status: 503 });
      for (let n = 0; n < 12; n++) await page.mail(mail(`Before ${n}`));
      await until('the endpoint to be down', async () => {
        const [one] = await page.running.api('/endpoints/list');
        return one.breaker === 'down';
      });
      await page.mail(mail('=?utf-8?B?R3LDvMOfZSBhdXMgS8O2bG4=?='));
      await until('all in the history', async () => (await waiting()) === 13);
    });
    after(() => page?.stop());

    const waiting = async () => (await page.running.api('/inbound/causes', { query: 'state:waiting' })).count;
    const buttons = (): Promise<string[]> => page.browser.evaluate(BUTTONS);

    it('has a subject before it is parsed, and is found by it', async () => {
      await page.open('/mail?q=state%3Awaiting');
      await page.shows('Grüße aus Köln');
      expect(await page.text()).not.to.contain('(not parsed yet)');
      await page.open('/mail?q=subject%3Ak%C3%B6ln');
      await page.shows('Grüße aus Köln');
      expect(await page.text()).not.to.contain('Before 1');
    });

    it('shows since when its endpoint is down, and with which answer', async () => {
      await page.open('/mail?q=subject%3Ak%C3%B6ln');
      await page.press('Grüße aus Köln');
      await page.shows('Endpoint down since ');
      const text = await page.text();
      expect(text).to.match(
        /Endpoint down since [-\d]+ [:\d]+ UTC; last answer: HTTP 503; next probe [-\d]+ [:\d]+ UTC\./,
      );
      expect(text).not.to.contain('Waiting for its first POST');
    });

    for (const size of [DESK, PHONE])
      it(`has one primary button, which is not the destructive one, at ${size[0]} px`, async () => {
        await page.open('/mail?q=state%3Awaiting', size);
        await page.shows('Retry all that match');
        expect(await buttons()).to.deep.equal(['Retry all that match\u2026']);
        expect(await page.text()).not.to.contain('Drop all');
        await page.press('More actions');
        await page.shows('Drop all that match\u2026');
        expect(await page.faults()).to.deep.equal([]);
        expect(await page.fits()).to.equal(true);
        await page.browser.press('Escape');
        await until('the menu to be closed', async () => !(await page.text()).includes('Drop all that match'));
        await page.press('More actions');
        await page.press('Drop all that match\u2026');
        await page.shows('Type 13 to confirm');
        expect((await buttons()).filter((one) => one.startsWith('Drop'))).to.deep.equal([]);
        await page.press('Cancel');
      });

    it('is retried at once: first the count and the reason for waiting, then the result', async () => {
      await page.open('/mail?q=state%3Awaiting', DESK);
      await page.press('Retry all that match\u2026');
      await page.shows('13 messages will be posted now.');
      await page.shows('last response HTTP 503');
      expect(await page.faults()).to.deep.equal([]);
      expect((await buttons()).filter((one) => one !== 'Retry all that match\u2026')).to.deep.equal(['Retry 13 now']);
      expect(await waiting()).to.equal(13);
      page.hook.answer({ status: 200 });
      await page.press('Retry 13 now');
      await page.shows('Retrying 13 messages.');
      await until('the posts', async () => (await waiting()) === 0);
      const { actions } = await page.running.api('/actions/list');
      expect(actions[0]).to.include({ what: 'retried', count: 13 });
    });

    it('is continued from the page of a mail: by another attempt, or by ending a pause', async () => {
      page.hook.answer({ status: 500 });
      await page.mail(mail('One more'));
      const one = await until('its first attempt', async () => {
        const { mails } = await page.running.api('/inbound/search', { query: '"one more"' });
        return mails[0]?.attempts > 0 && mails[0];
      });
      await page.open(`/message/${one.id}`);
      await page.shows('Retrying after ');
      expect(await buttons()).to.deep.equal(['Retry now']);
      await page.running.api('/endpoints/pause', { url: page.hook.url });
      await page.open(`/message/${one.id}`);
      await page.shows('Endpoint paused by the account since');
      expect(await buttons()).to.deep.equal(['Resume endpoint']);
      await page.press('Resume endpoint');
      await until('the pause to end', async () => {
        const { paused } = await page.running.api('/endpoints/info', { url: page.hook.url });
        return paused === false;
      });
      page.hook.answer({ status: 200 });
      await page.press('Retry now');
      await page.shows('Delivered');
    });
  });
