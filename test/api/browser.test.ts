import { expect } from 'chai';
import { startApi, type ApiWorld } from '../support/api.ts';
import { chromium, startBrowser, type Browser } from '../support/chromium.ts';
import { ENTRIES, TABLE } from './contract-table/table.ts';

// The reference as a person sees it: in a real browser, where there is one.

const program = chromium();
if (program === undefined) console.log('The reference is not looked at in a browser: no chromium on the PATH.');

if (program !== undefined) describe('/docs in a browser', function () {
  this.timeout(60_000);
  let world: ApiWorld;
  let browser: Browser;
  before(async () => {
    world = await startApi();
    browser = await startBrowser(program);
    await browser.open(`${world.base}/docs`, 1280, 900);
  });
  after(async () => {
    await browser?.close();
    await world?.stop();
  });

  it('has a heading for every documented operation, and a link to it that leads there', async () => {
    const headings: string[] = await browser.evaluate(`[...document.querySelectorAll('h3')].filter((one) => one.checkVisibility()).map((one) => one.firstChild.textContent)`);
    expect(ENTRIES.map(({ path }) => path).filter((path) => !headings.includes(path)), 'no heading').to.deep.equal([]);
    const dead: string[] = await browser.evaluate(`[...document.querySelectorAll('nav a[href^="#"]')].filter((one) => !document.getElementById(one.hash.slice(1))).map((one) => one.hash)`);
    expect(dead).to.deep.equal([]);
    expect(await browser.evaluate(`document.querySelectorAll('nav a[href^="#"]').length`)).to.equal(headings.length);
  });

  it('puts the operations of a group together under its name', async () => {
    const groups: string[] = await browser.evaluate(`[...document.querySelectorAll('main h2')].map((one) => one.textContent.trim())`);
    expect(groups).to.include.members(TABLE.map(({ name }) => name));
    expect(new Set(groups).size, 'each once').to.equal(groups.length);
  });

  it('shows in a table, for each operation, every documented parameter and whether it is required', async () => {
    const shown: Record<string, [string, boolean][]> = await browser.evaluate(`Object.fromEntries([...document.querySelectorAll('section')].map((section) => [
      section.querySelector('h3').firstChild.textContent,
      [...section.querySelector('table').querySelectorAll('tbody tr')].map((row) => [row.querySelector('code').textContent, row.cells[0].textContent.includes('required')]),
    ]))`);
    for (const { path, params } of ENTRIES) {
      const documented = [['key', true], ...params.map(({ name, required }) => [name, required])];
      expect(shown[path], path).to.deep.include.members(documented);
    }
  });

  it('shows an example of every call and its answer, and the errors', async () => {
    const without: string[] = await browser.evaluate(`[...document.querySelectorAll('section')].filter((one) => one.querySelectorAll('pre').length < 2 || !/curl/.test(one.textContent)).map((one) => one.id)`);
    expect(without).to.deep.equal([]);
    const text: string = await browser.evaluate('document.body.innerText');
    for (const { path, errors } of ENTRIES) for (const name of Object.keys(errors)) expect(text, path).to.contain(name);
  });

  for (const [width, what] of [[1280, 'a desk'], [800, 'a tablet'], [390, 'a telephone']] as const) {
    it(`fits the screen of ${what}`, async () => {
      await browser.open(`${world.base}/docs`, width, 900);
      const [page, screen, wide] = await browser.evaluate(`[document.documentElement.scrollWidth, document.documentElement.clientWidth,
        [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1).slice(0, 5).map((one) => one.tagName + ' ' + one.textContent.slice(0, 60))]`);
      expect({ page, wide }).to.deep.equal({ page: screen, wide: [] });
      expect(await browser.evaluate(`parseFloat(getComputedStyle(document.body).fontSize)`), 'letters to be read').to.be.at.least(14);
    });
  }
});
