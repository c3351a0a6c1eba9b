import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { KEY } from './daemon.ts';

/** The options of Node that `npm start` and the installed command have. */
const AS_STARTED = ['--max-semi-space-size=8', '--disable-warning=ExperimentalWarning'];

export interface ChildDaemon {
  readonly pid: number;
  readonly smtp: { readonly host: string; readonly port: number };
  /** Where mail is handed over, when that was asked for. */
  readonly submission: readonly { readonly host: string; readonly port: number }[];
  readonly base: string;
  /** Every line of the log so far. */
  readonly lines: { readonly event?: string; readonly [name: string]: unknown }[];
  /** What a person at the terminal saw. */
  said(): string;
  signal(name: NodeJS.Signals): void;
  /** False once it has ended, for whatever reason. */
  running(): boolean;
  /** Ends it by SIGTERM, or the named signal, and answers its exit code (null after SIGKILL). */
  end(name?: NodeJS.Signals): Promise<number | null>;
}

function toHostPort(text: string): { host: string; port: number } {
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at), port: Number(text.slice(at + 1)) };
}

/** The daemon as a process of its own, as `npm start` runs it; `env` holds settings. */
export async function spawnDaemon(
  dir: string,
  env: Readonly<Record<string, string>> = {},
  prefix: readonly string[] = [],
  command: readonly string[] = [process.execPath, ...AS_STARTED, 'src/main.ts'],
): Promise<ChildDaemon> {
  const [program = process.execPath, ...args] = [...prefix, ...command, 'serve'];
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      POSTERN_DATA_DIR: dir,
      POSTERN_HOSTNAME: 'in.postern.test',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_BOOTSTRAP__API_KEY: KEY,
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_DNS__TIMEOUT_MS: '100',
      // As a service of systemd has one: SIGHUP reloads.
      INVOCATION_ID: 'a3f0e1d2c4b5968778695a4b3c2d1e0f',
      ...env,
    },
  });
  const lines: ChildDaemon['lines'] = [];
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += String(chunk);
  });
  const ready = await untilReady(child, lines).catch((error: Error) => {
    throw new Error(`${error.message}\n${said}`);
  });
  return {
    pid: child.pid ?? 0,
    lines,
    said: () => said,
    smtp: toHostPort(ready.smtp[0] ?? ''),
    submission: ready.submission.map(toHostPort),
    base: `http://${ready.http}`,
    signal: (name) => {
      child.kill(name);
    },
    running: () => child.exitCode === null && child.signalCode === null,
    end: (name = 'SIGTERM') => end(child, name),
  };
}

function untilReady(
  child: ChildProcess,
  lines: ChildDaemon['lines'],
): Promise<{ smtp: string[]; submission: string[]; http: string }> {
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the daemon ended with ${code} before it was ready`)));
    if (!child.stdout) return reject(new Error('no output'));
    createInterface({ input: child.stdout }).on('line', (text) => {
      const line = JSON.parse(text);
      lines.push(line);
      if (line.event === 'daemon.ready') resolve(line);
    });
  });
}

async function end(child: ChildProcess, name: NodeJS.Signals): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exited = once(child, 'exit');
  child.kill(name);
  const [code] = await exited;
  return code;
}
