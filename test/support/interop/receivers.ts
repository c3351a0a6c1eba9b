import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { z } from 'zod';
import { buildGo } from './go.ts';
import { type Reader, startReader } from './reader.ts';

const FOLDER = new URL('receivers', import.meta.url).pathname;
const BINARY = join(import.meta.dirname, '../../../node_modules/.cache/postern-receivers');

/** What a receiver for Go made of one post (test/support/interop/receivers/main.go). */
const received = z.object({
  fields: z.array(z.string()),
  from: z.string(),
  to: z.array(z.string()),
  subject: z.string(),
  text: z.string(),
  headers: z.record(z.string(), z.string()).nullable(),
  attachments: z.array(z.object({ name: z.string(), type: z.string(), sha256: z.string() })).nullable(),
  verified: z.boolean(),
  fault: z.string(),
});

export interface Receivers extends Reader<z.output<typeof received>> {
  urlOf(service: 'mailgun' | 'sendgrid'): string;
  /** The key that posts in Mailgun's form are signed with. */
  know(key: string): Promise<void>;
}

/** The folder of posts that sendgrid-go has for its own tests. */
export const capturedPosts = (): string =>
  join(
    execFileSync('go', ['list', '-m', '-f', '{{.Dir}}', 'github.com/sendgrid/sendgrid-go'], {
      cwd: FOLDER,
      encoding: 'utf8',
    }).trim(),
    'helpers/inbound/sample_data',
  );

export async function startReceivers(): Promise<Receivers> {
  await buildGo(FOLDER, BINARY);
  const reader = await startReader('the receivers for Go', [BINARY], received);
  const urlOf = (path: string) => `http://127.0.0.1:${reader.port}/${path}`;
  return Object.freeze({
    ...reader,
    urlOf,
    async know(key: string) {
      await fetch(urlOf('key'), { method: 'POST', body: key });
    },
  });
}
