import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { until } from '../support/until.ts';

const program = chromium();

if (program !== undefined)
  describe('a conversation, in a browser', function () {
    this.timeout(180_000);
    let page: ConsolePage;
    let id: string;
    before(async () => {
      page = await startConsolePage(program);
      const message = { from_email: 'box-1@in.test', subject: 'Your order', text: 'x', to: [{ email: 'jo@to.test' }] };
      [{ _id: id }] = await page.running.api('/messages/send', { message });
      await page.mail(
        `From: Jo <jo@to.test>\r\nTo: box-1@in.test\r\nSubject: Re: Your order\r\nIn-Reply-To: <${id}@in.postern.test>\r\n\r\nYes.\r\n`,
      );
      await page.mail(
        'From: x@to.test\r\nTo: box-1@in.test\r\nSubject: Alone\r\nMessage-ID: <1@to.test>\r\n\r\nHi.\r\n',
      );
      const { thread } = await page.running.api('/messages/info', { id });
      await until('both in the history', async () => {
        const { mails } = await page.running.api('/inbound/conversation', { thread });
        return mails.length === 2;
      });
    });
    after(() => page?.stop());

    for (const size of [DESK, PHONE])
      it(`is listed on the page of each of its messages with links to the others, at ${size[0]} px`, async () => {
        await page.open('/mail?q=subject%3A"Re%3A"', size);
        await page.press('Re: Your order');
        await page.shows('Conversation');
        expect(await page.text()).to.match(/Sent[^\n]*: Your order box-1@in\.test \u2192 jo@to\.test/);
        expect(await page.fits()).to.equal(true);
        expect(await page.faults()).to.deep.equal([]);
        await page.open(`/sent/${id}`, size);
        await page.shows('Conversation');
        expect(await page.text()).to.match(/Received[^\n]*: Re: Your order Jo <jo@to\.test> \u2192 box-1@in\.test/);
        expect(await page.fits()).to.equal(true);
      });

    it('is not shown on the page of a message without one', async () => {
      const found = await until('it is in the history', async () => {
        const { mails } = await page.running.api('/inbound/search', { query: 'subject:Alone' });
        return mails[0];
      });
      await page.open(`/message/${found.id}`);
      await page.shows('Timeline');
      await page.shows('Content');
      expect(await page.text()).not.to.contain('Conversation');
    });
  });
