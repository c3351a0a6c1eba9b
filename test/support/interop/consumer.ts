import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { until } from '../until.ts';

const part = z.object({ name: z.string().nullable(), type: z.string(), base64: z.string() });

/** What django-anymail made of one message (test/support/interop/consumer.py). */
const understood = z.object({
  esp: z.string(),
  ts: z.number(),
  envelope_recipient: z.string(),
  from_name: z.string(),
  from_email: z.string(),
  to: z.array(z.string()),
  cc: z.array(z.string()),
  subject: z.string(),
  text: z.string().nullable(),
  html: z.string().nullable(),
  spam_score: z.number().nullable(),
  attachments: z.array(part),
  inline: z.record(z.string(), part),
  raw: z.record(z.string(), z.unknown()),
  raw_msg_start: z.string(),
});
const line = z.union([z.object({ listening: z.number() }), z.object({ refused: z.number() }), understood]);

export type Understood = z.output<typeof understood>;

export interface Consumer {
  readonly port: number;
  /** Where posts go. */
  readonly url: string;
  /** What arrived so far, oldest first. */
  readonly messages: readonly Understood[];
  /** Statuses of the posts that it did not take. */
  readonly refusals: readonly number[];
  /** Keeps posts waiting for their answer. */
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
}

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';

/** Starts the Django project with a webhook key, on `port` or on a free one. */
export async function startConsumer(key: string, port = 0): Promise<Consumer> {
  const program = new URL('consumer.py', import.meta.url).pathname;
  const child = spawn(PYTHON, [program, String(port), key], { stdio: ['pipe', 'pipe', 'pipe'] });
  const exited = once(child, 'exit');
  const messages: Understood[] = [];
  const refusals: number[] = [];
  let listening = 0;
  let complaint = '';
  child.stderr.on('data', (text) => {
    complaint += String(text);
  });
  createInterface({ input: child.stdout }).on('line', (text) => {
    const said = line.parse(JSON.parse(text));
    if ('listening' in said) listening = said.listening;
    else if ('refused' in said) refusals.push(said.refused);
    else messages.push(said);
  });
  await until(
    'the consumer to listen',
    () => {
      if (child.exitCode !== null)
        throw new Error(`the consumer ended: ${complaint}\nOn Debian: apt-get install python3-django-anymail`);
      return listening > 0;
    },
    30_000,
  );
  return Object.freeze({
    port: listening,
    url: `http://127.0.0.1:${listening}/anymail/mandrill/`,
    messages,
    refusals,
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
