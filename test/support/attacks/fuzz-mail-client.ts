import { connect } from 'node:net';
import { createFailures } from './failures.ts';
import type { MailFuzzOrders, MailReport } from './fuzz.ts';
import { answer, orders } from './helper.ts';
import { mutant, wrongIn } from './mutants.ts';

const SESSIONS = 24;
// A session takes a thousand messages; those behind are for the next.
const MESSAGES = 500;

const { at, seed, from, to, endings }: MailFuzzOrders = orders();
const failures = createFailures('mutant', seed);
let next = from;
let [accepted, refused, running] = [0, 0, SESSIONS];

/**
 * One session, until the server ends it (as it must after 521), or it has had its share. Everything of a message goes
 * in one packet.
 */
function session(): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(at).setNoDelay();
    let [text, said, number] = ['', 0, -1];
    let current: ReturnType<typeof mutant> | undefined;
    const send = () => {
      if (said++ >= MESSAGES || next >= to) return void socket.destroy();
      number = next++;
      current = mutant(seed, number);
      const stuffed = current.bytes.toString('latin1').replace(/^\./gm, '..');
      const mailbox = `m${number}${endings[number % endings.length]}`;
      const envelope = `MAIL FROM:<a@sender.test>\r\nRCPT TO:<${mailbox}@in.test>\r\n`;
      socket.write(Buffer.from(`${envelope}DATA\r\n${stuffed}.\r\n`, 'latin1'));
    };
    const hear = () => {
      const codes = [...text.matchAll(/^(\d{3}) .*\r\n/gm)].map(([, code]) => code ?? '');
      if (number < 0) {
        if (codes.length === 2) {
          text = '';
          send();
        }
        return;
      }
      if (codes.length < 4) return;
      const expected = current?.forbidden === true ? '521' : '250';
      const why =
        wrongIn(text) ??
        (codes.join() === `250,250,354,${expected}` ? undefined : `answered ${codes.join()} and not ${expected}`);
      if (why !== undefined) failures.add(number, `${why}: ${text.slice(-200)}`, current?.bytes ?? Buffer.alloc(0));
      if (codes[3] === '250') accepted++;
      else refused++;
      [text, number] = ['', codes[3] === '250' ? number : -2];
      if (number !== -2) send();
    };
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      hear();
    });
    socket
      .on('error', () => {})
      .on('close', () => {
        if (number >= 0 && text !== '' && said <= MESSAGES)
          failures.add(number, `the connection ended: ${text.slice(-200)}`, current?.bytes ?? Buffer.alloc(0));
        resolve();
      });
    socket.write('EHLO fuzz.test\r\n');
  });
}

async function run(): Promise<void> {
  while (next < to) await session();
  running--;
}
for (let i = 0; i < SESSIONS; i++) void run();
answer((): MailReport => ({ done: running === 0, accepted, refused, failures: failures.list }));
