import { expect } from 'chai';
import { authorOfMessage } from '../../../src/mail/addresses/author.ts';
import { parseMessage } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { senderAuthOf } from '../../../src/mail/sender-auth.ts';
import { createFormEncoder } from '../../../src/webhooks/render/form.ts';
import { toEventPieces } from '../../../src/webhooks/render/payload.ts';
import { formValue, type InboundEvent, spooled, VERDICTS } from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';

/** Numbers of chance that are the same in every run (xorshift32). */
function chance(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const SPLICES = [
  '\r\n',
  '\n',
  '\r',
  '--',
  '--=_b\r\n',
  '=',
  '"',
  ';',
  '\\',
  '\0',
  ' ',
  ':',
  '=?utf-8?q?',
  '?=',
  '\xff',
  '<',
  ',',
  '(',
  "*0*=utf-8''",
  '\r\n\r\n',
];

/** Cuts, copies, overwrites and splices some pieces of a message. */
function mutate(bytes: Buffer, random: (below: number) => number): Buffer {
  let mutant = Buffer.from(bytes);
  for (let n = random(6); n >= 0; n--) {
    const at = random(mutant.length + 1);
    const to = Math.min(at + random(40), mutant.length);
    const splice = Buffer.from(SPLICES[random(SPLICES.length)] ?? '', 'latin1');
    const how = random(4);
    if (how === 0) mutant = Buffer.concat([mutant.subarray(0, at), mutant.subarray(to)]);
    else if (how === 1) mutant = Buffer.concat([mutant.subarray(0, at), splice, mutant.subarray(at)]);
    else if (how === 2) mutant = Buffer.concat([mutant.subarray(0, to), mutant.subarray(at)]);
    else if (at < mutant.length) mutant[at] = random(256);
  }
  return mutant;
}

const SIGNING = { keys: ['k'], url: '', id: '', at: 0 };

describe('mutants of ordinary messages', () => {
  for (const seed of [1, 2, 3, 4]) {
    it(`are parsed or raw, always as valid JSON that contains them (seed ${seed})`, async () => {
      const random = chance(seed * 7919);
      const encoder = createFormEncoder();
      const samples = Object.values(CORPUS);
      for (let n = 0; n < 500; n++) {
        const raw = mutate(samples[random(samples.length)]?.bytes ?? Buffer.alloc(0), random);
        const scanned = scanStructure(raw);
        const content =
          scanned.breach === undefined
            ? { parsed: await parseMessage(raw, scanned.root) }
            : { parseError: scanned.breach };
        const author = authorOfMessage(raw, '');
        const event = {
          id: 'm1-abc',
          message: spooled({ trace: '' }),
          recipient: 'in@example.net',
          raw,
          root: scanned.root,
          verdicts: VERDICTS,
          author,
          senderAuth: senderAuthOf(VERDICTS, author),
          automated: { is: false, why: null },
          thread: null,
          answers: null,
          hostname: 'mx.example.net',
          content,
        };
        const pieces = toEventPieces([event]);
        const text = formValue(encoder.toBytes(pieces, SIGNING).bytes);
        const events: InboundEvent[] = JSON.parse(text);
        const shown =
          events[0]?.msg.raw_msg_base64 === undefined
            ? Buffer.from(events[0]?.msg.raw_msg ?? '')
            : Buffer.from(events[0].msg.raw_msg_base64, 'base64');
        const expected =
          events[0]?.msg.raw_msg_base64 === undefined
            ? Buffer.from(raw.toString('latin1').replaceAll('\r\n', '\n'), 'latin1')
            : raw;
        // What has no header is shown behind the empty line that ends one.
        const lead = shown.toString('latin1', 0, shown.length - expected.length);
        expect(
          ['', '\n', '\r\n'].includes(lead) && shown.subarray(lead.length).equals(expected),
          `message ${n}: ${JSON.stringify(raw.toString('latin1'))}`,
        ).to.equal(true);
      }
    });
  }
});
