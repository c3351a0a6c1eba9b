import { spawnSync } from 'node:child_process';
import { z } from 'zod';
import { tempDir } from '../temp.ts';
import { type Reader, startReader } from './reader.ts';

const list = z.array(z.string()).nullable();

/** What Rails made of one message (test/support/interop/mailbox.rb). */
const received = z.object({
  subject: z.string().nullable(),
  from: list,
  to: list,
  cc: list,
  bcc: list,
  original_to: z.array(z.string()),
  text: z.string().nullable(),
  attachments: z.array(z.tuple([z.string().nullable(), z.string()])),
});
export type Mailbox = Reader<z.output<typeof received>>;

// Debian's packages belong to Debian's Ruby; the first ruby on the PATH may be another.
const RUBY = '/usr/bin/ruby';

/** Whether Rails and what it needs here are installed. */
export const hasRails = (): boolean =>
  spawnSync(RUBY, ['-e', '%w[actionmailbox railties sqlite3 webrick].each { Gem::Specification.find_by_name(_1) }'])
    .status === 0;

/** Starts a Rails application whose Action Mailbox takes the posts of one service, at `port` or at a free one. */
export async function startMailbox(
  ingress: string,
  keys: Readonly<Record<string, string>>,
  port = 0,
): Promise<Mailbox> {
  const program = new URL('mailbox.rb', import.meta.url).pathname;
  const env = { PATH: '/usr/bin:/bin', RAILS_ENV: 'production', LANG: 'C.UTF-8', ...keys };
  return startReader('Rails', [RUBY, program, String(port), ingress, await tempDir()], received, env);
}
