import { CORPUS } from '../mime-corpus.ts';
import { HOSTILE } from '../mime-hostile.ts';

/** Numbers below a bound, by chance that is the same in every run. */
export type Chance = (below: number) => number;

/** Chance for the item `number` of a run (mulberry32): any item can be made again without those before it. */
export function createChance(seed: number, number: number): Chance {
  let state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b)) | 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const LONGEST_SAMPLE = 8000;
const SAMPLES: readonly Buffer[] = [
  ...Object.values(CORPUS).map(({ bytes }) => bytes),
  ...[
    'names of the language',
    'a cut multipart',
    'an empty boundary',
    'a charset of the language',
    'no header',
    'no colon',
  ].map((name) => HOSTILE[name]?.() ?? Buffer.alloc(0)),
].filter(({ length }) => length < LONGEST_SAMPLE);

const SPLICES = [
  '\r\n',
  '\r\n.\r\n',
  '.',
  '\n',
  '\r',
  '\0',
  '--',
  '--=_b\r\n',
  '--=_b--\r\n',
  '=',
  '"',
  ';',
  '\\',
  ' ',
  ':',
  '=?utf-8?q?',
  '=?utf-8?b?w6',
  '?=',
  '\xff',
  '\xc3',
  '\xed\xa0\x80',
  '<',
  '>',
  ',',
  '(',
  "*0*=utf-8''",
  '\r\n\r\n',
  '\r\nContent-Type: multipart/mixed; boundary="=_b"\r\n',
  '\r\nContent-Transfer-Encoding: base64\r\n',
  '\r\nContent-Type: message/rfc822\r\n',
  '; charset=utf-16',
  '\r\nTo: ',
  '\r\nDKIM-Signature: v=1; ',
  '{',
  '%00',
  '\u202e',
];

function mutate(bytes: Buffer, chance: Chance): Buffer {
  let mutant = Buffer.from(bytes);
  for (let n = chance(6); n >= 0; n--) {
    const at = chance(mutant.length + 1);
    const to = Math.min(at + chance(40), mutant.length);
    const splice = Buffer.from(SPLICES[chance(SPLICES.length)] ?? '', 'latin1');
    const how = chance(5);
    if (how === 0) mutant = Buffer.concat([mutant.subarray(0, at), mutant.subarray(to)]);
    else if (how === 1) mutant = Buffer.concat([mutant.subarray(0, at), splice, mutant.subarray(at)]);
    else if (how === 2) mutant = Buffer.concat([mutant.subarray(0, to), mutant.subarray(at)]);
    else if (how === 3)
      mutant = Buffer.concat([
        mutant.subarray(0, at),
        SAMPLES[chance(SAMPLES.length)]?.subarray(chance(500)) ?? splice,
      ]);
    else if (at < mutant.length) mutant[at] = chance(256);
  }
  return mutant;
}

// One in this number is sent unchanged; the others get valid line ends, or most would be rejected early.
const UNTOUCHED = 5;
const FORBIDDEN = /\0|\r(?!\n)|(?<!\r)\n/;

/** A message of chance as a server is to keep it, and whether one has to refuse it. */
export function mutant(seed: number, number: number): { readonly bytes: Buffer; readonly forbidden: boolean } {
  const chance = createChance(seed, number);
  let text = mutate(SAMPLES[chance(SAMPLES.length)] ?? Buffer.alloc(0), chance).toString('latin1');
  if (number % UNTOUCHED !== 0) text = text.replace(/\0/g, '0').replace(/\r\n|\r|\n/g, '\r\n');
  if (!text.endsWith('\r\n')) text += '\r\n';
  return { bytes: Buffer.from(text, 'latin1'), forbidden: FORBIDDEN.test(text) };
}

const LINES = [
  'EHLO client.test',
  'HELO x',
  'EHLO [127.0.0.1]',
  'EHLO',
  'MAIL FROM:<a@sender.test>',
  'MAIL FROM:<> SIZE=10 BODY=8BITMIME SMTPUTF8',
  'MAIL FROM:<a@sender.test> SIZE=99999999999999999999',
  'MAIL FROM: a@b',
  'RCPT TO:<dialog@in.test>',
  'RCPT TO:<"\\"@x"@in.test>',
  'RCPT TO:<@a,@b:dialog@in.test>',
  'RCPT TO:<x%y@in.test>',
  'RCPT TO:<nobody@elsewhere.test> NOTIFY=NEVER',
  'DATA',
  'Subject: x',
  '',
  '.',
  '..',
  '.x',
  'RSET',
  'NOOP',
  'NOOP x y z',
  'STARTTLS',
  'VRFY x',
  'EXPN list',
  'HELP',
  'AUTH PLAIN AA==',
  'AUTH LOGIN',
  'BDAT 5 LAST',
  'BDAT 99999999999 LAST',
  'XCLIENT ADDR=1.2.3.4',
  'GET / HTTP/1.1',
  'PROXY TCP4 1.2.3.4 1.2.3.4 1 2',
  '\0\0\0',
  '\x16\x03\x01\x02\x00\x01',
  'QUIT',
  'x'.repeat(2047),
  'x'.repeat(3000),
  'MAIL FROM:<\xc3\xa9@sender.test> SMTPUTF8',
  'RCPT TO:<\xff\xfe@in.test>',
];
const ENDS = [
  '\r\n',
  '\r\n',
  '\r\n',
  '\r\n',
  '\r\n',
  '\r\n',
  '\r\n',
  '\r\n',
  '\n',
  '\r',
  '',
  '\r\n.\r\n',
  '\r\n\r\n',
  '\0\r\n',
];

/** A dialog of chance: lines in some order with some ends, and some of its bytes changed. */
export function dialog(
  seed: number,
  number: number,
): { readonly bytes: Buffer; readonly lines: number; readonly chance: Chance } {
  const chance = createChance(seed, number);
  let text = chance(3) === 0 ? '' : 'EHLO c\r\nMAIL FROM:<a@sender.test>\r\nRCPT TO:<dialog@in.test>\r\n';
  for (let i = chance(30); i >= 0; i--) text += (LINES[chance(LINES.length)] ?? '') + (ENDS[chance(ENDS.length)] ?? '');
  const bytes = Buffer.from(text, 'latin1');
  for (let i = chance(6); i > 0 && bytes.length > 0; i--) bytes[chance(bytes.length)] = chance(256);
  return { bytes, lines: bytes.toString('latin1').split('\n').length - 1, chance };
}

const SPEAKS_OF_US = /\bError\b|\bat .*:\d+:\d+|node:|\.ts\b|\/src\//;
const REPLIES = /^(?:\d{3}(?:[ -][\x20-\x7e]*)?\r\n)*$/;

/** What is wrong with the text of replies: not SMTP, a stack of ours, or a fault of ours. */
export function wrongIn(replies: string): string | undefined {
  const wrongs = [
    ...(REPLIES.test(replies) ? [] : ['not replies']),
    ...(SPEAKS_OF_US.test(replies) ? ['speaks of our insides'] : []),
    ...(/^451 /m.test(replies) ? ['a fault of ours'] : []),
  ];
  return wrongs.length === 0 ? undefined : wrongs.join(' and ');
}
