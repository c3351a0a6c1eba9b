import { systemClock } from '../src/base/clock.ts';
import { NO_METRICS } from '../src/base/metrics.ts';
import { createBrake } from '../src/inbound/brake.ts';
import { authorOf } from '../src/mail/addresses/author.ts';
import { automatedOf } from '../src/mail/automated.ts';
import { headerBlock } from '../src/mail/mime/header-section.ts';
import { parseHeaders } from '../src/mail/mime/headers.ts';
import { createTestLog } from '../test/support/log.ts';
import { compose, createSender } from './messages.ts';

// What it costs a message to be told from mail of people, on the thread that renders it, and what the brake on loops
// costs the main thread. Rounds with and without it take turns, and the median of their differences counts.

const ROUNDS = 41;
const MESSAGES = 2000;

const sender = createSender();
const list = await compose(5000, sender);
const person = [
  'Received: from mail.example.net (mail.example.net [198.51.100.7]) by mx.in.test with ESMTPS id 1; Mon, 5 Jan 2026 12:00:00 +0000',
  'From: Ann Example <ann@example.net>',
  'To: Support <support@in.test>',
  'Subject: =?utf-8?Q?Re:_Angebot_f=C3=BCr_Sie?=',
  'Date: Mon, 5 Jan 2026 12:00:00 +0000',
  'Message-ID: <2@example.net>',
  'In-Reply-To: <1@in.test>',
  'References: <1@in.test>',
  'MIME-Version: 1.0',
  'Content-Type: text/plain; charset=utf-8',
];
const MAILS: Readonly<Record<string, Buffer>> = {
  'an answer of a person, 10 fields': Buffer.from([...person, '', 'Yes.'].join('\r\n')),
  'a signed newsletter': list,
  'an automatic reply': Buffer.from(
    [...person, 'Auto-Submitted: auto-replied (vacation)', 'Precedence: bulk', '', 'I am away.'].join('\r\n'),
  ),
  '64 KB of List-Id': Buffer.from(`From: a@b.test\r\nList-Id: ${'<'.repeat(64 * 1024)}\r\n\r\nx`),
  '10,000 fields of Precedence': Buffer.from(`From: a@b.test\r\n${'Precedence: bulk\r\n'.repeat(10_000)}\r\nx`),
};

const envelope = { mailFrom: 'ann@example.net', client: { address: '192.0.2.1', helo: 'mx.example.net', tls: null } };
const match = { kind: 'inbound', account: 'a', routeId: '1.1', pattern: '*', url: 'https://app.test/' } as const;
const brake = createBrake(
  { messages: 50, windowMs: 1_800_000 },
  { clock: systemClock, log: createTestLog(), metrics: NO_METRICS },
);

/** Processor time of this thread in microseconds: what else the machine does hardly counts. */
const used = (): number => {
  const { user, system } = process.threadCpuUsage();
  return user + system;
};
const micros = (began: number, messages: number) => (used() - began) / messages;
const median = (all: readonly number[]) => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)] ?? 0;
const shown = (value: number) => `${value.toFixed(1)} µs`.padStart(12);

console.log(`${'a message'.padEnd(34)}${'header'.padStart(12)}${'automated'.padStart(12)}${'brake'.padStart(12)}`);
for (const [name, mail] of Object.entries(MAILS)) {
  const messages = mail.length > 100_000 ? 50 : MESSAGES;
  const [bare, more, braked]: [number[], number[], number[]] = [[], [], []];
  const read = (withIt: boolean) => {
    const began = used();
    for (let n = 0; n < messages; n++) {
      const fields = parseHeaders(headerBlock(mail));
      const author = authorOf(fields, envelope.mailFrom).mailbox;
      if (withIt) automatedOf({ fields, author, mailFrom: envelope.mailFrom });
    }
    return micros(began, messages);
  };
  for (let round = 0; round < ROUNDS; round++) {
    const isFirst = round % 2 === 0;
    const [one, other] = [read(isFirst), read(!isFirst)];
    const [withIt, without] = isFirst ? [one, other] : [other, one];
    bare.push(without);
    more.push(withIt - without);
    const began = used();
    for (let n = 0; n < messages; n++)
      await brake.loopsOf({ envelope, body: { kind: 'memory', bytes: mail } }, [
        { recipient: `box${n % 100}@in.test`, match },
      ]);
    braked.push(micros(began, messages));
  }
  console.log(name.padEnd(34) + shown(median(bare)) + shown(median(more)) + shown(median(braked)));
}
