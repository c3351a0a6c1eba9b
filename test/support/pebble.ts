import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { openSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { freePort } from './free-port.ts';
import { tempDir } from './temp.ts';
import { until } from './until.ts';
import { makeCertificate } from './world/certificates.ts';

/** Why Pebble cannot run here; undefined if it can. */
export const NO_PEBBLE = spawnSync('pebble', ['-version']).error && 'pebble is missing (apt-get install pebble)';

/** The ACME server of Let's Encrypt for tests, on free ports of this machine. */
export interface Pebble {
  /** The URL of its directory, and the file of the root that its own certificate is trusted by. */
  readonly directory: string;
  readonly caFile: string;
  /** The root of the certificates that it issues, which is another one after each start. */
  root(): string;
  /** Its output so far. */
  log(): Promise<string>;
  /** Loses everything that it knows, accounts too. */
  stop(): Promise<void>;
  start(env?: Readonly<Record<string, string>>): Promise<void>;
}

interface PebbleSettings {
  /** The port of 127.0.0.1 at which it looks for the answers to challenges. */
  readonly httpPort: number;
  /** The name server that it asks. */
  readonly dns: string;
  readonly env?: Readonly<Record<string, string>>;
  /** More of its own settings. */
  readonly config?: object;
}

export async function startPebble({ httpPort, dns, env = {}, config = {} }: PebbleSettings): Promise<Pebble> {
  const dir = await tempDir();
  const own = await makeCertificate(dir, 'pebble', ['localhost']);
  const [port, management] = [await freePort(), await freePort()];
  const file = join(dir, 'pebble.json');
  const logFile = join(dir, 'pebble.log');
  await writeFile(
    file,
    JSON.stringify({
      pebble: {
        listenAddress: `127.0.0.1:${port}`,
        managementListenAddress: `127.0.0.1:${management}`,
        certificate: own.cert,
        privateKey: own.key,
        httpPort,
        tlsPort: 1,
        ocspResponderURL: '',
        externalAccountBindingRequired: false,
        ...config,
      },
    }),
  );
  const agent = new Agent({ connect: { rejectUnauthorized: false } });
  let child: ChildProcess | undefined;
  let root = '';

  async function start(more: Readonly<Record<string, string>> = {}): Promise<void> {
    const out = openSync(logFile, 'a');
    child = spawn('pebble', ['-config', file, '-dnsserver', dns], {
      stdio: ['ignore', out, out],
      env: { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: '5', ...env, ...more },
    });
    root = await until('pebble', async () => {
      const answer = await request(`https://127.0.0.1:${management}/roots/0`, { dispatcher: agent }).catch(
        () => false as const,
      );
      return answer && answer.statusCode === 200 && answer.body.text();
    });
  }

  await start();
  return {
    directory: `https://localhost:${port}/dir`,
    caFile: own.cert,
    root: () => root,
    log: () => readFile(logFile, 'utf8'),
    start,
    async stop() {
      const ended = new Promise((resolve) => child?.once('exit', resolve));
      child?.kill();
      await ended;
      child = undefined;
    },
  };
}
