import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { until } from '../until.ts';

/** A program of others that takes our posts: what it says is a JSON line each. It ends when its standard input ends. */
export interface Reader<T> {
  readonly port: number;
  /** What arrived so far, oldest first. */
  readonly messages: readonly T[];
  /** Statuses of the posts that it did not take. */
  readonly refusals: readonly number[];
  /** What it wrote to standard error. */
  complaint(): string;
  /** Keeps posts waiting for their answer. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
}

/** Starts it, and waits until it says `{"listening": PORT}`. `{"refused": STATUS}` is a post that it did not take. */
export async function startReader<T>(
  name: string,
  [command, ...args]: readonly [string, ...string[]],
  message: z.ZodType<T>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<Reader<T>> {
  const child = spawn(command, args, { stdio: 'pipe', env });
  const exited = once(child, 'exit');
  const messages: T[] = [];
  const refusals: number[] = [];
  let listening = 0;
  let complaint = '';
  child.stderr.on('data', (text) => {
    complaint += String(text);
  });
  createInterface({ input: child.stdout }).on('line', (text) => {
    const said: unknown = JSON.parse(text);
    const word = WORD.safeParse(said).data;
    if (word?.listening !== undefined) listening = word.listening;
    else if (word?.refused !== undefined) refusals.push(word.refused);
    else messages.push(message.parse(said));
  });
  await until(
    `${name} to listen`,
    () => {
      if (child.exitCode !== null) throw new Error(`${name} ended: ${complaint}`);
      return listening > 0;
    },
    30_000,
  );
  return Object.freeze({
    port: listening,
    messages,
    refusals,
    complaint: () => complaint,
    pause() {
      child.kill('SIGSTOP');
    },
    resume() {
      child.kill('SIGCONT');
    },
    async stop() {
      child.stdin.end();
      await exited;
    },
  });
}

const WORD = z.object({ listening: z.number().optional(), refused: z.number().optional() });
