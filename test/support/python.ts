import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterFile } from './cleanup.ts';

// Starting Python takes longer than most answers, so it waits for further lines of input.
const LOOP = `
import sys, json, base64
for line in sys.stdin:
    raw, rest = json.loads(line)
    print(json.dumps(answer(base64.b64decode(raw), *rest)), flush=True)
`;

/** Calls the function `answer(raw, …)` of a program in Python, in one process for all calls of a test file. */
export function createPython(program: string): (raw: Buffer, ...rest: readonly unknown[]) => Promise<any> {
  let running: ReturnType<typeof start> | undefined;
  afterFile(async () => {
    await running?.end();
    running = undefined;
  });
  return (raw, ...rest) => {
    running ??= start(program + LOOP);
    return running.ask([raw.toString('base64'), rest]);
  };
}

function start(program: string) {
  const child = spawn('python3', ['-c', program]);
  const answers = createInterface(child.stdout)[Symbol.asyncIterator]();
  let said = '';
  const closed = once(child, 'close');
  closed.catch((error) => {
    said += error.message;
  });
  child.stdin.on('error', () => undefined); // it has ended, which is said below
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  return {
    async ask(question: unknown) {
      child.stdin.write(`${JSON.stringify(question)}\n`);
      const { value, done } = await answers.next();
      if (!done) return JSON.parse(value);
      await closed;
      throw new Error(`Python ended: ${said}`);
    },
    async end() {
      child.stdin.end();
      await closed.catch(() => undefined);
    },
  };
}
