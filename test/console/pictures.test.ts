import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { chromium } from '../support/chromium.ts';
import { type ConsolePage, DESK, PHONE, startConsolePage } from '../support/console-page.ts';
import { type Story, tellStory } from '../support/console-story.ts';
import { until } from '../support/until.ts';

// What no single screen's test can say: that every screen fits, cuts nothing off, and is reached and left by keyboard. With
// `PICTURES=folder` it also takes a picture of every screen in every state, to be looked at by a person when a screen
// changes; with `PICTURES=docs` those of docs/console.md.

const program = chromium();
const FOLDER = process.env['PICTURES'];

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
  { name: 'refused', path: '/refused', main: true, then: (page) => page.shows('Which routes are there?') },
  { name: 'refused-none', path: '/refused?q=to%3Anobody' },
  { name: 'endpoints', path: '/endpoints', main: true },
  { name: 'endpoint', path: `/endpoint?url=${encodeURIComponent(story.crm)}`, main: true },
  { name: 'endpoint-up', path: `/endpoint?url=${encodeURIComponent(story.support)}` },
  { name: 'endpoint-unknown', path: '/endpoint?url=http%3A%2F%2Fnobody.example%2F' },
  { name: 'given-up', path: '/given-up', main: true },
  { name: 'given-up-replay', path: '/given-up', then: (page) => page.press('Replay all\u2026') },
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
  { name: 'queue-change', path: '/queue', then: (page) => page.press('Change by query\u2026') },
  { name: 'host', path: '/host', main: true, then: plotted },
  { name: 'settings', path: '/host/settings' },
  { name: 'log', path: '/host/log', main: true },
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

const plotted = (page: ConsolePage) =>
  until('the drawings', () =>
    page.browser.evaluate(
      `document.querySelector('canvas') !== null && document.querySelectorAll('figure.plot').length === document.querySelectorAll('canvas').length`,
    ),
  );
const tested = (page: ConsolePage) => page.shows('takes it');
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

    if (FOLDER !== undefined && FOLDER !== 'docs')
      it('has its pictures taken', async () => {
        await mkdir(FOLDER, { recursive: true });
        for (const look of looksOf(story)) await takeAll(story.page, look);
        for (const look of looksOf(story).filter(({ main }) => main)) await takeStuck(story.page, look);
        const empty = await startConsolePage(program);
        await empty.running.api('/inbound/delete-domain', { domain: 'in.test' });
        for (const look of EMPTY) await takeAll(empty, look);
        await empty.stop();
      });
  });

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
async function take(page: ConsolePage, { path, then }: Look, [width, height]: Size, scheme: Scheme): Promise<Buffer> {
  await page.browser.prefer(scheme);
  await page.open(path, [width, height]);
  const full = await page.browser.evaluate('document.documentElement.scrollHeight');
  await page.open(path, [width, Math.min(Math.max(full, height), HIGHEST)]);
  await then?.(page).catch((error: Error) => console.log(`    ${path} ${width}: ${error.message}`));
  await new Promise((resolve) => setTimeout(resolve, 150));
  return page.browser.screenshot();
}

/** A screen that gets no answer, and one that gets a wrong one. */
async function takeStuck(page: ConsolePage, { name, path }: Look): Promise<void> {
  await page.browser.prefer('light');
  for (const [state, fetch] of Object.entries({
    loading: 'new Promise(() => {})',
    failing: `Promise.resolve(new Response('{"name":"ServiceUnavailable","message":"The store does not answer."}', { status: 503 }))`,
  })) {
    await page.open('/nothing-like-it');
    await page.browser.evaluate(`(() => {
      window.fetch = () => ${fetch};
      const link = document.createElement('a');
      link.href = '/console${path}';
      document.querySelector('main').append(link);
      link.click();
    })()`);
    await new Promise((resolve) => setTimeout(resolve, 500));
    await writeFile(join(FOLDER ?? '', `${name}-${state}.png`), await page.browser.screenshot());
  }
}
