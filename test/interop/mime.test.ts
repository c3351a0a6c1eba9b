import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { withHeader } from '../../src/mail/header-section.ts';
import { scanMessage } from '../../src/mail/message.ts';
import { asUtf8 } from '../../src/webhooks/render/as-utf8.ts';
import { EIGHT_BIT } from '../support/eight-bit.ts';

interface Read {
  readonly leaves: readonly (readonly [string, string])[];
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
    Buffer.concat([...asUtf8(withHeader(raw), scanMessage(withHeader(raw)).root)])
      .toString()
      .replaceAll('\r\n', '\n'),
  );
describe("Python's email package as the one that reads raw_msg", () => {
  for (const [name, raw] of Object.entries(EIGHT_BIT)) {
    it(`finds in it what it finds in the original: ${name}`, () => {
      const [text, original] = askPython(asText(raw), withHeader(raw));
      expect(text?.leaves).to.deep.equal(original?.leaves);
      expect(JSON.stringify(text)).not.to.include('\ufffd');
    });
  }

  it('finds the header fields, which it cannot read in the original', () => {
    const [read] = askPython(asText(EIGHT_BIT['a latin1 body'] ?? Buffer.alloc(0)));
    expect([read?.subject, read?.from]).to.deep.equal(['Grüße aus Köln', 'Jürgen <j@example.com>']);
  });
});
