import { once } from 'node:events';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { until } from '../until.ts';
import { begin, has, must, type Ran, run } from './run.ts';

/** Why no Debian can be made and entered here, or one of the programs is missing; undefined when all is there. */
export async function whyNoRoots(...programs: readonly string[]): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'not root';
  for (const program of ['debootstrap', 'systemd-nspawn', 'nsenter', ...programs])
    if (!(await has(program))) return `${program} is not installed`;
  const namespaces = await run('unshare', ['--mount', '--pid', '--net', '--fork', 'true']);
  return namespaces.code === 0 ? undefined : 'no namespaces may be made here';
}

/** Which Debian the machine is, and where its own apt gets it from. */
function mirror(): { readonly url: string | undefined; readonly suite: string } {
  const suite = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'stable';
  const files = ['/etc/apt/sources.list.d/debian.sources', '/etc/apt/sources.list'].filter((file) => existsSync(file));
  const url = files
    .map((file) => /^(?:URIs:|deb(?: \[[^\]]*\])?) *(https?:\S+)/m.exec(readFileSync(file, 'utf8'))?.[1])
    .find((found) => found !== undefined);
  return { url, suite };
}

/**
 * A clean Debian below `root`, with nothing in it but what every host has. DEBIAN_ROOT names one to copy, if it is
 * there: .ci/run makes one for all.
 */
export async function makeRoot(root: string): Promise<void> {
  const made = process.env['DEBIAN_ROOT'];
  if (made !== undefined && existsSync(made)) return void (await must('cp', ['-a', '--reflink=auto', made, root]));
  const { url, suite } = mirror();
  await must('debootstrap', [
    '--variant=minbase',
    '--include=systemd,ca-certificates',
    suite,
    root,
    ...(url === undefined ? [] : [url]),
  ]); // without one it knows its own
}

// nspawn mounts proc, dev and the rest in a namespace of its own: nothing is ever mounted on the host, so nothing can
// stay.
const common = (root: string) => ['-q', '-D', root, '--register=no', '--keep-unit', '--link-journal=no'];

/** The command is run dozens of times on a host: what Node compiled for one run is there for the next. */
const COMPILED = 'NODE_COMPILE_CACHE=/root/compiled';

/** Runs a command in the root that nobody has booted, with the network of the host, as a build of an image would. */
export const inRoot = (root: string, ...command: string[]): Promise<Ran> => inRootWith(root, [], ...command);

/** The same with more options of nspawn, such as `--overlay=`. */
export const inRootWith = (root: string, options: readonly string[], ...command: string[]): Promise<Ran> =>
  run('systemd-nspawn', enterWith(root, ['--as-pid2', ...options], ...command));

/** The arguments of systemd-nspawn for that; the command is the first process there. */
export const enterWith = (root: string, options: readonly string[], ...command: string[]): string[] => [
  ...common(root),
  ...options,
  '--pipe',
  '--setenv=DEBIAN_FRONTEND=noninteractive',
  '--setenv=LC_ALL=C.UTF-8',
  `--setenv=${COMPILED}`,
  '--',
  ...command,
];

/** A host that runs: systemd is its first process, its network is a loopback of its own. */
export interface Machine {
  readonly pid: number;
  run(...command: string[]): Promise<Ran>;
  /** The same for what must go well. */
  must(...command: string[]): Promise<string>;
  /** Does something in its network, see agent.ts. */
  ask(command: Readonly<Record<string, unknown>>): Promise<unknown>;
  /** Where its webhook is. */
  readonly hook: string;
  stop(): Promise<void>;
}

/**
 * The first process of the container that this nspawn holds, once it stands in namespaces of its own: nothing may ever
 * be done to the host.
 */
function leaderOf(nspawn: number): number | undefined {
  try {
    const pid = Number(readFileSync(`/proc/${nspawn}/task/${nspawn}/children`, 'utf8').trim());
    const own = (space: string) => readlinkSync(`/proc/${pid}/ns/${space}`) !== readlinkSync(`/proc/self/ns/${space}`);
    return pid > 0 && ['mnt', 'pid', 'net', 'uts', 'ipc'].every(own) ? pid : undefined;
  } catch {
    return undefined; // it is not there yet, or no more
  }
}

/** The control groups of a systemd, or of the machine. */
const GROUPS = '/sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified';

/**
 * Starts nspawn in a control group of its own. Without it, all containers of this machine share one, and the systemd of
 * one removes the groups of another while it starts a service in them (status=219/CGROUP).
 */
const IN_OWN_GROUP =
  `group=$1; shift; for at in ${GROUPS}; do ` +
  '[ ! -f "$at/cgroup.procs" ] || { mkdir -p "$at/$group" && echo $$ >"$at/$group/cgroup.procs"; } || exit; done; ' +
  'exec systemd-nspawn "$@"';

/** Removes the control groups of a container that has ended. */
const removeGroup = (group: string): Promise<Ran> =>
  run('sh', ['-c', `for at in ${GROUPS}; do find "$at/$1" -depth -type d -exec rmdir {} +; done`, 'sh', group]);

/**
 * Boots the root, in a network of its own or in the one of a namespace that is there already. Undefined when that does
 * not work here: containers are not to be had everywhere.
 */
export async function boot(root: string, network?: string): Promise<Machine | undefined> {
  const group = `postern-${process.pid}`;
  const spawned = begin('sh', [
    '-c',
    IN_OWN_GROUP,
    'sh',
    group,
    ...common(root),
    '--boot',
    ...(network === undefined ? ['--private-network'] : [`--network-namespace-path=${network}`, '--resolv-conf=off']),
    '--console=pipe',
    `--machine=${group}`,
  ]);
  spawned.stdout.resume();
  const gone = once(spawned, 'exit');
  const leader = () => leaderOf(spawned.pid ?? 0);
  /** Its first process takes all others along; nspawn alone would leave them behind. */
  const kill = () => {
    const first = leader();
    if (first !== undefined) process.kill(first, 'SIGKILL');
    spawned.kill('SIGKILL');
  };
  process.once('exit', kill);
  const enter = async (...command: string[]) =>
    run('nsenter', [
      '-t',
      String(leader() ?? 'nobody'),
      '-m',
      '-u',
      '-i',
      '-n',
      '-p',
      '--',
      'env',
      '-i',
      'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
      'LC_ALL=C.UTF-8',
      COMPILED,
      'DEBIAN_FRONTEND=noninteractive',
      ...command,
    ]);
  const up = () =>
    spawned.exitCode !== null ||
    enter('systemctl', 'is-system-running').then(
      ({ out }) => /running|degraded/.test(out),
      () => false,
    );
  await until('the container', up, 30_000).catch(kill);
  const pid = leader();
  if (pid === undefined) return undefined;
  const agent = await openAgent(['nsenter', '-t', String(pid), '-n']);
  return Object.freeze({
    pid,
    hook: agent.hook,
    ask: agent.ask,
    run: enter,
    async must(...command: string[]) {
      const { code, out, err } = await enter(...command);
      if (code !== 0) throw new Error(`${command.join(' ')}: ${code}\n${out}\n${err}`);
      return out;
    },
    async stop() {
      await agent.stop();
      spawned.kill('SIGTERM'); // nspawn asks its systemd to halt
      const late = setTimeout(kill, 10_000);
      await gone;
      process.off('exit', kill);
      clearTimeout(late);
      await removeGroup(group);
    },
  });
}

/**
 * A program of the test in another network, which `enter` before a command leads to; its webhook is at `listen`, by
 * default on loopback.
 */
export async function openAgent([program = '', ...words]: readonly string[], ...listen: readonly string[]) {
  const child = begin(program, [...words, process.execPath, join(import.meta.dirname, 'agent.ts'), ...listen]);
  const waiting = new Map<number, (answer: { result?: unknown; fault?: string }) => void>();
  const answerOf = (id: number) =>
    new Promise<{ result?: unknown; fault?: string }>((resolve) => waiting.set(id, resolve));
  const gone = once(child, 'exit').then(() => {
    for (const tell of waiting.values()) tell({ fault: 'the agent has ended' });
  });
  const first = answerOf(0);
  createInterface({ input: child.stdout }).on('line', (line) => {
    const answer = JSON.parse(line);
    waiting.get(answer.id)?.(answer);
    waiting.delete(answer.id);
  });
  let asked = 0;
  return {
    hook: String((await first).result),
    async ask(command: Readonly<Record<string, unknown>>): Promise<unknown> {
      const id = ++asked;
      const answer = answerOf(id);
      child.stdin.write(`${JSON.stringify({ id, ...command })}\n`);
      const { result, fault } = await answer;
      if (fault !== undefined) throw new Error(fault);
      return result;
    },
    async stop() {
      child.stdin.end();
      child.kill('SIGTERM');
      await gone;
    },
  };
}
