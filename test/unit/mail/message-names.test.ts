import { expect } from 'chai';
import { createNames, toFileName } from '../../../src/mail/filename.ts';

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
  ] as const) {
    it(`show ${JSON.stringify(written)} as ${JSON.stringify(shown)}`, () => {
      expect(toFileName(written)).to.equal(shown);
    });
  }

  it('are cut to 200 characters and keep their extension', () => {
    const name = toFileName(`${'x'.repeat(1000)}.pdf`);
    expect(name).to.have.length(200);
    expect(name.endsWith('.pdf')).to.equal(true);
    expect(toFileName('🎉'.repeat(500)).isWellFormed()).to.equal(true);
  });

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

  it('may be those of the language', () => {
    const names = createNames();
    expect(['__proto__', '__proto__', 'constructor'].map((name) => names.take(name, 'x/y'))).to.deep.equal([
      '__proto__',
      '__proto__ (2)',
      'constructor',
    ]);
  });
});
