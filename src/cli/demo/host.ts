import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { frozen } from '../../base/frozen.ts';
import { moduleUrl } from '../../base/module-url.ts';
import type { Io } from '../command.ts';
import type { Cleanup } from './cleanup.ts';
import { freePort } from './free-port.ts';
import { caller } from './services.ts';

/** How long a host may take to start. Milliseconds. */
const START_MS = 60_000;
const LOOK_MS = 50;

const PROGRAM = [
  '--max-semi-space-size=8',
  '--disable-warning=ExperimentalWarning',
  fileURLToPath(moduleUrl('../../main.ts', import.meta.url)),
];

interface DemoHostSettings {
  readonly name: string;
  readonly folder: string;
  readonly key: string;
  /** All settings besides the folders and listeners of the host. */
  readonly settings: Readonly<Record<string, object>>;
  readonly cleanup: Cleanup;
  readonly io: Io;
  readonly ending: AbortSignal;
}

/** A host of the demo: the daemon as a process of its own, with a folder of its own. */
export type DemoHost = Awaited<ReturnType<typeof startDemoHost>>;

export async function startDemoHost(given: DemoHostSettings) {
  const { name, folder, key, settings, cleanup, ending } = given;
  const env = withoutSettings(given.io.env);
  const dir = join(folder, name.replace(/\..*/, ''));
  const [file, log] = [`${dir}.yaml`, `${dir}.log`];
  const smtp = { host: '127.0.0.1', port: await freePort() };
  const http = `127.0.0.1:${await freePort()}`;
  const url = `http://${http}`;
  await mkdir(dir);
  // JSON is YAML.
  await writeFile(
    file,
    `${JSON.stringify(
      {
        data_dir: dir,
        hostname: name,
        public_url: url,
        smtp: { listen: [`${smtp.host}:${smtp.port}`] },
        http: { listen: http, peer_url: url },
        bootstrap: { api_key: key },
        spool: { min_free_percent: 0, min_free_bytes: 0 },
        ...settings,
      },
      null,
      2,
    )}\n`,
  );
  const output = openSync(log, 'a');
  // Not in our process group: Ctrl-C is for the demo, which ends its hosts.
  ending.throwIfAborted();
  const child = spawn(process.execPath, [...PROGRAM, 'serve', '--config', file], {
    stdio: ['ignore', output, output],
    detached: true,
    env,
  });
  cleanup.addProcess(child, 'SIGTERM');
  closeSync(output);
  const until = performance.now() + START_MS;
  while (!(await isReady(url))) {
    if (child.exitCode !== null || child.signalCode !== null || performance.now() > until)
      throw new Error(`${name} does not start: ${(await readFile(log, 'utf8')).trim().split('\n').at(-1)}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  return frozen({
    name,
    pid: child.pid ?? 0,
    smtp,
    url,
    /** Its settings, for `postern … --config FILE`. */
    file,
    log,
    call: caller(`${url}/api/1.0`, key),
    /** Node's arguments before those of a `postern` command, and its environment. */
    program: PROGRAM,
    env,
    /** Kills it, and removes its folder. */
    async lose() {
      await cleanup.end(child, 'SIGKILL');
      await rm(dir, { recursive: true });
    },
  });
}

/** The environment without the operator's settings and service manager. */
function withoutSettings(env: Io['env']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      value === undefined || /^(?:POSTERN_|NOTIFY_SOCKET|LISTEN_|INVOCATION_ID|WATCHDOG_)/.test(name)
        ? []
        : [[name, value]],
    ),
  );
}

const isReady = (url: string): Promise<boolean> =>
  fetch(`${url}/readyz`).then(
    ({ ok }) => ok,
    () => false,
  );
