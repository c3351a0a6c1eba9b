import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import { createBrowser } from '../../test/support/console.ts';

const execute = promisify(execFile);

/** Tabs that share a session; a daemon allows six. */
const TABS = 5;
/** How often the start page asks for its figures. */
const EVERY_MS = 10_000;

/** Where the daemon is whose consoles are opened, and the command line of its tree. */
interface Target {
  readonly http: number;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Opens the start page of the console so many times, as an operator has it: the live feed of all mail, and the figures
 * every ten seconds. Returns a function that closes them.
 */
export async function openConsoles(count: number, { http, command, env }: Target): Promise<() => void> {
  const stop = new AbortController();
  const streams: IncomingMessage[] = [];
  for (let opened = 0; opened < count; opened += TABS) {
    const browser = createBrowser(http);
    const { stdout } = await execute(process.execPath, [...command, 'console', 'link'], {
      env: { ...process.env, ...env },
    });
    await browser.press(new URL(stdout.trim()).pathname);
    for (let tab = opened; tab < Math.min(count, opened + TABS); tab++) {
      streams.push(await openLive(http, browser.cookie()));
      void ask(browser, stop.signal);
    }
  }
  return () => {
    stop.abort();
    for (const stream of streams) stream.destroy();
  };
}

async function openLive(port: number, cookie: string | undefined): Promise<IncomingMessage> {
  const headers = { Host: `127.0.0.1:${port}`, 'Sec-Fetch-Site': 'same-origin', Cookie: cookie ?? '' };
  const sent = request({ host: '127.0.0.1', port, path: '/console/live?topics=mail,refused', headers, agent: false });
  sent.end();
  const [stream] = (await once(sent, 'response')) as [IncomingMessage];
  if (stream.statusCode !== 200) throw new Error(`the live feed answers ${stream.statusCode}`);
  return stream.on('error', () => undefined).resume();
}

async function ask(browser: ReturnType<typeof createBrowser>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const names = ['accepted', 'refused_4xx', 'refused_5xx', 'attempts_2xx', 'waiting', 'oldest_waiting'];
    await browser.write('/console/call/host/overview').catch(() => undefined);
    await browser.write('/console/call/host/series', { names }).catch(() => undefined);
    await wait(EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
}
