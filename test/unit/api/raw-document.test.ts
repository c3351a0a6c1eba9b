import { expect } from 'chai';
import { headerRecipients, toWireBytes, withoutBcc } from '../../../src/api/requests/raw-document.ts';

const recipientsOf = (document: string, most: number) => headerRecipients(Buffer.from(document), most);
const to = (list: string) => recipientsOf(`To: ${list}\r\n\r\n`, 100);
const bccOff = (document: string) => withoutBcc(Buffer.from(document)).toString();
const toWire = async (document: string) => (await toWireBytes(document)).toString();

describe('recipients in a header', () => {
  for (const [list, addresses] of [
    ['a@b.example', ['a@b.example']],
    ['A <a@b.example>', ['a@b.example']],
    ['"B, C" <a@b.example>, d@e.example', ['a@b.example', 'd@e.example']],
    ['"a b"@c.example', ['"a b"@c.example']],
    ['<"a>b"@c.example>', ['"a>b"@c.example']],
    ['a@b.example (home (work), old)', ['a@b.example']],
    ['Team: a@b.example, c@d.example;, e@f.example', ['a@b.example', 'c@d.example', 'e@f.example']],
    ['undisclosed-recipients:;', []],
    ['<@x.example,@y.example:a@b.example>', ['a@b.example']],
    ['"a \\" b" <c@d.example>', ['c@d.example']],
    [', ,', []],
    ['a@b.example <c@d.example>', ['c@d.example']],
    ['=?utf-8?q?a=2C_b?= <c@d.example>', ['c@d.example']],
    ['<a@b.example', ['a@b.example']],
    ['', []],
  ] as const) {
    it(`reads ${list === '' ? 'an empty list' : list}`, () => expect(to(list)).to.deep.equal(addresses));
  }

  it('are read from folded and repeated fields in any case, and not from the body', () => {
    expect(
      recipientsOf(
        'TO: a@b.example,\r\n\tc@d.example\r\ncc : e@f.example\r\nX: y\r\nBcc:\r\n g@h.example\r\nTo: i@j.example\r\n\r\nTo: k@l.example',
        100,
      ),
    ).to.deep.equal(['a@b.example', 'c@d.example', 'e@f.example', 'g@h.example', 'i@j.example']);
  });

  it('are none without a header, and stop at the limit', () => {
    expect(recipientsOf('\r\nTo: a@b.example', 100)).to.deep.equal([]);
    expect(recipientsOf('To: a@b.example, c@d.example, e@f.example\r\n\r\n', 2)).to.deep.equal([
      'a@b.example',
      'c@d.example',
    ]);
    expect(recipientsOf('', 2)).to.deep.equal([]);
  });

  it('are read from a document without a body', () => {
    expect(recipientsOf('To: a@b.example', 9)).to.deep.equal(['a@b.example']);
  });

  it('lose only Bcc with its folded lines', () => {
    expect(bccOff('A: 1\r\nBCC : x,\r\n y\r\nB:  2\r\n\r\nBcc: z\r\n')).to.equal('A: 1\r\nB:  2\r\n\r\nBcc: z\r\n');
    expect(bccOff('A: 1\r\n\r\nBcc: z\r\n')).to.equal('A: 1\r\n\r\nBcc: z\r\n');
    expect(bccOff('Bcc: x\r\n\r\n')).to.equal('\r\n');
  });
});

describe('line endings of a document', () => {
  const ENDS = ['\r', '\n', '\r\n', 'a', 'ä'];
  const texts = (length: number): string[] =>
    length === 0 ? [''] : texts(length - 1).flatMap((text) => ENDS.map((end) => text + end));

  it('become CRLF, in every combination of five', async () => {
    for (const text of texts(5)) expect(await toWire(text)).to.equal(text.replace(/\r\n|\r|\n/g, '\r\n'));
  });

  it('and characters stay whole wherever a slice ends', async () => {
    for (let n = 262_140; n < 262_150; n++)
      for (const text of ['\r\n', '\n', '😀', 'ä\r\n😀\r']) {
        const document = `${'x'.repeat(n)}${text.repeat(3)}`;
        expect((await toWire(document)) === document.replace(/\r\n|\r|\n/g, '\r\n'), `${n} ${text}`).to.equal(true);
      }
  });

  it('may be the whole document', async () => {
    for (const end of ['\r', '\n', '\r\n', '\n\r', '\r\r\n']) {
      const text = end.repeat(200_001);
      expect((await toWire(text)) === text.replace(/\r\n|\r|\n/g, '\r\n'), JSON.stringify(end)).to.equal(true);
    }
  });
});
