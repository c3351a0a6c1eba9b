import { expect } from 'chai';
import { factsOfMessage } from '../../src/mail/facts/facts.ts';
import { type Browser, chromium, startBrowser } from '../support/chromium.ts';
import { DISPLAYED } from '../support/displayed.ts';

const program = chromium();

/** Empties each text of the page that a person would not see, and returns the rest as the browser would copy it. */
const SEEN = `(() => {
  const numbers = (color) => { const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const isNear = (a, b) => [0, 1, 2].every((i) => Math.abs(a[i] - b[i]) <= 16);
  const isSeen = (text) => {
    const element = text.parentElement;
    const style = getComputedStyle(element);
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
    if (parseFloat(style.fontSize) <= 2) return false;
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = [...range.getClientRects()].find(({ width, height }) => width > 0 && height > 0);
    if (!box || box.right <= 0 || box.left >= innerWidth || box.bottom <= 0) return false;
    const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 1);
    const hit = document.elementFromPoint(x, box.top + box.height / 2);
    if (hit !== element && !element.contains(hit)) return false;
    const color = numbers(style.webkitTextFillColor);
    if (color[3] < 0.05) return false;
    for (let above = element; above; above = above.parentElement) {
      const background = numbers(getComputedStyle(above).backgroundColor);
      if (background[3] > 0) return !isNear(color, background);
    }
    return !isNear(color, [255, 255, 255]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (walker.currentNode.data.trim() !== '') texts.push(walker.currentNode);
  for (const text of texts.filter((one) => !isSeen(one))) text.data = '';
  return document.body.innerText;
})()`;

/** The words of a text, without the markers of lists, which a browser does not copy. */
const wordsOf = (text: string) =>
  text
    .replace(/^(?:\u2022 |\d+\. )/gm, '')
    .split(/\s+/)
    .filter(Boolean)
    .join(' ');

describe('the visible text of a page', () => {
  let browser: Browser;

  before('starts the browser', async function () {
    if (program === undefined) {
      console.log('      the visible text was not compared with what a browser shows: chromium is not installed');
      return this.skip();
    }
    this.timeout(60_000);
    browser = await startBrowser(program);
  });
  after('ends it', () => browser?.close());

  for (const [name, html] of Object.entries(DISPLAYED)) {
    it(`is the text that Chromium displays: ${name}`, async () => {
      await browser.open(`data:text/html;charset=utf-8,${encodeURIComponent(html)}`, 1024, 2000);
      const seen = wordsOf(await browser.evaluate(SEEN));
      expect(seen).to.not.include('lost');
      expect(wordsOf(factsOfMessage({ subject: '', text: undefined, html }, null).visible_text)).to.equal(seen);
    });
  }
});
