import { readFileSync } from 'node:fs';
import { type ChildDaemon, spawnDaemon } from '../child.ts';
import { createCaller, KEY } from '../daemon.ts';

interface EdgeSettings {
  /** Data folder. */
  readonly dir: string;
  /** Where the mail of in.test is posted. */
  readonly url: string;
  /** Settings, as in the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** The folder is there, with domain and route. */
  readonly prepared?: boolean;
}

/** How one life of the daemon differs from the others. */
export interface Life {
  /**
   * Modules that Node loads before the daemon, in each of its threads: what a control takes away, or where a crash is.
   */
  readonly imports?: readonly URL[];
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Program and arguments that run it. It must leave the daemon its place as our child (`strace -D`), so that signals
   * reach it.
   */
  readonly under?: readonly string[];
}

/** Milliseconds that a start took: on the clock, and of the processors, which a busy machine does not change much. */
export interface Ready {
  readonly wall: number;
  readonly processor: number;
}

/** A daemon of its own on one data folder, which is killed and comes back. */
export interface Edge {
  readonly dir: string;
  /** The daemon that runs. */
  daemon(): ChildDaemon;
  /** Starts it and answers when it was ready. The first start makes domain and route. */
  start(life?: Life): Promise<Ready>;
  /** SIGSTOP: it runs no further; what it asked of the kernel goes on. Only `kill` may follow. */
  freeze(): void;
  /** kill -9; resolves when the process is gone. */
  kill(): Promise<void>;
  /** SIGTERM; answers the exit code. */
  stop(): Promise<number | null>;
}

/** Nothing runs before `start`. */
export function createEdge({ dir, url, env = {}, prepared = false }: EdgeSettings): Edge {
  let child: ChildDaemon | undefined;
  let ready = prepared;
  const daemon = () => {
    if (!child) throw new Error('no daemon runs');
    return child;
  };
  const end = async (signal: NodeJS.Signals) => {
    const code = (await child?.end(signal)) ?? null;
    child = undefined;
    return code;
  };
  return {
    dir,
    daemon,
    async start({ imports = [], env: more = {}, under = [] } = {}) {
      const began = performance.now();
      const options = imports.map(({ href }) => `--import=${href}`).join(' ');
      child = await spawnDaemon(dir, { NODE_OPTIONS: options, ...env, ...more }, under);
      const took = { wall: performance.now() - began, processor: processorTime(child.pid) };
      if (!ready) await prepare(child.base, url);
      ready = true;
      return took;
    },
    freeze() {
      process.kill(daemon().pid, 'SIGSTOP');
    },
    async kill() {
      await end('SIGKILL');
    },
    stop: () => end('SIGTERM'),
  };
}

/** Everything for in.test goes to `url`. */
async function prepare(base: string, url: string): Promise<void> {
  const { api } = createCaller(base, KEY);
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url });
}

/**
 * Milliseconds of processor that a process has used, from the 14th and 15th field of its `stat`, in hundredths of a
 * second.
 */
function processorTime(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
