import { expect } from 'chai';
import { type ParsedMessage, parseMessage } from '../../../src/mail/message.ts';
import { decodeWords } from '../../../src/mail/mime/headers.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { CHARSETS } from '../../support/charsets.ts';
import { crlf, multipart } from '../../support/mime.ts';

/** Whose bytes carry a state that no other word knows of: half a character of theirs is none. */
const ALONE = /^utf-(?:7|16|32)$/;

const b = (label: string, bytes: Buffer) => `=?${label}?B?${bytes.toString('base64')}?=`;
const q = (label: string, bytes: Buffer) =>
  `=?${label}?Q?${bytes.toString('latin1').replace(/[^a-zA-Z0-9]/g, (char) => `=${char.charCodeAt(0).toString(16).padStart(2, '0')}`)}?=`;
const hex = (text: string) => Buffer.from(text, 'hex');

async function parse(bytes: Buffer): Promise<ParsedMessage> {
  const scanned = scanStructure(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return parseMessage(bytes, scanned.root);
}

function bodyOf(label: string, encoding: string, body: string | Buffer): Buffer {
  const header = crlf(
    'From: a@example.com',
    `Content-Type: text/plain; charset="${label}"`,
    `Content-Transfer-Encoding: ${encoding}`,
    '',
  );
  return Buffer.concat([header, typeof body === 'string' ? Buffer.from(body) : body]);
}

describe('text in every charset of mail, as Python writes it', () => {
  for (const { label, text, bytes, halves } of CHARSETS) {
    it(`${label} is decoded in encoded words split at any character`, () => {
      for (const [first, second] of halves) {
        expect(decodeWords(`${b(label, hex(first))} ${b(label, hex(second))}`)).to.equal(text);
        expect(decodeWords(`${q(label, hex(first))}\t${q(label, hex(second))}`)).to.equal(text);
        expect(decodeWords(`Re: ${q(label, hex(first))} ${b(label, hex(second))} [1]`)).to.equal(`Re: ${text} [1]`);
      }
    });

    if (!ALONE.test(label)) {
      it(`${label} is decoded in encoded words split inside a character`, () => {
        const whole = hex(bytes);
        for (let at = 0; at <= whole.length; at++) {
          expect(decodeWords(`${b(label, whole.subarray(0, at))} ${b(label, whole.subarray(at))}`)).to.equal(text);
        }
      });
    }

    it(`${label} is decoded in a subject, a name, a file name and a body`, async () => {
      const [first, second] = halves[Math.floor(halves.length / 2)] ?? ['', ''];
      const words = `${b(label, hex(first))} ${b(label, hex(second))}`;
      const parsed = await parse(
        multipart(
          'mixed',
          [`From: ${words} <a@example.com>`, `Subject: ${words}`],
          [
            `Content-Type: text/plain; charset="${label}"`,
            'Content-Transfer-Encoding: base64',
            '',
            hex(bytes).toString('base64'),
          ],
          ['Content-Type: application/pdf', `Content-Disposition: attachment; filename="${words}"`, '', 'x'],
        ),
      );
      expect([parsed.subject, parsed.from?.name, parsed.files[0]?.name, parsed.text]).to.deep.equal([
        text,
        text,
        text,
        text,
      ]);
    });
  }

  it('is decoded where escape sequences of ISO-2022-JP meet, in one piece and in many', async () => {
    const { bytes = '', text = '' } = CHARSETS.find(({ label }) => label === 'iso-2022-jp') ?? {};
    const twice = Buffer.concat([hex(bytes), Buffer.from('\x1b(B'), hex(bytes), Buffer.from('\x1b$B\x1b(B\r\n')]);
    expect((await parse(bodyOf('iso-2022-jp', '7bit', twice))).text).to.equal(`${text}${text}\n`);
  });

  for (const label of ['iso-2022-jp', 'iso-2022-jp-2', 'iso-2022-kr', 'hz', 'utf-7', 'shift_jis', 'cp437']) {
    it(`is decoded in a large body of ${label} without a line end, split anywhere`, async () => {
      const { bytes = '', text = '' } = CHARSETS.find((found) => found.label === label) ?? {};
      const times = 40_000;
      const { text: found } = await parse(
        bodyOf(label, '8bit', Buffer.concat(Array.from({ length: times }, () => hex(bytes)))),
      );
      expect(typeof found, 'is decoded in pieces').to.equal('function');
      expect((typeof found === 'function' ? [...found()].join('') : '') === text.repeat(times)).to.equal(true);
    });
  }
});
