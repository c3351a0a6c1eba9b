import { spawnSync } from 'node:child_process';
import { isDeepStrictEqual } from 'node:util';
import { expect } from 'chai';
import { withHeader } from '../../src/mail/mime/header-section.ts';
import { listParts, partBytes } from '../../src/mail/mime/parts.ts';
import { scanStructure } from '../../src/mail/mime/structure.ts';
import { asUtf8 } from '../../src/webhooks/render/as-utf8.ts';
import { EIGHT_BIT } from '../support/eight-bit.ts';
import { CORPUS } from '../support/mime-corpus.ts';
import { randomMessage } from '../support/mime-random.ts';
import { randomFrom } from '../support/random-text.ts';

interface Read {
  readonly leaves: readonly (readonly [string, string])[];
  /** In hexadecimal; null for a message in the message. */
  readonly parts: readonly (string | null)[];
  readonly subject: string;
  readonly from: string;
}

const READER = new URL('../support/interop/read_mime.py', import.meta.url).pathname;
const askPython = (...messages: readonly Buffer[]): Read[] => {
  const { stdout, stderr, status } = spawnSync('python3', [READER], {
    input: messages.map((raw) => `${raw.toString('hex')}\n`).join(''),
    encoding: 'utf8',
    maxBuffer: 100_000_000,
    timeout: 60_000,
  });
  if (status !== 0) throw new Error(stderr);
  return stdout
    .trim()
    .split('\n')
    .map((line): Read => JSON.parse(line));
};
/** As raw_msg has it. */
const asText = (raw: Buffer) =>
  Buffer.from(
    Buffer.concat([...asUtf8(withHeader(raw), scanStructure(withHeader(raw)).root)])
      .toString()
      .replaceAll('\r\n', '\n'),
  );
describe("Python's email package reading raw_msg", () => {
  for (const [name, raw] of Object.entries(EIGHT_BIT)) {
    it(`finds the same as in the original: ${name}`, () => {
      const [text, original] = askPython(asText(raw), withHeader(raw));
      expect(text?.leaves).to.deep.equal(original?.leaves);
      expect(JSON.stringify(text)).not.to.include('\ufffd');
    });
  }

  it('finds the header fields that it cannot read in the original', () => {
    const [read] = askPython(asText(EIGHT_BIT['a latin1 body'] ?? Buffer.alloc(0)));
    expect([read?.subject, read?.from]).to.deep.equal(['Grüße aus Köln', 'Jürgen <j@example.com>']);
  });
});

/** What Python's package finds otherwise, and why. */
const OTHERWISE: Readonly<Record<string, string>> = {
  'quoted-printable with odd line ends': 'it keeps blanks at the end of lines (RFC 2045 section 6.7, rule 3)',
  'base64 that begins anew after padding': 'it stops there; mailparser and we go on while it is base64',
};

describe("Python's email package and our parser", () => {
  /** The decoded bytes of each part, in hexadecimal; null for a message in the message. */
  const partsOf = (raw: Buffer) => {
    const { root } = scanStructure(raw);
    if (!root) throw new Error('not parsed');
    return listParts(raw, root).map(({ type }, i) =>
      type.startsWith('message/') ? null : (partBytes(raw, root, i + 1)?.toString('hex') ?? ''),
    );
  };

  it('find the same parts in messages written by common software', () => {
    const samples = Object.entries(CORPUS);
    const read = askPython(...samples.map(([, { bytes }]) => bytes));
    const differ = samples.filter(([, { bytes }], i) => !isDeepStrictEqual(partsOf(bytes), read[i]?.parts));
    expect(differ.map(([name]) => name)).to.have.members(Object.keys(OTHERWISE));
  });

  it('find the same parts with the same bytes in messages of random structure', () => {
    const messages = Array.from({ length: 200 }, (_, seed) =>
      randomMessage(randomFrom(seed + 1000), { isSound: true }),
    );
    const read = askPython(...messages.map(({ bytes }) => bytes));
    let parts = 0;
    for (const [i, { bytes, leaves }] of messages.entries()) {
      expect(partsOf(bytes), bytes.toString()).to.deep.equal(read[i]?.parts);
      expect(read[i]?.parts.length).to.equal(leaves.length);
      parts += leaves.length;
    }
    expect(parts).to.be.above(600);
  });
});
