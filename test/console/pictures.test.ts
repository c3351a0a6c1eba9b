import { globSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { type Story, tellStory } from '../support/console-story.ts';
import { until } from '../support/until.ts';

// What no single screen's test can say: that every screen fits, cuts nothing off, and is reached and left by keyboard. With
// `PICTURES=folder` it also takes a picture of every screen in every state, to be looked at by a person when a screen
// changes; with `PICTURES=docs` those of docs/console.md.

const program = chromium();
const SCREENS = globSync('src/console/web/screens/*.ts').map((path) => basename(path));
const FOLDER = process.env['PICTURES'];
/** With large text every screen is looked at in one state then, and not in all. */
const SMALL = process.env['CONSOLE'] === 'small';

type Scheme = 'light' | 'dark';
type Size = readonly [number, number];

/** A screen in one of its states. */
interface Look {
  readonly name: string;
  /** Below /console. */
  readonly path: string;
  /** Whether it is also shown in dark colours. */
  readonly main?: boolean;
  /** What a person does before the picture is taken. */
  readonly then?: (page: ConsolePage) => Promise<unknown>;
}

/** Every screen, with what there is on a busy afternoon. */
const looksOf = (story: Story): readonly Look[] => [
  { name: 'now', path: '/', main: true, then: plotted },
  { name: 'mail', path: '/mail', main: true, then: (page) => preview(page, 'Order 4711 is late') },
  {
    name: 'mail-marked',
    path: '/mail?q=state%3Adelivered+from%3Aexample.org',
    then: (page) => page.browser.press('x'),
  },
  { name: 'mail-none', path: '/mail?q=offers%40spam.test' },
  { name: 'mail-error', path: '/mail?q=status%3Awrong' },
  { name: 'message', path: `/message/${story.retried}`, main: true, then: (page) => open(page, '.attempt') },
  { name: 'message-html', path: `/message/${story.html}`, then: (page) => page.shows('Shown without scripts') },
  { name: 'message-headers', path: `/message/${story.html}?tab=headers` },
  { name: 'message-parts', path: `/message/${story.html}?tab=parts` },
  { name: 'message-payload', path: `/message/${story.html}?tab=payload` },
  { name: 'message-arabic', path: `/message/${story.arabic}` },
  { name: 'message-long', path: `/message/${story.long}` },
  { name: 'message-replay', path: `/message/${story.retried}`, then: (page) => page.press('Replay\u2026') },
  { name: 'message-try', path: `/message/${story.retried}`, then: (page) => page.press('Try another URL\u2026') },
  { name: 'message-unknown', path: '/message/01kunknown' },
  { name: 'refused', path: '/refused', main: true, then: (page) => page.shows('Test the routes') },
  { name: 'refused-none', path: '/refused?q=to%3Anobody' },
  { name: 'endpoints', path: '/endpoints', main: true },
  { name: 'endpoint', path: `/endpoint?url=${encodeURIComponent(story.crm)}`, main: true },
  { name: 'endpoint-up', path: `/endpoint?url=${encodeURIComponent(story.support)}` },
  { name: 'endpoint-unknown', path: '/endpoint?url=http%3A%2F%2Fnobody.example%2F' },
  { name: 'given-up', path: '/given-up', main: true },
  { name: 'given-up-replay', path: '/given-up', then: (page) => page.press('Replay all') },
  { name: 'sent', path: '/sent', main: true },
  { name: 'sent-deferred', path: `/sent/${story.deferred}`, main: true },
  { name: 'sent-bounced', path: `/sent/${story.bounced}` },
  { name: 'sent-taken', path: `/sent/${story.sent}` },
  { name: 'lists', path: '/lists', main: true },
  { name: 'lists-add', path: '/lists', then: (page) => page.press('Add an address\u2026') },
  { name: 'lists-whitelist', path: '/lists?list=whitelist' },
  { name: 'domains', path: '/domains', main: true },
  { name: 'domain', path: '/domain/in.example.com?test=support-7%40in.example.com', main: true, then: tested },
  { name: 'domain-wrong', path: '/domain/mail.example.org' },
  { name: 'keys', path: '/keys', main: true },
  { name: 'actions', path: '/actions', main: true },
  { name: 'queue', path: '/queue', main: true },
  { name: 'queue-change', path: '/queue', then: (page) => page.press('Change by filter\u2026') },
  { name: 'host', path: '/host', main: true, then: examined },
  { name: 'settings', path: '/host/settings' },
  { name: 'log', path: '/host/log', main: true },
  { name: 'host-actions', path: '/host/actions', main: true },
  { name: 'accounts', path: '/accounts', main: true },
  { name: 'people', path: '/accounts?show=people', main: true },
  { name: 'people-invite', path: '/accounts?show=people', then: (page) => page.press('Invite a person\u2026') },
  { name: 'sessions', path: '/accounts?show=sessions' },
  { name: 'help', path: '/', then: (page) => page.browser.press('?') },
  { name: 'missing', path: '/nothing-like-it' },
];

/** Screens while there is nothing to show. */
const EMPTY: readonly Look[] = [
  { name: 'empty-now', path: '/' },
  { name: 'empty-mail', path: '/mail' },
  { name: 'empty-refused', path: '/refused' },
  { name: 'empty-endpoints', path: '/endpoints' },
  { name: 'empty-given-up', path: '/given-up' },
  { name: 'empty-sent', path: '/sent' },
  { name: 'empty-lists', path: '/lists' },
  { name: 'empty-domains', path: '/domains' },
  { name: 'empty-actions', path: '/actions' },
  { name: 'empty-queue', path: '/queue' },
];

/** The checks of the host end one by one, and each adds a row. */
async function examined(page: ConsolePage): Promise<void> {
  await plotted(page);
  await until('the end of the checks', () =>
    page.browser.evaluate(
      `[...document.querySelectorAll('button')].some((one) => one.innerText.includes('Refresh') && !one.disabled) && document.querySelector('details.others') !== null`,
    ),
  );
}

const plotted = (page: ConsolePage) =>
  until('the drawings', () =>
    page.browser.evaluate(
      `document.querySelector('canvas') !== null && document.querySelectorAll('figure.plot').length === document.querySelectorAll('canvas').length`,
    ),
  );
const tested = (page: ConsolePage) => page.shows('Accepts the mail.');
const open = (page: ConsolePage, selector: string) =>
  until(`${selector} to open`, () =>
    page.browser.evaluate(
      `(() => { const one = document.querySelector('details${selector}'); if (one) one.open = true; return one !== null; })()`,
    ),
  );
/** On a wide screen the message that has the focus stands beside the list. */
const preview = (page: ConsolePage, subject: string) =>
  until(`${subject} beside the list`, () =>
    page.browser.evaluate(`(() => {
      if (innerWidth < 1200 || document.querySelector('.preview .timeline') !== null) return true;
      [...document.querySelectorAll('.mail-row a')].find((one) => one.innerText.includes(${JSON.stringify(subject)}))?.focus();
      return new Promise((resolve) => setTimeout(() => resolve(false), 500));
    })()`),
  );

if (program !== undefined)
  describe('every screen of the console', function () {
    this.timeout(900_000);
    let story: Story;
    before(async () => {
      story = await tellStory(program);
    });
    after(() => story?.stop());

    it('never scrolls sideways and clips nothing at 320 px', async () => {
      const wrong: string[] = [];
      for (const look of looksOf(story)) {
        await show(story.page, look, [320, 700], 'light');
        wrong.push(...(await faultsOf(story.page, look)));
      }
      expect(wrong).to.deep.equal([]);
    });

    it('never scrolls sideways and clips nothing with text of twice the size', async () => {
      const wrong: string[] = [];
      for (const look of looksOf(story).filter(({ main }) => main || !SMALL)) {
        await show(story.page, look, [1280, 900], 'light');
        await story.page.browser.evaluate(`document.documentElement.style.fontSize = '175%'`);
        wrong.push(...(await faultsOf(story.page, look)));
      }
      expect(wrong).to.deep.equal([]);
    });

    it('shows the focus, which reaches every control', async () => {
      const wrong: string[] = [];
      await story.page.open('/'); // with text of the usual size
      for (const look of looksOf(story).filter(({ main }) => main)) {
        await show(story.page, look, DESK, 'light');
        wrong.push(...(await lostControls(story.page, look)));
      }
      expect(wrong).to.deep.equal([]);
    });

    it('can be reached from the start page by keyboard alone', async () => {
      const { browser, open } = story.page;
      await open('/');
      const names: string[] = await browser.evaluate(
        `[...document.querySelectorAll('.rail a')].map((one) => one.innerText.trim())`,
      );
      for (const name of names) {
        await open('/missing');
        const focused = () => browser.evaluate('document.activeElement.innerText.trim()');
        for (let i = 0; i < 40 && (await focused()) !== name; i++) await browser.press('Tab');
        await browser.press('Enter');
        await until(`the screen ${name}`, () =>
          browser.evaluate(`document.querySelector('main h1')?.innerText === ${JSON.stringify(name)}`),
        );
      }
      expect(names.length).to.be.above(10);
    });

    it('loads at most 60 KB of libraries and 100 KB of own code, compressed', async () => {
      await story.page.open('/');
      await plotted(story.page);
      const loaded = (): Promise<string[]> =>
        story.page.browser.evaluate(
          `performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/assets/'))`,
        );
      const first = (await loaded()).length;
      const urls = await until('the modules of all screens', async () => {
        const now = await loaded();
        return SCREENS.every((name) => now.some((url) => url.endsWith(`/screens/${name}`))) && now;
      });
      const weigh = async (wanted: boolean) => {
        let sum = 0;
        for (const url of new Set(urls.filter((one) => one.includes('/lib/') === wanted))) {
          const { headers } = await fetch(url, { headers: { 'Accept-Encoding': 'br' } });
          expect(headers.get('content-encoding')).to.equal('br');
          sum += Number(headers.get('content-length'));
        }
        return sum;
      };
      const [libraries, ours] = [await weigh(true), await weigh(false)];
      if (FOLDER !== undefined)
        console.log(
          `    ${libraries} bytes of libraries, ${ours} of ours, ${first} of ${urls.length} files for the start page; ${await firstData(story.page)}`,
        );
      expect(libraries).to.be.within(20_000, 60_000);
      expect(ours).to.be.within(20_000, 100_000);
    });

    if (FOLDER === 'docs')
      it('has pictures for its documentation', async () => {
        await mkdir(DOCS, { recursive: true });
        const { page } = story;
        await page.open('/');
        await page.press('Set a password\u2026');
        await page.fill('Name', 'ada');
        await page.fill('New password', 'five words that nobody knows');
        await page.press('Save password');
        await page.shows('From now on, sign in as ada');
        await page.press('Close');
        for (const look of looksOf(story)) {
          const [size, ...schemes] = SHOWN[look.name] ?? [];
          for (const [i, scheme] of schemes.entries()) {
            await show(story.page, look, size ?? DESK, scheme);
            await drawn(story.page);
            const picture = await story.page.browser.screenshot('webp');
            expect(picture.length, look.name).to.be.below(100_000);
            await writeFile(join(DOCS, `${look.name}${i === 0 ? '' : `-${scheme}`}.webp`), picture);
          }
        }
      });
    else if (FOLDER !== undefined)
      it('is captured in pictures', async () => {
        await mkdir(FOLDER, { recursive: true });
        for (const look of looksOf(story)) await takeAll(story.page, look);
        for (const look of looksOf(story).filter(({ main }) => main)) await takeStuck(story.page, look);
        const empty = await startConsolePage(program);
        await empty.running.api('/inbound/delete-domain', { domain: 'in.test' });
        for (const look of EMPTY) await takeAll(empty, look);
        await empty.stop();
      });
  });

const DOCS = join(import.meta.dirname, '../../docs/pictures');
const DOCS_DESK = [1200, 760] as const;

/** The pictures of docs/console.md, and the one of README, in its colours. */
const SHOWN: Readonly<Record<string, readonly [Size, ...Scheme[]]>> = {
  now: [DOCS_DESK, 'light', 'dark'],
  mail: [[1280, 720], 'light'],
  message: [DOCS_DESK, 'dark'],
  refused: [DOCS_DESK, 'light'],
  endpoint: [[1200, 560], 'light'],
  'given-up-replay': [[1200, 480], 'light'],
  'sent-deferred': [DOCS_DESK, 'light'],
  domain: [DOCS_DESK, 'light'],
  queue: [PHONE, 'dark'],
};

/** Until what was changed is drawn. */
const drawn = (page: ConsolePage) =>
  page.browser.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))');

async function show(page: ConsolePage, { path, then }: Look, size: Size, scheme: Scheme): Promise<void> {
  await page.browser.prefer(scheme);
  await page.go(path, size);
  await then?.(page);
}

/** What is cut off or does not fit into its box; what ends in dots stands whole where the row leads. */
const faultsOf = (page: ConsolePage, { name }: Look): Promise<string[]> =>
  page.browser.evaluate(`(() => {
    const wrong = [];
    const say = (what, one) => wrong.push(${JSON.stringify(name)} + ': ' + what + ': ' + one.outerHTML.slice(0, 120));
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) say('scrolls sideways', document.querySelector('main > *'));
    const inert = '.hidden, .skip, .u-wrap, svg, option, input';
    for (const one of document.querySelectorAll('body *')) {
      if (!one.checkVisibility() || one.closest(inert)) continue;
      const style = getComputedStyle(one);
      const cuts = /hidden|clip/.test(style.overflowX) && style.textOverflow !== 'ellipsis';
      if (cuts && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)) say('cut off', one);
    }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const own = text.parentElement;
      if (text.data.trim() === '' || !own.checkVisibility() || own.closest(inert + ', script, noscript')) continue;
      let box = own;
      while (/^(inline|contents)$/.test(getComputedStyle(box).display)) box = box.parentElement;
      if (getComputedStyle(box).textOverflow === 'ellipsis' || /auto|scroll/.test(getComputedStyle(box).overflowX)) continue;
      const { left, right, top, bottom } = box.getBoundingClientRect();
      // A space at the end of a line may hang over.
      const space = parseFloat(getComputedStyle(own).fontSize) / 2;
      const range = document.createRange();
      range.selectNodeContents(text);
      for (const part of range.getClientRects())
        if (part.left < left - 2 || part.right > right + space || part.top < top - 4 || part.bottom > bottom + 4) { say('does not fit', box); break; }
    }
    return wrong;
  })()`);

const MAX_CONTROLS = 500;

/**
 * Controls that Tab does not come to, and those that do not show that they have the focus. What stands beside a list changes with the
 * row.
 */
async function lostControls(page: ConsolePage, { name }: Look): Promise<string[]> {
  const { browser } = page;
  const controls = `[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter((one) => one.checkVisibility() && !one.closest('.preview') && !one.disabled && one.tabIndex >= 0)`;
  await browser.evaluate(`(window.reached = new Set(), window.unseen = [], 0)`);
  // What came to the page behind the focus, such as counts that are asked for apart, is reached in a second round.
  for (let round = 1; round <= 2; round++) {
    await browser.evaluate(`(window.round = new Set(), 0)`);
    for (let i = 0, around = false; !around && i < MAX_CONTROLS; i++) {
      await browser.press('Tab');
      around = await browser.evaluate(`(() => {
        const one = document.activeElement;
        if (window.round.has(one)) return one === [...window.round][0];
        if (one === document.body) return false;
        window.round.add(one);
        if (window.reached.has(one)) return false;
        window.reached.add(one);
        const ring = [one, one.closest('.search')].some((element) => element && getComputedStyle(element).outlineStyle !== 'none' && parseFloat(getComputedStyle(element).outlineWidth) >= 1);
        if (!ring && one.tagName !== 'IFRAME') window.unseen.push('no ring: ' + one.outerHTML.slice(0, 120));
        return false;
      })()`);
    }
    if (await browser.evaluate(`${controls}.every((one) => window.reached.has(one))`)) break;
  }
  const wrong: string[] = await browser.evaluate(
    `[...window.unseen, ...${controls}.filter((one) => !window.reached.has(one)).map((one) => 'not reached: ' + one.outerHTML.slice(0, 120))]`,
  );
  return wrong.map((one) => `${name}: ${one}`);
}

const LATENCY_MS = 40;
const TRIES = 5;

/** How long after it is asked for, without anything kept, the start page shows mail over a slow line. */
async function firstData(page: ConsolePage): Promise<string> {
  const times: number[] = [];
  await page.browser.slowDown(LATENCY_MS);
  for (let i = 0; i < TRIES; i++) {
    await page.browser.open(`${page.running.base}/console/mail`, ...DESK);
    await until('a row', () => page.browser.evaluate(`document.querySelector('.mail-row') !== null`));
    times.push(await page.browser.evaluate('performance.now()'));
  }
  await page.browser.slowDown(0);
  return `first rows after ${times.map(Math.round).join(', ')} ms with ${LATENCY_MS} ms of latency`;
}

async function takeAll(page: ConsolePage, look: Look): Promise<void> {
  for (const [device, size] of Object.entries({ desk: DESK, phone: PHONE }))
    for (const scheme of ['light', 'dark'] as const) {
      if (scheme === 'dark' && !look.main) continue;
      const picture = await take(page, look, size, scheme);
      await writeFile(join(FOLDER ?? '', `${look.name}-${device}-${scheme}.png`), picture);
    }
}

const HIGHEST = 2000;

/** A picture of the whole screen, in a window as high as it takes. */
async function take(page: ConsolePage, look: Look, [width, height]: Size, scheme: Scheme): Promise<Buffer> {
  await page.open(look.path, [width, height]);
  const full = await page.browser.evaluate('document.documentElement.scrollHeight');
  await show(page, look, [width, Math.min(Math.max(full, height), HIGHEST)], scheme);
  await drawn(page);
  return page.browser.screenshot();
}

/** A screen that gets no answer, and one that gets a wrong one. */
async function takeStuck(page: ConsolePage, { name, path }: Look): Promise<void> {
  await page.browser.prefer('light');
  for (const [state, [fetch, sign]] of Object.entries({
    loading: ['new Promise(() => {})', 'main .bars'],
    failing: [
      `Promise.resolve(new Response('{"name":"ServiceUnavailable","message":"The store does not answer."}', { status: 503 }))`,
      '[role=alert]',
    ],
  })) {
    await page.open('/nothing-like-it');
    await page.browser.evaluate(`(() => {
      window.fetch = () => ${fetch};
      const link = document.createElement('a');
      link.href = '/console${path}';
      document.querySelector('main').append(link);
      link.click();
    })()`);
    await until(`the screen ${state}`, () => page.browser.evaluate(`document.querySelector('${sign}') !== null`));
    await drawn(page);
    await writeFile(join(FOLDER ?? '', `${name}-${state}.png`), await page.browser.screenshot());
  }
}
