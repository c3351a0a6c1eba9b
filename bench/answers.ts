import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/base/clock.ts';
import { parseHeaders } from '../src/mail/mime/headers.ts';
import { threadIdOf } from '../src/mail/replies/thread.ts';
import { mailSummaryOf, summaryFields } from '../src/mail/summary.ts';
import { openEmbedded } from '../src/store/driver/embedded.ts';
import { openStore } from '../src/store/store.ts';
import { createReplyMatching } from '../src/webhooks/reply-matching.ts';
import { createTestLog } from '../test/support/log.ts';
import { createRecording, newMessage } from '../test/support/recording.ts';
import { NO_FLOOR } from '../test/support/room.ts';

// What it costs to find out what a message answers: node bench/answers.ts. In microseconds a message, in turns.

const SENT = 20_000;
const ROUNDS = 15;
const EACH = 200;

const dir = await mkdtemp(join(tmpdir(), 'postern-answers-'));
const log = createTestLog();
const store = await openStore(
  await openEmbedded({ file: join(dir, 'store.db'), timeoutMs: 60_000, room: NO_FLOOR }, { log, clock: systemClock }),
);
const { recorder } = createRecording(store);
const idOf = (n: number) => n.toString(16).padStart(32, '0');
for (let at = 0; at < SENT; at += 500)
  await Promise.all(
    Array.from({ length: 500 }, (_, n) => store.messages.insert({ ...rowOf(at + n), id: idOf(at + n) })),
  );

function rowOf(n: number) {
  const none = { state: 'sent', opens: 0, clicks: 0, openDetail: [], clickDetail: [], diag: null } as const;
  return { ...newMessage(), ...none, email: `user-${n}@to.example`, bounceDescription: null, version: 0 };
}

const { account } = newMessage();
const answers = createReplyMatching({ store, recorder });
const client = { address: '192.0.2.1', helo: 'mail.example', tls: null };
const header = (more: string) =>
  Buffer.from(
    `${Array.from({ length: 12 }, (_, n) => `Received: from a${n}.example by b${n}.example with ESMTPS id ${n}; Mon, 5 Jan 2026 12:00:00 +0000\r\n`).join('')}` +
      `From: Ann Example <ann@example.org>\r\nTo: in@in.example\r\nSubject: Re: your order\r\nMessage-ID: <CAB1234567890@mail.example>\r\n${more}\r\nHello\r\n`,
  );
const ask = (bytes: Buffer) => {
  const envelope = { mailFrom: 'ann@example.org', client };
  const message = { id: 'm', receivedAt: Date.now(), envelope, trace: '', verdicts: null };
  return answers.of(
    account,
    { message, body: { kind: 'memory', bytes }, delivery: { id: 'd', recipient: 'in@in.example' } },
    false,
  );
};
const plain = header('');
const foreign = header('In-Reply-To: <CAX@mail.example>\r\nReferences: <CAW@mail.example> <CAX@mail.example>\r\n');
const ours = (n: number) => header(`In-Reply-To: <${idOf(n % SENT)}@in.example>\r\n`);
const CASES: Readonly<Record<string, (n: number) => unknown>> = {
  'mail that names no other': () => ask(plain),
  'an answer to somebody else': () => ask(foreign),
  'an answer to ours': (n) => ask(ours(n)),
  'the thread, for the payload': () => threadIdOf(parseHeaders(foreign)),
  'the same, without the thread': () => parseHeaders(foreign),
  'finding the fields, at acceptance': () => summaryFields(foreign),
  'decoding them, on the thread of the journal': () => mailSummaryOf(summaryFields(foreign)),
};

const times = new Map(Object.keys(CASES).map((name) => [name, [] as number[]]));
for (let round = 0; round < ROUNDS; round++)
  for (const [name, run] of Object.entries(CASES)) {
    const began = performance.now();
    for (let n = 0; n < EACH; n++) await run(round * EACH + n);
    times.get(name)?.push(((performance.now() - began) * 1000) / EACH);
  }
for (const [name, all] of times)
  console.log(`${name.padEnd(46)} ${(all.toSorted((a, b) => a - b)[ROUNDS >> 1] ?? 0).toFixed(1).padStart(8)} µs`);
await store.close();
rmSync(dir, { recursive: true });
