import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds, type Ids } from '../../src/base/ids.ts';
import { createPrometheus } from '../../src/base/prometheus.ts';
import { loadSettings } from '../../src/config.ts';
import { type Daemon, openDaemon } from '../../src/daemon.ts';
import { createTestLog } from './log.ts';
import { tempDir } from './temp.ts';

export const KEY = 'a-key-for-the-tests-22';

export interface Answer {
  readonly status: number;
  readonly body: any;
}

export interface TestDaemon {
  readonly daemon: Daemon;
  readonly dir: string;
  readonly smtp: { readonly host: string; readonly port: number };
  /** Where mail is handed over, when that was asked for. */
  readonly submission: readonly { readonly host: string; readonly port: number }[];
  readonly base: string;
  readonly key: string;
  readonly log: ReturnType<typeof createTestLog>;
  /** Calls an operation with the first account's key; fails unless it answers 200. */
  api(path: string, params?: object): Promise<any>;
  /** Calls it and answers whatever came. */
  ask(path: string, params?: object): Promise<Answer>;
  stop(): Promise<void>;
}

/** What a test's daemon is set to, beside the defaults; `env` as in the environment. */
export function loadTestSettings(dir: string, env: Readonly<Record<string, string>> = {}) {
  return loadSettings(undefined, {
    POSTERN_DATA_DIR: dir,
    POSTERN_HOSTNAME: 'in.postern.test',
    POSTERN_SMTP__LISTEN: '127.0.0.1:0',
    POSTERN_HTTP__LISTEN: '127.0.0.1:0',
    POSTERN_BOOTSTRAP__API_KEY: KEY,
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
    // Nobody answers there: a test that needs DNS brings its own zone, which may be slow to answer on a busy machine.
    POSTERN_DNS__SERVERS: '127.0.0.1:9',
    POSTERN_DNS__TIMEOUT_MS: env['POSTERN_DNS__SERVERS'] === undefined ? '100' : '20000',
    ...env,
  });
}

export const testSettings = (...given: Parameters<typeof loadTestSettings>) => loadTestSettings(...given).settings;

/**
 * The whole daemon in this process, on free ports, in a folder of its own (or in `dir`, to start again on what is
 * there).
 */
export async function startDaemon(
  env: Readonly<Record<string, string>> = {},
  options: { dir?: string; clock?: Clock; ids?: Ids; features?: readonly string[] } = {},
): Promise<TestDaemon> {
  const dir = options.dir ?? (await tempDir());
  const log = createTestLog();
  const clock = options.clock ?? systemClock;
  const ids = options.ids ?? createIds(clock);
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  const features = options.features && { features: options.features };
  const { settings, shown } = loadTestSettings(dir, env);
  const daemon = await openDaemon(settings, { log, clock, ids, metrics, shown, role: 'daemon', ...features });
  const { smtp, submission, http } = await daemon.start().catch(async (error: unknown) => {
    await daemon.stop();
    throw error;
  });
  const base = `http://${http.host}:${http.port}`;
  const address = smtp[0];
  if (!address) throw new Error('no SMTP listener');
  const { api, ask } = createCaller(base, KEY);
  return { daemon, dir, log, smtp: address, submission, base, key: KEY, api, ask, stop: () => daemon.stop() };
}

/** Calls operations of a Postern at `base` as a client of the API does. */
export function createCaller(base: string, key: string) {
  async function ask(path: string, params: object = {}): Promise<Answer> {
    const response = await fetch(`${base}/api/1.0${path}.json`, {
      method: 'POST',
      body: JSON.stringify({ key, ...params }),
    });
    return { status: response.status, body: await response.json() };
  }
  async function api(path: string, params: object = {}): Promise<any> {
    const { status, body } = await ask(path, params);
    if (status !== 200) throw new Error(`${path} answered ${status}: ${JSON.stringify(body)}`);
    return body;
  }
  return { ask, api };
}
