import { expect } from 'chai';
import { headerRecipients, withoutBcc } from '../../../src/api/raw-document.ts';

const to = (list: string) => headerRecipients(`To: ${list}\r\n\r\n`, 100);

describe('recipients of a header', () => {
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

  it('looks at folded and repeated fields in any case, and at nothing below the empty line', () => {
    expect(
      headerRecipients(
        'TO: a@b.example,\r\n\tc@d.example\r\ncc : e@f.example\r\nX: y\r\nBcc:\r\n g@h.example\r\nTo: i@j.example\r\n\r\nTo: k@l.example',
        100,
      ),
    ).to.deep.equal(['a@b.example', 'c@d.example', 'e@f.example', 'g@h.example', 'i@j.example']);
  });

  it('finds none where there is no header, and stops at the limit', () => {
    expect(headerRecipients('\r\nTo: a@b.example', 100)).to.deep.equal([]);
    expect(headerRecipients('To: a@b.example, c@d.example, e@f.example\r\n\r\n', 2)).to.deep.equal([
      'a@b.example',
      'c@d.example',
    ]);
    expect(headerRecipients('', 2)).to.deep.equal([]);
  });

  it('reads a document that is all header', () => {
    expect(headerRecipients('To: a@b.example', 9)).to.deep.equal(['a@b.example']);
  });

  it('takes Bcc out with its folded lines and touches nothing else', () => {
    expect(withoutBcc('A: 1\r\nBCC : x,\r\n y\r\nB:  2\r\n\r\nBcc: z\r\n')).to.equal('A: 1\r\nB:  2\r\n\r\nBcc: z\r\n');
    expect(withoutBcc('A: 1\r\n\r\nBcc: z\r\n')).to.equal('A: 1\r\n\r\nBcc: z\r\n');
    expect(withoutBcc('Bcc: x\r\n\r\n')).to.equal('\r\n');
  });
});
