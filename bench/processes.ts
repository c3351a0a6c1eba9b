import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

export interface Running { readonly pid: number; readonly first: any; stop(): Promise<void> }

/** Starts a node script and answers when it printed its first JSON line that `ready` accepts. */
export async function start(args: readonly string[], env: Record<string, string> = {}, ready = (_line: any) => true): Promise<Running> {
  const child = spawn(process.execPath, [...args], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let noise = '';
  child.stderr.on('data', (chunk) => { noise = (noise + String(chunk)).slice(-4000); });
  const first = await new Promise<any>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const parsed = line.startsWith('{') ? JSON.parse(line) : undefined;
      if (parsed && ready(parsed)) resolve(parsed);
    });
    child.once('exit', (code) => reject(new Error(`${args.join(' ')} ended with ${code}: ${noise}`)));
  });
  return { pid: child.pid ?? 0, first, stop: () => stop(child) };
}

function stop(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null) return resolve();
    child.once('exit', () => resolve());
    child.kill('SIGTERM');
  });
}

/** Runs a node script to its end and answers its last line of JSON. */
export async function run(args: readonly string[]): Promise<any> {
  const child = spawn(process.execPath, [...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (chunk) => { out += String(chunk); });
  const code = await new Promise((resolve) => child.once('close', resolve));
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
  return JSON.parse(out.trim().split('\n').at(-1) ?? '');
}

/** Seconds of processor time of a process so far, all its threads (proc(5), 100 ticks a second). */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Peak and present resident memory in MB. */
export function memoryMb(pid: number): { peak: number; now: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const of = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024;
  return { peak: of('VmHWM'), now: of('VmRSS') };
}
