import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, startBrowser } from './chromium.ts';
import { startDaemon, type TestDaemon } from './daemon.ts';
import { sendMail } from './mail.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import { until } from './until.ts';

/** The checker of accessibility that most tools use (WCAG 2 and best practice). */
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const DESK = [1440, 900] as const;
export const PHONE = [390, 844] as const;

/** Colours and sizes in which every screen is checked; with `CONSOLE=small` each of them once. */
export const LOOKS =
  process.env['CONSOLE'] === 'small'
    ? ([
        ['light', DESK],
        ['dark', PHONE],
      ] as const)
    : ([
        ['light', DESK],
        ['light', PHONE],
        ['dark', DESK],
        ['dark', PHONE],
      ] as const);

/** The whole daemon with one route, its receiver, and a browser that is signed in to the console. */
export interface ConsolePage {
  readonly running: TestDaemon;
  readonly hook: Receiver;
  readonly browser: Browser;
  /** Opens a path below /console, and waits until the screen has its heading. */
  open(path: string, size?: readonly [number, number]): Promise<void>;
  /** The same by a link, within the page that is there: a fifth of the work. Loads the page where that would change nothing. */
  go(path: string, size?: readonly [number, number]): Promise<void>;
  /** Waits until the page shows the text. */
  shows(text: string): Promise<void>;
  /** What the main part of the page says. */
  text(): Promise<string>;
  /** Presses the button or link with this text, else the first that has it in its text, as the mouse does. */
  press(label: string): Promise<void>;
  /** Writes a text into the field with this label, in place of what it holds. */
  fill(label: string, value: string): Promise<void>;
  /** Chooses an option, by its value, of the choice with this label. */
  choose(label: string, value: string): Promise<void>;
  /** Whether it never scrolls sideways. */
  fits(): Promise<boolean>;
  /** Takes one mail in for `box-1@in.test`. */
  mail(message: string, from?: string): Promise<string>;
  /** Signs in, by a link of the command line: as an operator, or as whom the link is for. */
  enter(link?: string): Promise<void>;
  /** What axe objects to. */
  faults(): Promise<string[]>;
  stop(): Promise<void>;
}

export async function startConsolePage(
  program: string,
  env: Readonly<Record<string, string>> = {},
): Promise<ConsolePage> {
  const hook = await startReceiver();
  const running = await startDaemon({ POSTERN_CONSOLE__OPERATOR_READS_MAIL: 'true', ...env });
  await running.api('/inbound/add-domain', { domain: 'in.test' });
  await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: hook.url });
  return openConsolePage(program, running, hook);
}

/** A browser that is signed in to the console of a daemon. It stops the daemon as well. */
export async function openConsolePage(program: string, running: TestDaemon, hook: Receiver): Promise<ConsolePage> {
  const browser = await startBrowser(program);
  await enter(running, browser);

  const has = (text: string) =>
    browser.evaluate(`document.body.innerText.toLowerCase().includes(${JSON.stringify(text.toLowerCase())})`);
  async function arrived(path: string): Promise<void> {
    await until(`the screen ${path}`, () => browser.evaluate(`document.querySelector('h1') !== null`));
    await until('what it shows', () => browser.evaluate(`document.querySelector('main .bars') === null`));
  }
  const page: ConsolePage = {
    running,
    hook,
    browser,
    async open(path, [width, height] = DESK) {
      await browser.open(`${running.base}/console${path}`, width, height);
      await arrived(path);
    },
    async go(path, [width, height] = DESK) {
      await browser.resize(width, height);
      const followed = await browser.evaluate(`(() => {
        const link = document.createElement('a');
        link.href = ${JSON.stringify(`/console${path}`)};
        // The same screen would stay as it is, and so would what lies over it.
        if (location.pathname === link.pathname || document.querySelector('dialog[open]') !== null) return false;
        document.body.append(link);
        link.click();
        link.remove();
        return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))));
      })()`);
      if (followed) await arrived(path);
      else await page.open(path, [width, height]);
    },
    shows: (text) => until(`"${text}" on the page`, () => has(text)),
    text: () => browser.evaluate(`document.querySelector('main').innerText`),
    async press(label) {
      const all = `[...document.querySelectorAll('button, a, summary')].filter((one) => one.checkVisibility())`;
      const name = JSON.stringify(label);
      const find = `(${all}.find((one) => one.innerText.trim() === ${name} || one.ariaLabel === ${name}) ?? ${all}.find((one) => one.innerText.includes(${name})))`;
      // What is pressed stands still and nothing lies over it: a page that still loads moves things.
      const still = `(async () => {
        const one = ${find};
        if (!one) return undefined;
        one.scrollIntoView({ block: 'center', behavior: 'instant' });
        const center = () => { const { x, y, width, height } = one.getBoundingClientRect(); return { x: x + width / 2, y: y + height / 2 }; };
        const before = center();
        await new Promise((resolve) => setTimeout(resolve, 40));
        const { x, y } = center();
        return x === before.x && y === before.y && one.contains(document.elementFromPoint(x, y)) ? { x, y } : undefined;
      })()`;
      const { x, y } = await until(`something to press named "${label}"`, () => browser.evaluate(still));
      await browser.click(x, y);
    },
    async fill(label, value) {
      const field = `[...document.querySelectorAll('label')].find((one) => one.checkVisibility() && one.querySelector('.label')?.innerText.trim() === ${JSON.stringify(label)})?.querySelector('input')`;
      await until(`a field named "${label}"`, () => browser.evaluate(`${field} !== undefined`));
      await browser.evaluate(`(() => { const one = ${field}; one.focus(); one.select(); })()`);
      await browser.type(value);
    },
    async choose(label, value) {
      await until(`a choice named "${label}" with "${value}"`, () =>
        browser.evaluate(`(() => {
          const named = [...document.querySelectorAll('label')].filter((one) => one.innerText.startsWith(${JSON.stringify(label)}));
          const one = named.map((label) => label.querySelector('select')).find((select) => [...(select?.options ?? [])].some((option) => option.value === ${JSON.stringify(value)}));
          if (!one) return false;
          one.value = ${JSON.stringify(value)};
          one.dispatchEvent(new Event('change', { bubbles: true }));
          return true;
        })()`),
      );
    },
    fits: () => browser.evaluate('document.documentElement.scrollWidth === document.documentElement.clientWidth'),
    mail: (message, from = 'ann@sender.test') => sendMail(running.smtp, { from, to: 'box-1@in.test' }, message),
    enter: (link) => enter(running, browser, link),
    async faults() {
      await browser.evaluate(`${AXE};0`);
      return browser.evaluate(
        `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map((node) => id + ': ' + node.html.slice(0, 120) + ' ' + node.failureSummary)))`,
      );
    },
    async stop() {
      await browser.close();
      await running.stop();
      await hook.stop();
    },
  };
  return page;
}

/** Opens a link of the command line, and presses its button. */
async function enter(running: TestDaemon, browser: Browser, given?: string): Promise<void> {
  const link = given ?? (await running.daemon.enterLink());
  if (link === undefined) throw new Error('the console is off');
  await browser.open(running.base + new URL(link).pathname, ...DESK);
  await browser.evaluate(`document.querySelector('button').click()`);
  await until('the console', () =>
    browser.evaluate(`location.pathname === '/console/' && document.querySelector('main h1') !== null`),
  );
}
