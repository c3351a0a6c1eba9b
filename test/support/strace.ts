import { spawnSync } from 'node:child_process';

/** Why system calls cannot be traced here, in the way that `options` ask for; undefined when they can. */
export function noStrace(...options: readonly string[]): string | undefined {
  const { error, status } = spawnSync('strace', [...options, '-o', '/dev/null', 'true']);
  if (error) return 'strace is not installed';
  return status === 0 ? undefined : 'strace may not trace here';
}

/** The same for a running process, which some machines allow only to its parent. */
export function noAttaching(): string | undefined {
  const { status } = spawnSync('sh', ['-c', 'sleep 1 & exec strace -o /dev/null -p $!'], { stdio: 'ignore' });
  return noStrace() ?? (status === 0 ? undefined : 'strace may not trace what runs already');
}

/** One system call: its line where it began and where it was done (another thread's lines may lie between). */
export interface Call {
  readonly thread: string;
  readonly name: string;
  readonly text: string;
  readonly began: number;
  readonly done: number;
}

const CALL = /^(\d+) +(\w+)\((.*)$/;
const RESUMED = /^(\d+) +<\.\.\. (\w+) resumed>(.*)$/;

/** Reads the output of `strace -f -y`. */
export function parseTrace(output: string): Call[] {
  const open = new Map<string, { thread: string; name: string; text: string; began: number }>();
  const calls: Call[] = [];
  output.split('\n').forEach((line, at) => {
    const resumed = RESUMED.exec(line);
    const started = CALL.exec(line);
    if (resumed) {
      const begun = open.get(resumed[1] ?? '');
      if (begun) calls.push({ ...begun, text: begun.text + (resumed[3] ?? ''), done: at });
      open.delete(resumed[1] ?? '');
    } else if (started) {
      const [, thread = '', name = '', text = ''] = started;
      if (text.endsWith('<unfinished ...>')) open.set(thread, { thread, name, text, began: at });
      else calls.push({ thread, name, text, began: at, done: at });
    }
  });
  return calls;
}
