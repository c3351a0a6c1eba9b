import { expect } from 'chai';
import { parseMessage } from '../../../src/mail/message.ts';
import { createNames, toFileName } from '../../../src/mail/mime/filename.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';

describe('file names', () => {
  for (const [written, shown] of [
    ['report.pdf', 'report.pdf'],
    ['../../etc/passwd', 'passwd'],
    ['C:\\Users\\x\\a.doc', 'a.doc'],
    ['/etc/', ''],
    ['..', ''],
    ['.', ''],
    ['a\0b\r\nc.txt', 'abc.txt'],
    ['invoice\u202egpj.exe', 'invoicegpj.exe'],
    ['a\u200bb', 'ab'],
    ['\u2028x', 'x'],
    ['\ud800x', 'x'],
    ['  spaced name.txt  ', 'spaced name.txt'],
    ['日本語.txt', '日本語.txt'],
    ['.htaccess', '.htaccess'],
    ['\\\\server\\share\\a.pdf', 'a.pdf'],
    ['a.exe. . ', 'a.exe'],
    ['...', ''],
    ['a/..', ''],
    ['a.\u00a0', 'a'],
  ] as const) {
    it(`are shown as ${JSON.stringify(shown)} for ${JSON.stringify(written)}`, () => {
      expect(toFileName(written)).to.equal(shown);
    });
  }

  it('are truncated to 200 characters and keep their extension', () => {
    const name = toFileName(`${'x'.repeat(1000)}.pdf`);
    expect(name).to.have.length(200);
    expect(name.endsWith('.pdf')).to.equal(true);
    expect(toFileName('🎉'.repeat(500)).isWellFormed()).to.equal(true);
  });

  for (const [written, shown] of [
    ['filename*0*=utf-8\'\'B%C3%BCro%20; filename*1="100%25.pdf"', 'Büro 100%25.pdf'],
    ["filename*0*=utf-8''a%C3; filename*1*=%BC.pdf", 'aü.pdf'],
    ["filename*1*=%BC.pdf; filename*0*=utf-8''a%C3", 'aü.pdf'],
    ["filename*0*=utf-8''a%20; filename*2=c.pdf", 'a c.pdf'],
    ['filename*0="a%20"; filename*1="b.pdf"', 'a%20b.pdf'],
    ["filename*=utf-8''50%25%zz%C3%BC%.pdf", '50%%zzü%.pdf'],
    ["filename*=iso-8859-1''Gr%FC%DFe.pdf", 'Grüße.pdf'],
    ["filename*=iso-8859-1''Gr%C3%BC%C3%9Fe.pdf", 'Grüße.pdf'],
    ["filename*=x-nobody''Gr%FC%DFe.pdf", 'Grüße.pdf'],
    ["filename*=''plain.pdf", 'plain.pdf'],
    ['filename*=plain.pdf', 'plain.pdf'],
    ["filename=fallback.pdf; filename*=utf-8''%C3%9C.pdf", 'Ü.pdf'],
    ["filename=fallback.pdf; filename*=utf-8''", 'fallback.pdf'],
    ['filename="B%C3%BCro.pdf"', 'B%C3%BCro.pdf'],
    ['filename="=?utf-8?B?w5xi?=\r\n =?utf-8?B?ZXI=?=.pdf"', 'Über.pdf'],
    ['filename==?utf-8?Q?=C3=9Cber_x.pdf?=', 'Über x.pdf'],
    ['filename*0="=?utf-8?B?w5xi"; filename*1="ZXI=?=.pdf"', 'Über.pdf'],
    ['filename*="=?utf-8?Q?=C3=9Cber?=.pdf"', 'Über.pdf'],
    ['filename="C:\\Users\\x\\a.pdf"', 'a.pdf'],
    ['filename=C:\\Users\\x\\a.pdf', 'a.pdf'],
    ['filename="C:\\\\Users\\\\x\\\\a.pdf"', 'a.pdf'],
    ['filename="a \\"b\\" c.pdf"', 'a "b" c.pdf'],
    ['filename="\xfcber.pdf"', 'über.pdf'],
    [`filename*0*=utf-8''${'%C3%BC'.repeat(5000)}; filename*1=".pdf"`, `${'ü'.repeat(196)}.pdf`],
  ] as const) {
    it(`are parsed from ${JSON.stringify(written).slice(0, 80)}`, () => {
      const bytes = Buffer.from(
        `Content-Type: application/pdf\r\nContent-Disposition: attachment; ${written}\r\n\r\nx`,
        'latin1',
      );
      const { root } = scanStructure(bytes);
      const name = root && parseMessage(bytes, root).files[0]?.name;
      expect(toFileName(name ?? '')).to.equal(shown);
    });
  }

  it('are made distinct within a message', () => {
    const names = createNames();
    expect(
      ['a.txt', 'a.txt', 'a (2).txt', 'a.txt', '', '', ''].map((name, i) =>
        names.take(name, i === 6 ? 'image/png' : 'x/y'),
      ),
    ).to.deep.equal([
      'a.txt',
      'a (2).txt',
      'a (2) (2).txt',
      'a (3).txt',
      'attachment',
      'attachment (2)',
      'attachment.png',
    ]);
  });

  it('may be those of object properties', () => {
    const names = createNames();
    expect(['__proto__', '__proto__', 'constructor'].map((name) => names.take(name, 'x/y'))).to.deep.equal([
      '__proto__',
      '__proto__ (2)',
      'constructor',
    ]);
  });
});
