import { execFile, spawn } from 'node:child_process';

/** What a command said and how it ended. */
export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command to its end, whatever that is. */
export function run(
  program: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv; readonly input?: string } = {},
): Promise<Ran> {
  const { input, ...rest } = options;
  return new Promise((resolve) => {
    const child = execFile(program, args, { maxBuffer: 64 * 1024 * 1024, ...rest }, (error, out, err) => {
      resolve({
        code: error === null ? 0 : typeof error.code === 'number' ? error.code : 127,
        out,
        err: err + (error !== null && typeof error.code !== 'number' ? error.message : ''),
      });
    });
    child.stdin?.on('error', () => {}).end(input ?? '');
  });
}

/** The same for what must go well: answers what it printed. */
export async function must(
  program: string,
  args: readonly string[],
  options: Parameters<typeof run>[2] = {},
): Promise<string> {
  const { code, out, err } = await run(program, args, options);
  if (code !== 0) throw new Error(`${program} ${args.join(' ')}: ${code}\n${out.slice(-3000)}\n${err.slice(-3000)}`);
  return out;
}

/** A process that goes on; standard error is the test's own. */
export const begin = (program: string, args: readonly string[]) =>
  spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'] });

/** Whether there is such a program. */
export const has = async (program: string): Promise<boolean> =>
  (await run('sh', ['-c', `command -v ${program}`])).code === 0;

/** Prints the seconds that it took. */
export async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const from = performance.now();
  const result = await work();
  console.log(`    ${((performance.now() - from) / 1000).toFixed(1)} s  ${what}`);
  return result;
}
