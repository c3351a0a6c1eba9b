import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { begin, must, type Ran, run } from '../package/run.ts';
import { until } from '../until.ts';

// Two network namespaces and a wire between them: the host under test, and everybody else. Neither has a way out, so
// the addresses can be those of the Internet, which the guards of Postern let pass: 25/8 is announced nowhere, and
// 2d00::/8 was never given to anybody.

/** The last part of both addresses of everybody here. */
export const PARTS = {
  gateway: 1,
  host: 10,
  acme: 14,
  sender: 25,
  receiver: 26,
  resolver: 53,
  authority: 54,
  app: 80,
} as const;
type Party = keyof typeof PARTS;

export const v4 = (party: Party) => `25.66.0.${PARTS[party]}`;
export const v6 = (party: Party) => `2d00:66::${PARTS[party]}`;

export interface Network {
  /** The network namespace of the host under test, for systemd-nspawn. */
  readonly hostSpace: string;
  /** What to write before a command that is to run among the others, with their /etc/resolv.conf. */
  readonly outside: readonly string[];
  /** The same for the network of the host, and nothing else of it. */
  readonly inside: readonly string[];
  run(...command: readonly string[]): Promise<Ran>;
  must(...command: readonly string[]): Promise<string>;
  /** Starts a server that ends with the network; what it says goes to a file. */
  serve(log: string, ...command: readonly string[]): void;
  stop(): Promise<void>;
}

/** Makes the two namespaces; `dir` gets the files that the others see in the place of /etc/resolv.conf and /etc/hosts. */
export async function openNetwork(dir: string): Promise<Network> {
  await mkdir(dir);
  await writeFile(join(dir, 'resolv.conf'), `nameserver ${v4('resolver')}\n`);
  await writeFile(join(dir, 'hosts'), '127.0.0.1 localhost\n::1 localhost\n');
  const mounts = ['resolv.conf', 'hosts'].map((name) => `mount --bind ${join(dir, name)} /etc/${name}`).join(' && ');
  // The first process of each ends with its standard input, which is ours, and takes all others along.
  const world = await hold(['--mount', '--pid', '--fork', '--kill-child', '--mount-proc'], `${mounts} && exec cat`);
  const host = await hold([], 'exec cat');
  const outside = ['nsenter', '-t', String(world.pid), '-n', '-m', '-p', '--'];
  const inside = ['nsenter', '-t', String(host.pid), '-n', '--'];
  const others = (Object.keys(PARTS) as Party[]).filter((party) => party !== 'host');
  const ip = (space: readonly string[], lines: readonly string[]) =>
    must(space[0] ?? '', [...space.slice(1), 'ip', '-batch', '-'], { input: `${lines.join('\n')}\n` });
  // Not in its process namespace, where the host has no id.
  await ip(
    ['nsenter', '-t', String(world.pid), '-n', '--'],
    [
      'link set lo up',
      `link add world0 type veth peer name host0 netns ${host.pid}`,
      ...others.flatMap((party) => [
        `addr add ${v4(party)}/16 dev world0`,
        `addr add ${v6(party)}/64 dev world0 nodad`,
      ]),
      'link set world0 up',
    ],
  );
  await ip(inside, [
    'link set lo up',
    `addr add ${v4('host')}/16 dev host0`,
    `addr add ${v6('host')}/64 dev host0 nodad`,
    'link set host0 up',
    `route add default via ${v4('gateway')}`,
    `route add default via ${v6('gateway')}`,
  ]);
  const [program = '', ...words] = outside;
  const served: Promise<unknown>[] = [];
  return {
    hostSpace: `/proc/${host.pid}/ns/net`,
    outside,
    inside,
    run: (...command) => run(program, [...words, ...command]),
    must: (...command) => must(program, [...words, ...command]),
    serve(log, ...command) {
      // Not killed by its id: nsenter, which is what we know, passes no signal on.
      const child = begin('sh', ['-c', 'exec "$@" >>"$0" 2>&1', log, ...outside, ...command]);
      served.push(once(child, 'exit'));
    },
    async stop() {
      await host.stop();
      await world.stop();
      await Promise.all(served);
    },
  };
}

/** A process that holds new namespaces: those of `flags`, and one of the network. */
async function hold(flags: readonly string[], script: string) {
  const child = begin('unshare', ['--net', ...flags, 'sh', '-c', script]);
  const gone = once(child, 'exit');
  child.stdout.resume();
  const { pid = 0 } = child;
  const inner = async () => {
    if (child.exitCode !== null) throw new Error('the namespaces could not be made');
    const first = flags.includes('--fork') ? Number(await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')) : pid;
    // Only once it is what it will be does it stand in its namespaces.
    return first > 0 && (await readFile(`/proc/${first}/comm`, 'utf8')) === 'cat\n' ? first : undefined;
  };
  return {
    pid: await until('the namespaces', inner),
    async stop() {
      child.stdin.end();
      await gone;
    },
  };
}
