import { expect } from 'chai';
import { type ParsedMessage, parseMessage } from '../../../src/mail/message.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';

import { crlf, multipart } from '../../support/mime.ts';
import { CORPUS } from '../../support/mime-corpus.ts';

async function parse(bytes: Buffer): Promise<ParsedMessage> {
  const scanned = scanStructure(bytes);
  if (scanned.breach !== undefined) throw new Error(scanned.breach);
  return parseMessage(bytes, scanned.root);
}

function sample(name: string): Promise<ParsedMessage> {
  const found = CORPUS[name];
  if (found === undefined) throw new Error(`no sample ${name}`);
  return parse(found.bytes);
}

function contentOf(parsed: ParsedMessage): string[] {
  return parsed.files.map(({ content }) => (content.kind === 'bytes' ? content.bytes.toString('latin1') : 'base64'));
}

describe('parsing a message', () => {
  it('keeps header fields in their order and unfolds them with one space', async () => {
    const { fields } = await parse(
      crlf('X-B: 1', 'Received: from a', '\tby b;', '   Mon', 'x-b:2', 'Empty:', 'Odd : spaced', '', 'x'),
    );
    expect(fields).to.deep.equal([
      { name: 'X-B', value: '1' },
      { name: 'Received', value: 'from a by b; Mon' },
      { name: 'x-b', value: '2' },
      { name: 'Empty', value: '' },
      { name: 'Odd', value: 'spaced' },
    ]);
  });

  it('skips invalid header lines', async () => {
    const { fields } = await parse(
      crlf('From x@example.com Mon Jan  5 12:00:00 2026', 'no colon', ': no name', 'bad name: x', 'Good: y', '', 'x'),
    );
    expect(fields).to.deep.equal([{ name: 'Good', value: 'y' }]);
  });

  it('reads header bytes that are not UTF-8 as windows-1252', async () => {
    const { fields } = await parse(Buffer.from('X-Name: J\xfcrgen \x80\r\nX-Other: plain\r\n\r\nx', 'latin1'));
    expect(fields).to.deep.equal([
      { name: 'X-Name', value: 'Jürgen €' },
      { name: 'X-Other', value: 'plain' },
    ]);
  });

  it('decodes encoded words, including those that split a character', async () => {
    const { subject, from, to } = await sample('encoded words');
    expect(subject).to.equal('Café and more🎉');
    expect(from).to.deep.equal({ address: 'j@example.com', name: 'Jürgen Müller' });
    expect(to).to.deep.equal([{ address: 'a@example.net', name: 'André P' }]);
  });

  it('decodes iso-2022-jp in headers and text', async () => {
    const { subject, from, text } = await sample('iso-2022-jp');
    expect([subject, from?.name, text]).to.deep.equal(['こんにちは', 'こんにちは', 'こんにちは\n']);
  });

  it('decodes windows-1252', async () => {
    expect((await sample('windows-1252')).text).to.equal('déjà vu “quoted” €\n');
  });

  it('reads an unknown charset as UTF-8', async () => {
    expect((await sample('an unknown charset')).text).to.equal('plain enough\n');
  });

  it('lists the members of groups beside the others, and none for an empty group', async () => {
    const { from, to, cc } = await sample('groups and comments');
    expect(from).to.deep.equal({ address: 'jane@example.com', name: 'Jane' });
    expect(to).to.deep.equal([
      { address: 'a@example.net', name: null },
      { address: 'b@example.net', name: 'B' },
    ]);
    expect(cc).to.deep.equal([
      { address: 'c@example.net', name: null },
      { address: 'd@example.net', name: 'D' },
    ]);
  });

  it('distinguishes a missing Cc from one without addresses', async () => {
    expect((await parse(crlf('From: a@example.com', '', 'x'))).cc).to.equal(undefined);
    expect((await parse(crlf('From: a@example.com', 'Cc:', '', 'x'))).cc).to.deep.equal([]);
  });

  it('uses the first HTML part and all texts', async () => {
    const { text, html } = await sample('two texts and two HTML parts');
    expect([text, html]).to.deep.equal(['one\n\ntwo\n', '<i>1</i>\n']);
  });

  it('has no text when there is no text part', async () => {
    const { text, html } = await sample('only HTML');
    expect([text, html]).to.deep.equal([undefined, '<p>Hello</p>\n']);
  });

  it('keeps the line break before a delimiter, as captured posts do', async () => {
    const { text, html } = await sample('text and HTML as alternatives');
    expect([text, html]).to.deep.equal(['Hello\n\n', '<div dir="ltr">Hello \ncafé goes on</div>\n\n']);
  });

  for (const [kind, header] of [
    ['a common header', []],
    ['an uncommon header', ['To: a:;']],
  ] as const) {
    it(`leaves flowed text as written and reports it (${kind})`, async () => {
      const { text, textFlowed } = await parse(
        crlf(
          'From: a@example.com',
          ...header,
          'Content-Type: text/plain; format=flowed',
          '',
          'A long line that ',
          'goes on.',
          '> quoted ',
          '> more',
        ),
      );
      expect([text, textFlowed]).to.deep.equal(['A long line that \ngoes on.\n> quoted \n> more\n', true]);
    });

    it(`keeps an embedded message as a file, for any disposition (${kind})`, async () => {
      const parsed = await parse(
        multipart(
          'mixed',
          ['From: a@example.com', ...header],
          ['', 'outer'],
          ['Content-Type: message/rfc822', 'Content-Disposition: inline', '', 'Subject: inner', '', 'inner text'],
        ),
      );
      expect(parsed.text).to.equal('outer\n');
      expect(contentOf(parsed)).to.deep.equal(['Subject: inner\r\n\r\ninner text']);
      expect(parsed.files[0]?.type).to.equal('message/rfc822');
    });

    it(`keeps a delivery status as a file (${kind})`, async () => {
      const parsed = await parse(
        multipart(
          'report',
          ['From: a@example.com', ...header],
          ['', 'failed'],
          ['Content-Type: message/delivery-status', '', 'Action: failed'],
        ),
      );
      expect(parsed.text).to.equal('failed\n');
      expect(contentOf(parsed)).to.deep.equal(['Action: failed']);
    });

    it(`returns the declared type, not one guessed from the name (${kind})`, async () => {
      const parsed = await parse(
        multipart(
          'mixed',
          ['From: a@example.com', ...header],
          ['Content-Type: application/octet-stream; name=a.pdf', '', 'x'],
        ),
      );
      expect(parsed.files[0]).to.include({ type: 'application/octet-stream', name: 'a.pdf' });
    });
  }

  it('decodes file names in pieces and in other charsets (RFC 2231)', async () => {
    expect((await sample('file names in pieces (RFC 2231)')).files.map(({ name }) => name)).to.deep.equal([
      'Übersicht 2026.pdf',
      'Übersicht.pdf',
    ]);
  });

  it('reads parts whose boundary and charset are in the form of RFC 2231', async () => {
    const { text, files } = await sample('a boundary and a charset in the form of RFC 2231');
    expect([text, files.map(({ type }) => type)]).to.deep.equal(['Привет\n', ['application/pgp-signature']]);
  });

  it('decodes encoded file names', async () => {
    expect((await sample('encoded file names')).files.map(({ name }) => name)).to.deep.equal([
      'Übersicht.pdf',
      '€ rates.txt',
    ]);
  });

  it('finds all files after an unclosed part', async () => {
    const parsed = await parse(
      crlf(
        'Content-Type: multipart/mixed; boundary=out',
        '',
        '--out',
        'Content-Type: multipart/alternative; boundary=in',
        '',
        '--in',
        '',
        'text',
        '--out',
        'Content-Type: image/png; name=a.png',
        '',
        'two',
        '--out--',
      ),
    );
    expect([parsed.text, contentOf(parsed)]).to.deep.equal(['text\n', ['two']]);
  });
});
