import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';

const CLOCK = Number(process.hrtime.bigint()) / 1e6 - performance.now();

/** Milliseconds of a clock that all processes of this machine share, and that nobody sets. */
export const now = (): number => CLOCK + performance.now();

export interface Running {
  readonly pid: number;
  readonly first: any;
  stop(): Promise<void>;
}

/**
 * Starts a node script and answers when it printed its first JSON line that `ready` accepts. What it prints from then on
 * is thrown away unread.
 */
export async function start(
  args: readonly string[],
  env: Record<string, string> = {},
  ready = (_line: any) => true,
): Promise<Running> {
  const { child, noise } = launch(process.execPath, args, env, 'pipe');
  const first = await new Promise<any>((resolve, reject) => {
    const lines = linesOf(child).on('line', (line) => {
      const parsed = line.startsWith('{') ? JSON.parse(line) : undefined;
      if (!parsed || !ready(parsed)) return;
      resolve(parsed);
      lines.close();
      child.stdout?.resume();
    });
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}: ${noise()}`)));
  });
  return { pid: child.pid ?? 0, first, stop: () => stop(child) };
}

/**
 * Starts any program as a session of its own and answers when it listens on that port of 127.0.0.1. Its children end
 * with it. What it prints goes to /dev/null: whoever read it would do so on the processors that are measured.
 */
export async function startListener(
  program: string,
  args: readonly string[],
  port: number,
  env: Record<string, string> = {},
): Promise<Omit<Running, 'first'>> {
  watchSignals();
  const { child, noise } = launch(program, args, env, 'ignore');
  for (let tries = 0; !(await answers(port)); tries++) {
    if (child.exitCode !== null || tries > 1000) {
      await stop(child, true);
      throw new Error(`${program} ${args.join(' ')} does not listen (${child.exitCode}): ${noise()}`);
    }
    await wait(10);
  }
  return { pid: child.pid ?? 0, stop: () => stop(child, true) };
}

function launch(program: string, args: readonly string[], env: Record<string, string>, out: 'pipe' | 'ignore') {
  const child = spawn(program, [...args], {
    detached: out === 'ignore',
    stdio: ['ignore', out, 'pipe'],
    env: { ...process.env, ...env },
  });
  let noise = '';
  child.stderr?.on('data', (chunk) => {
    noise = (noise + String(chunk)).slice(-4000);
  });
  return { child, noise: () => noise };
}

function linesOf({ stdout }: ChildProcess) {
  if (!stdout) throw new Error('its output goes elsewhere');
  return createInterface({ input: stdout });
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

function stop(child: ChildProcess, group = false): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', () => resolve());
    if (group && child.pid !== undefined) process.kill(-child.pid, 'SIGTERM');
    else child.kill('SIGTERM');
  });
}

/** Scripts that run to their end. */
const scripts = new Set<ChildProcess>();
let signal: NodeJS.Signals | undefined;

/** The signal that is to end this process. */
export const interrupted = (): NodeJS.Signals | undefined => signal;

/**
 * From now on a signal ends the scripts, and no further one begins: whoever waits for one hears of a fault, and stops
 * what it has started, which a signal does not reach.
 */
function watchSignals(): void {
  const hear = (heard: NodeJS.Signals) => {
    signal = heard;
    for (const child of scripts) child.kill();
  };
  if (process.listenerCount('SIGTERM') === 0) process.on('SIGINT', hear).on('SIGTERM', hear);
}

/** Runs a node script to its end and answers its last line of JSON; `each` hears all lines. */
export async function run(args: readonly string[], each = (_line: any): void => {}): Promise<any> {
  watchSignals();
  if (signal) throw new Error(`ended by ${signal}`);
  const { child, noise } = launch(process.execPath, args, {}, 'pipe');
  scripts.add(child);
  let last: any;
  linesOf(child).on('line', (line) => {
    last = JSON.parse(line);
    each(last);
  });
  const code = await new Promise((resolve) => child.once('close', resolve));
  scripts.delete(child);
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${noise()}`);
  return last;
}

/**
 * The fields of proc(5) behind the name of the program: 1 is the parent, 3 the session, from 11 on user and system
 * ticks, own and those of dead children.
 */
function statOf(pid: number | string): readonly string[] {
  return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
}

/** Seconds of processor time of a process so far, all its threads (100 ticks a second). */
export function cpuSeconds(pid: number): number {
  const fields = statOf(pid);
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Processor time of the processes of a session, and of those that its leader has seen end. */
export function sessionSeconds(leader: number): number {
  return sumOf(leader, (pid, fields) => {
    const [user = 0, system = 0, deadUser = 0, deadSystem = 0] = fields.slice(11, 15).map(Number);
    return (user + system + (pid === leader ? deadUser + deadSystem : 0)) / 100;
  });
}

/** Memory of the processes of a session in MB; what several share counts once in all. */
export function sessionMb(leader: number): number {
  return sumOf(
    leader,
    (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]) / 1024,
  );
}

function sumOf(leader: number, value: (pid: number, fields: readonly string[]) => number): number {
  let sum = 0;
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const fields = statOf(name);
      if (Number(fields[3]) === leader) sum += value(Number(name), fields);
    } catch {
      // It ended in between; its leader has its time.
    }
  }
  return sum;
}

/** Peak and present resident memory in MB. */
export function memoryMb(pid: number): { peak: number; now: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const of = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024;
  return { peak: of('VmHWM'), now: of('VmRSS') };
}
