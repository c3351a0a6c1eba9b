import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect } from 'chai';
import { type ApiWorld, startApi } from '../support/api.ts';
import { type Browser, chromium, startBrowser } from '../support/chromium.ts';
import { ENTRIES, TABLE } from '../support/contract/table.ts';

// The reference as a person sees it: in a real browser, where there is one.

/** The checker of accessibility that most tools use (WCAG 2 and best practice). */
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const program = chromium();
if (program === undefined) console.log('The reference is not looked at in a browser: no chromium on the PATH.');

if (program !== undefined)
  describe('/docs in a browser', function () {
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

    it('has a heading for every documented operation, and a working link to it', async () => {
      const headings: string[] = await browser.evaluate(
        `[...document.querySelectorAll('h3')].filter((one) => one.checkVisibility()).map((one) => one.firstChild.textContent)`,
      );
      expect(
        ENTRIES.map(({ path }) => path).filter((path) => !headings.includes(path)),
        'no heading',
      ).to.deep.equal([]);
      const dead: string[] = await browser.evaluate(
        `[...document.querySelectorAll('nav a[href^="#"]')].filter((one) => !document.getElementById(one.hash.slice(1))).map((one) => one.hash)`,
      );
      expect(dead).to.deep.equal([]);
      expect(await browser.evaluate(`document.querySelectorAll('nav a[href^="#"]').length`)).to.equal(headings.length);
    });

    it('groups operations under the name of their group', async () => {
      const groups: string[] = await browser.evaluate(
        `[...document.querySelectorAll('main h2')].map((one) => one.textContent.trim())`,
      );
      expect(groups).to.include.members(TABLE.map(({ name }) => name));
      expect(new Set(groups).size, 'each once').to.equal(groups.length);
    });

    it('lists every documented parameter of each operation in a table, with whether it is required', async () => {
      const shown: Record<string, [string, boolean][]> =
        await browser.evaluate(`Object.fromEntries([...document.querySelectorAll('section')].map((section) => [
      section.querySelector('h3').firstChild.textContent,
      [...section.querySelector('table').querySelectorAll('tbody tr')].map((row) => [row.querySelector('code').textContent, row.cells[0].textContent.includes('required')]),
    ]))`);
      for (const { path, params } of ENTRIES) {
        const documented = [['key', true], ...params.map(({ name, required }) => [name, required])];
        expect(shown[path], path).to.deep.include.members(documented);
      }
    });

    it('shows an example of every call and answer, and the errors', async () => {
      const without: string[] = await browser.evaluate(
        `[...document.querySelectorAll('section')].filter((one) => one.querySelectorAll('pre').length < 2 || !/curl/.test(one.textContent)).map((one) => one.id)`,
      );
      expect(without).to.deep.equal([]);
      const text: string = await browser.evaluate('document.body.innerText');
      for (const { path, errors } of ENTRIES)
        for (const name of Object.keys(errors)) expect(text, path).to.contain(name);
    });

    it('filters the operations by typed text, and focuses the field with /', async () => {
      await browser.open(`${world.base}/docs`, 1280, 900);
      const visible = `[...document.querySelectorAll('section h3')].filter((one) => one.checkVisibility()).map((one) => one.firstChild.textContent)`;
      const type = (text: string) =>
        browser.evaluate(
          `document.activeElement.value = ${JSON.stringify(text)}; document.activeElement.dispatchEvent(new Event('input')); 0`,
        );
      await browser.evaluate(
        `document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true })); 0`,
      );
      expect(await browser.evaluate('document.activeElement.id')).to.equal('filter');
      await type('Inbound  ROUTE /add');
      expect(await browser.evaluate(visible)).to.deep.equal(['/inbound/add-route']);
      expect(await browser.evaluate(`document.querySelectorAll('nav li:not([hidden])').length`), 'links').to.equal(1);
      expect(
        await browser.evaluate(
          `[...document.querySelectorAll('main h2')].filter((one) => one.checkVisibility()).map((one) => one.textContent)`,
        ),
      ).to.deep.equal(['inbound']);
      expect(await browser.evaluate(`document.querySelector('output').value`)).to.match(/^1 of \d+ operations$/);
      await type('no such thing');
      expect(await browser.evaluate(visible)).to.deep.equal([]);
      await type('');
      expect((await browser.evaluate(visible)).length).to.be.greaterThan(ENTRIES.length - 1);
    });

    for (const [width, what] of [
      [1280, 'a desk'],
      [800, 'a tablet'],
      [390, 'a telephone'],
    ] as const) {
      it(`fits the screen of ${what}`, async () => {
        await browser.open(`${world.base}/docs`, width, 900);
        const [page, screen, wide] =
          await browser.evaluate(`[document.documentElement.scrollWidth, document.documentElement.clientWidth,
        [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1).slice(0, 5).map((one) => one.tagName + ' ' + one.textContent.slice(0, 60))]`);
        expect({ page, wide }).to.deep.equal({ page: screen, wide: [] });
        expect(
          await browser.evaluate(`parseFloat(getComputedStyle(document.body).fontSize)`),
          'letters to be read',
        ).to.be.at.least(14);
      });
    }

    // Both colours and both widths once: a page of a hundred operations takes axe twenty seconds of processor.
    for (const path of ['/', '/docs'])
      for (const [scheme, width] of [
        ['light', 1440],
        ['dark', 390],
      ] as const) {
        it(`${path} has no accessibility violations (axe), in ${scheme} colours at ${width} px`, async () => {
          await browser.prefer(scheme);
          await browser.open(world.base + path, width, 900);
          await browser.evaluate(`${AXE};0`);
          const faults =
            await browser.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
        violations.map(({ id, nodes }) => id + ' (' + nodes.length + '): ' + nodes[0].html.slice(0, 100) + ' ' + nodes[0].failureSummary))`);
          expect(faults).to.deep.equal([]);
        });
      }
  });
