import { z } from 'zod';
import { type Reader, startReader } from './reader.ts';

const part = z.object({ name: z.string().nullable(), type: z.string(), base64: z.string() });

/** What django-anymail made of one message (test/support/interop/consumer.py). */
const understood = z.object({
  esp: z.string(),
  /** Null for services that do not say it. */
  ts: z.number().nullable(),
  envelope_sender: z.string().nullable(),
  stripped_text: z.string().nullable(),
  spam_detected: z.boolean().nullable(),
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
export type Understood = z.output<typeof understood>;

export interface Consumer extends Reader<Understood> {
  /** Where posts in Mandrill's form go. */
  readonly url: string;
  /** Where those of another service go: `postmark/inbound`. */
  urlOf(view: string): string;
}

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';

/** Starts the Django project with a webhook key, on `port` or on a free one. `login`: the `user:password` that it asks for. */
export async function startConsumer(key: string, port = 0, login?: string): Promise<Consumer> {
  const program = new URL('consumer.py', import.meta.url).pathname;
  const args = [program, String(port), key, ...(login === undefined ? [] : [login])];
  const reader = await startReader(
    'django-anymail (apt-get install python3-django-anymail)',
    [PYTHON, ...args],
    understood,
  );
  const urlOf = (view: string) => `http://127.0.0.1:${reader.port}/anymail/${view}/`;
  return Object.freeze({ ...reader, url: urlOf('mandrill'), urlOf });
}
