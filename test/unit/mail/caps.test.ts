import { expect } from 'chai';
import { type Part, scanStructure } from '../../../src/mail/mime/structure.ts';
import { MESSAGE_LIMITS } from '../../../src/mail/outgoing.ts';
import { crlf, multipart } from '../../support/mime.ts';
import { nested } from '../../support/mime-hostile.ts';

function shape(part: Part): unknown {
  return part.children.length === 0 ? part.type.value : { [part.type.value]: part.children.map(shape) };
}

function shapeOf(bytes: Buffer): unknown {
  const scanned = scanStructure(bytes);
  return scanned.breach === undefined ? shape(scanned.root) : scanned.breach;
}

function breachOf(bytes: Buffer): string | undefined {
  return scanStructure(bytes).breach;
}

describe('the limits of a message', () => {
  it('allow a header of 1,000 fields and stop one of 1,001', () => {
    const fields = (count: number) => crlf(...Array.from({ length: count }, (_, i) => `X-${i}: y`), '', 'body');
    expect(breachOf(fields(MESSAGE_LIMITS.headerFields))).to.equal(undefined);
    expect(breachOf(fields(MESSAGE_LIMITS.headerFields + 1))).to.equal('a header of more than 1000 fields');
  });

  it('do not count the lines of a folded field', () => {
    expect(breachOf(crlf('X-A: y', ...Array.from({ length: 50_000 }, () => ' z'), '', 'body'))).to.equal(undefined);
    expect(breachOf(Buffer.from(' \n'.repeat(50_000)))).to.equal(undefined);
  });

  it('stop a header of more than 256 KiB, of the message and of a part', () => {
    const line = `X-A: ${'y'.repeat(MESSAGE_LIMITS.headerBytes)}`;
    expect(breachOf(crlf(line, '', 'body'))).to.equal('a header of more than 262144 bytes');
    expect(breachOf(multipart('mixed', [], [line, '', 'body']))).to.equal('a header of more than 262144 bytes');
  });

  it('stop part headers that are large together', () => {
    const parts = Array.from({ length: 20 }, () => [`X-A: ${'y'.repeat(60_000)}`, '', 'body']);
    expect(breachOf(multipart('mixed', [], ...parts))).to.equal('more than 1048576 bytes of part headers');
  });

  it('allow 999 parts in a multipart and stop one more', () => {
    const parts = (count: number) => multipart('mixed', [], ...Array.from({ length: count }, () => ['', 'x']));
    expect(breachOf(parts(MESSAGE_LIMITS.parts - 1))).to.equal(undefined);
    expect(breachOf(parts(MESSAGE_LIMITS.parts))).to.equal('more than 1000 parts');
  });

  it('allow multiparts 64 deep and stop one more', () => {
    expect(breachOf(nested(MESSAGE_LIMITS.nesting))).to.equal(undefined);
    expect(breachOf(nested(MESSAGE_LIMITS.nesting + 1))).to.equal('parts nested more than 64 deep');
  });

  it('stop more than 64 KiB of addresses, over all fields and parts', () => {
    const address = `a@${'b'.repeat(1000)}.example`;
    const fields = (count: number) =>
      Array.from({ length: count }, (_, i) => `${['To', 'Cc', 'Reply-To'][i % 3]}: ${address}`);
    expect(breachOf(crlf(...fields(60), '', 'x'))).to.equal(undefined);
    expect(breachOf(crlf(...fields(70), '', 'x'))).to.equal('more than 65536 bytes of addresses');
    expect(breachOf(multipart('mixed', fields(40), [...fields(40), '', 'x']))).to.equal(
      'more than 65536 bytes of addresses',
    );
  });
});

describe('the structure of a message', () => {
  it('is one part without a boundary', () => {
    expect(shapeOf(crlf('Subject: x', '', '--b', 'no delimiter'))).to.equal('');
    expect(shapeOf(crlf('Content-Type: multipart/mixed', '', '--b', '', 'x'))).to.equal('multipart/mixed');
  });

  it('accepts a delimiter with trailing white space', () => {
    const bytes = crlf(
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b \t',
      'Content-Type: text/plain',
      '',
      'one',
      '--b',
      'Content-Type: text/html',
      '',
      'two',
      '--b--  ',
    );
    expect(shapeOf(bytes)).to.deep.equal({ 'multipart/mixed': ['text/plain', 'text/html'] });
  });

  it('rejects a delimiter that goes on, or in the middle of a line', () => {
    const bytes = crlf(
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b',
      'Content-Type: text/plain',
      '',
      'x --b',
      '--bb',
      '--b-',
      '--b--',
    );
    expect(shapeOf(bytes)).to.deep.equal({ 'multipart/mixed': ['text/plain'] });
  });

  it('lets an outer delimiter end unclosed inner multiparts', () => {
    const bytes = crlf(
      'Content-Type: multipart/mixed; boundary=out',
      '',
      '--out',
      'Content-Type: multipart/alternative; boundary=in',
      '',
      '--in',
      'Content-Type: text/plain',
      '',
      'one',
      '--out',
      'Content-Type: image/png',
      '',
      'two',
      '--out--',
    );
    expect(shapeOf(bytes)).to.deep.equal({
      'multipart/mixed': [{ 'multipart/alternative': ['text/plain'] }, 'image/png'],
    });
  });

  it('reads LF line endings too', () => {
    expect(
      shapeOf(
        Buffer.from(
          'Content-Type: multipart/mixed;\n boundary=b\n\n--b\n\none\n--b\nContent-Type: text/html\n\ntwo\n--b--\n',
        ),
      ),
    ).to.deep.equal({ 'multipart/mixed': ['', 'text/html'] });
  });

  it('is a single part when no empty line ends the header', () => {
    for (const text of ['', '\r\n', '\r\n\r\n', 'no header at all', 'Subject: x', '\0\0\0', ':', ': x\r\n\r\n']) {
      expect(shapeOf(Buffer.from(text)), JSON.stringify(text)).to.equal('');
    }
  });
});
