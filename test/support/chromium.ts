import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { afterFile } from './cleanup.ts';
import { tempDir } from './temp.ts';
import { until } from './until.ts';

/** A browser without a window, showing one page. */
export interface Browser {
  /** Shows a page in a window of that size. */
  open(url: string, width: number, height: number): Promise<void>;
  /** Gives the window another size. */
  resize(width: number, height: number): Promise<void>;
  /** Whether the person prefers dark pages. */
  prefer(scheme: 'light' | 'dark'): Promise<void>;
  /** The value of a JavaScript expression on the page, awaited, as JSON would hold it. */
  evaluate(expression: string): Promise<any>;
  /** Presses a key such as `j`, `Enter` or `ArrowRight`. */
  press(key: string): Promise<void>;
  /** Types a text into what has the focus. */
  type(text: string): Promise<void>;
  /** Clicks a point of the window with the mouse. */
  click(x: number, y: number): Promise<void>;
  /** The clock of the pages that are opened from now on is this much ahead, in UTC. */
  setAhead(ms: number): Promise<void>;
  /** Runs a script before those of the pages that are opened from now on. */
  runFirst(script: string): Promise<void>;
  /** Every answer comes this much later, and nothing is kept from one page to the next. */
  slowDown(latency: number): Promise<void>;
  /** Asks for a URL in another tab, as long as `until` takes. */
  elsewhere(url: string, until: () => Promise<unknown>): Promise<void>;
  /** The contents of the frames of the page, regardless of origin. */
  framed(): Promise<string>;
  /** What the window shows, as a PNG, or smaller as WebP. */
  screenshot(format?: 'png' | 'webp'): Promise<Buffer>;
  close(): Promise<void>;
}

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Several pages may be open, and each of them is looked at.
  '--disable-background-timer-throttling',
  '--disable-backgrounding-occluded-windows',
  '--disable-renderer-backgrounding',
  '--disable-dev-shm-usage',
  '--remote-debugging-port=0',
];

/** Codes of keys that are more than a character. */
const VIRTUAL: Readonly<Record<string, number>> = { Enter: 13, Escape: 27, Tab: 9, ArrowLeft: 37, ArrowRight: 39 };

/** The program, when it is on the PATH. */
export function chromium(): string | undefined {
  const files = (process.env['PATH'] ?? '')
    .split(delimiter)
    .flatMap((dir) => ['chromium', 'chromium-browser'].map((name) => join(dir, name)));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** The program while it runs. It is started once a run: each `startBrowser` gets a profile of its own in it. */
interface Running {
  readonly port: number;
  readonly session: Session;
  stop(): Promise<void>;
}

const running = new Map<string, Promise<Running>>();

afterFile(async () => {
  const all = [...running.values()];
  running.clear();
  // One that did not start has said so where it was needed.
  for (const one of await Promise.allSettled(all)) if (one.status === 'fulfilled') await one.value.stop();
});

function start(program: string): Promise<Running> {
  const known = running.get(program) ?? run(program);
  running.set(program, known);
  return known;
}

async function run(program: string): Promise<Running> {
  const dir = await tempDir();
  const child = spawn(program, [...FLAGS, `--user-data-dir=${dir}`, 'about:blank'], { stdio: 'ignore' });
  const stop = () => {
    child.kill('SIGKILL');
  };
  process.once('exit', stop);
  const [port, path] = await portOf(join(dir, 'DevToolsActivePort'), child);
  const session = await connect(`ws://127.0.0.1:${port}${path}`);
  return {
    port,
    session,
    async stop() {
      session.close();
      process.off('exit', stop);
      const gone = new Promise((resolve) => child.once('exit', resolve));
      stop();
      await gone;
      // Its other processes end a moment later, and write until then.
      await rm(dir, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

/**
 * A page with cookies, a cache and storage of its own. Speaks the program's debugging protocol (Chrome DevTools Protocol), by which
 * one can ask what a person would see.
 */
export async function startBrowser(program: string): Promise<Browser> {
  const { port, session: whole } = await start(program);
  const { browserContextId } = await whole.send('Target.createBrowserContext', { disposeOnDetach: true });
  const { targetId } = await whole.send('Target.createTarget', { url: 'about:blank', browserContextId });
  const session = await connect(`ws://127.0.0.1:${port}/devtools/page/${targetId}`);
  await session.send('Page.enable');
  await session.send('Emulation.setFocusEmulationEnabled', { enabled: true });
  const resize = (width: number, height: number) =>
    session.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 500 });
  const runFirst = async (source: string) => {
    await session.send('Page.addScriptToEvaluateOnNewDocument', { source });
  };
  return {
    resize,
    async open(url, width, height) {
      await resize(width, height);
      const loaded = session.once('Page.loadEventFired');
      await session.send('Page.navigate', { url });
      await loaded;
    },
    async prefer(scheme) {
      await session.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    },
    async evaluate(expression) {
      for (;;) {
        try {
          const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
            expression,
            returnByValue: true,
            awaitPromise: true,
          });
          if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
          return result.value;
        } catch (error) {
          // A link or a form replaced the page meanwhile: the question is for the page that came.
          if (!String(error).includes('Inspected target navigated')) throw error;
        }
      }
    },
    async press(key) {
      const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined;
      await session.send('Input.dispatchKeyEvent', {
        type: text === undefined ? 'rawKeyDown' : 'keyDown',
        key,
        ...(text !== undefined && { text }),
        ...(key in VIRTUAL && { windowsVirtualKeyCode: VIRTUAL[key] }),
      });
      await session.send('Input.dispatchKeyEvent', { type: 'keyUp', key });
    },
    async type(text) {
      await session.send('Input.insertText', { text });
    },
    async click(x, y) {
      const at = { x, y, button: 'left', clickCount: 1 };
      await session.send('Input.dispatchMouseEvent', { type: 'mousePressed', ...at });
      await session.send('Input.dispatchMouseEvent', { type: 'mouseReleased', ...at });
    },
    async setAhead(ms) {
      await session.send('Emulation.setTimezoneOverride', { timezoneId: 'UTC' });
      await runFirst(`window.Date = class extends Date {
        constructor(...given) { if (given.length === 0) super(window.Date.now()); else super(...given); }
        static now() { return super.now() + ${ms}; }
      };`);
    },
    runFirst,
    async slowDown(latency) {
      await session.send('Network.enable');
      await session.send('Network.setCacheDisabled', { cacheDisabled: latency > 0 });
      const speed = { offline: false, downloadThroughput: -1, uploadThroughput: -1 };
      await session.send('Network.emulateNetworkConditions', { latency, ...speed });
    },
    async elsewhere(url, until) {
      const tab = await whole.send('Target.createTarget', { url, browserContextId, background: true });
      await until();
      await whole.send('Target.closeTarget', { targetId: tab.targetId });
    },
    async framed() {
      const { root } = await session.send('DOM.getDocument', { depth: -1, pierce: true });
      const texts = framesOf(root).map((frame) => htmlOf(session, frame));
      // Frames of other sites have processes of their own.
      const targets: any = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
      for (const { type, parentId, webSocketDebuggerUrl } of targets) {
        if (type !== 'iframe' || parentId !== targetId) continue;
        const frame = await connect(webSocketDebuggerUrl);
        const document = await frame.send('DOM.getDocument', { depth: 0 });
        texts.push(htmlOf(frame, document.root));
        await texts.at(-1);
        frame.close();
      }
      return (await Promise.all(texts)).join('\n');
    },
    async screenshot(format = 'png') {
      const { data } = await session.send('Page.captureScreenshot', {
        format,
        ...(format === 'webp' && { quality: 76 }),
      });
      return Buffer.from(data, 'base64');
    },
    async close() {
      session.close();
      await whole.send('Target.disposeBrowserContext', { browserContextId });
    },
  };
}

/** The documents of the frames in a page that its own process holds. */
function framesOf(node: any): any[] {
  const own = node.contentDocument ? [node.contentDocument] : [];
  return [...own, ...[...(node.children ?? []), ...own].flatMap(framesOf)];
}

/** Empty if the page has changed meanwhile. */
function htmlOf(session: Session, { nodeId }: any): Promise<string> {
  return session.send('DOM.getOuterHTML', { nodeId }).then(
    ({ outerHTML }) => outerHTML,
    () => '',
  );
}

/** The port at which it talks, and the path of the program as a whole. */
async function portOf(file: string, child: ChildProcess): Promise<readonly [port: number, path: string]> {
  const [port, path = ''] = await until('the browser to listen', async () => {
    if (child.exitCode !== null) throw new Error(`the browser ended with ${child.exitCode}`);
    const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n');
    return lines.length > 1 && lines;
  });
  return [Number(port), path];
}

interface Session {
  send(method: string, params?: object): Promise<any>;
  once(event: string): Promise<void>;
  close(): void;
}

async function connect(url: string): Promise<Session> {
  const socket = new WebSocket(url);
  const answers = new Map<number, (message: any) => void>();
  const events = new Map<string, () => void>();
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(String(data));
    if (message.id === undefined) return events.get(message.method)?.();
    answers.get(message.id)?.(message);
    answers.delete(message.id);
  });
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve());
    socket.addEventListener('error', () => reject(new Error('the browser does not talk')));
  });
  let last = 0;
  return {
    send: (method, params = {}) =>
      new Promise((resolve, reject) => {
        const id = ++last;
        answers.set(id, ({ result, error }) =>
          error ? reject(new Error(`${method}: ${JSON.stringify(error)}`)) : resolve(result),
        );
        socket.send(JSON.stringify({ id, method, params }));
      }),
    once: (event) =>
      new Promise((resolve) => {
        events.set(event, resolve);
      }),
    close: () => socket.close(),
  };
}
