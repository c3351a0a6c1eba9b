import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ChildDaemon, spawnDaemon } from '../child.ts';
import { createCaller, KEY } from '../daemon.ts';
import { type Received, type Receiver, startReceiver } from '../receiver.ts';
import { tempDir } from '../temp.ts';
import { until } from '../until.ts';
import { type Patch, withHooks } from './patches.ts';

/** A daemon in a process of its own that takes mail for in.test, and the webhook that it posts to. */
export interface Victim {
  readonly postern: ChildDaemon;
  readonly dir: string;
  readonly hook: Receiver;
  api(path: string, params?: object): Promise<any>;
  /** Posts of mail so far. */
  posts(): Received[];
  /** Memory of the process now, in MB. */
  rss(): Promise<number>;
  /** The most memory since `forgetPeak`, in MB; the kernel keeps count of it. */
  peak(): Promise<number>;
  forgetPeak(): Promise<void>;
  /** Seconds of a processor that the daemon has used, on all its threads. */
  used(): Promise<number>;
  /**
   * How late the loop of the daemon was since the last question, as it measures itself, in milliseconds; and the most
   * that it held the processor at a time.
   */
  lateness(): Promise<{ readonly p99: number; readonly most: number; readonly held: number }>;
  /** What stands in the log that is no one's fault but ours, and whatever a crash would print. */
  faults(): string[];
  /** Forgets what else stands in the log, when there is much of it. */
  forgetLog(): void;
  stop(): Promise<void>;
}

interface VictimOptions {
  /** Settings, as in the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Protections that are switched off. */
  readonly patches?: readonly Patch[];
  /** Megabytes of its heap. */
  readonly heapMb?: number;
  /** Where its mail goes instead of to a receiver of its own. */
  readonly url?: string;
}

export async function startVictim({ env = {}, patches = [], heapMb, url }: VictimOptions = {}): Promise<Victim> {
  const dir = await tempDir();
  const gauge = join(await tempDir(), 'gauge.json');
  const hook = await startReceiver();
  const hooks = withHooks(patches, gauge);
  if (heapMb !== undefined) hooks['NODE_OPTIONS'] += ` --max-old-space-size=${heapMb}`;
  const postern = await spawnDaemon(dir, { ...env, ...hooks }).catch(async (error: unknown) => {
    await hook.stop();
    throw error;
  });
  const { api } = createCaller(postern.base, KEY);
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: url ?? hook.url });
  const status = async (name: string) => {
    const text = await readFile(`/proc/${postern.pid}/status`, 'utf8');
    return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? NaN) / 1024;
  };
  return {
    postern,
    dir,
    hook,
    api,
    // Without the questions whether the URL is there.
    posts: () => hook.requests.filter(({ method, body }) => method === 'POST' && body.length > 30),
    rss: () => status('VmRSS'),
    peak: () => status('VmHWM'),
    forgetPeak: () => writeFile(`/proc/${postern.pid}/clear_refs`, '5'),
    async used() {
      // Behind the name, which may hold blanks: fields 14 and 15 of proc_pid_stat(5), in hundredths of a second.
      const fields = (await readFile(`/proc/${postern.pid}/stat`, 'utf8')).split(') ').at(-1)?.split(' ') ?? [];
      return (Number(fields[11]) + Number(fields[12])) / 100;
    },
    async lateness() {
      await rm(gauge, { force: true });
      postern.signal('SIGUSR2');
      return until('the gauge', async () => JSON.parse((await readFile(gauge, 'utf8').catch(() => '')) || 'false'));
    },
    faults: () => [
      ...postern.lines.filter(isFault).map((line) => JSON.stringify(line)),
      ...postern
        .said()
        .split('\n')
        .filter((line) => /Error|\bat .*:\d+:\d+|Warning/.test(line)),
    ],
    forgetLog() {
      postern.lines.splice(0, postern.lines.length, ...postern.lines.filter(isFault));
    },
    async stop() {
      await postern.end('SIGKILL');
      await hook.stop();
    },
  };
}

function isFault({ event, level }: ChildDaemon['lines'][number]): boolean {
  // Tests without a zone have no name server.
  return level === 'error' || (event?.endsWith('.fault') === true && event !== 'dns.fault');
}
