import { type HostPort, message, openSession } from '../mail.ts';
import { answer, orders } from './helper.ts';

// Done long before a session has lasted too long.
const SESSION_MS = 3000;

/** Sends ordinary mail over some sessions, the next when the last was taken, and counts the 250s. */
const { at, sessions }: { at: HostPort; sessions: number } = orders();
const TEXT = message('good', 'Good mail goes through.\r\n'.repeat(200));
let [taken, refused] = [0, 0];

async function speak(): Promise<void> {
  const session = await openSession(at);
  await session.say('EHLO good.test');
  for (const began = performance.now(); performance.now() < began + SESSION_MS; ) {
    await session.say('MAIL FROM:<good@sender.test>');
    await session.say('RCPT TO:<good@in.test>');
    await session.say('DATA');
    const reply = await session.data(TEXT);
    if (reply.startsWith('250')) taken++;
    else refused++;
  }
  session.close();
}

async function run(): Promise<void> {
  // A busy machine may put a session off (421 4.3.2): then the next one.
  for (;;) await speak().catch(() => {});
}
for (let i = 0; i < sessions; i++) void run();
answer(() => ({ taken, refused }));
