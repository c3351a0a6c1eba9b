import { expect } from 'chai';
import { parseMessage, subjectOf } from '../../../src/mail/message.ts';
import { START_BYTES } from '../../../src/mail/mime/field-search.ts';
import { headerBlock, readFields } from '../../../src/mail/mime/header-section.ts';
import { scanStructure } from '../../../src/mail/mime/structure.ts';
import { headerLimitBreach } from '../../../src/mail/outgoing.ts';
import { threadOfRoot } from '../../../src/mail/replies/thread.ts';
import { mailSummaryOf, summaryFields, toSummary } from '../../../src/mail/summary.ts';
import { EIGHT_BIT } from '../../support/eight-bit.ts';
import { processorMs } from '../../support/growth.ts';
import { CORPUS } from '../../support/mime-corpus.ts';

const bytes = (text: string) => Buffer.from(text, 'latin1');
const found = (text: string) => mailSummaryOf(summaryFields(bytes(text)));

/** A header of at least this number of octets, made of one repeated piece. */
const header = (start: string, piece: string, size = 2 * START_BYTES) =>
  bytes(`${start}${piece.repeat(Math.ceil(size / piece.length))}\r\n\r\nbody\r\n`);

/** Headers that are made to take long. */
const EXPENSIVE: Readonly<Record<string, Buffer>> = {
  'lines of two octets': header('', 's\n'),
  'empty continuations': header('Subject: x\r\n', ' \r\n'),
  'one subject after the other': header('', 'Subject: a\r\n'),
  'one From after the other': header('', 'From: a@b.example\r\n'),
  'one long line': header('Subject: ', 'x'),
  'no header': header('', 'nothing of this is a header '),
  'blanks before a colon that never comes': header('From', ' '),
  'encoded words': header('Subject: ', '=?utf-8?B?YQ==?= '),
  'unknown charsets': header('Subject: ', '=?xyz?Q?a?= =?zyx?Q?b?= '),
  'charsets that keep a state': header('Subject: ', '=?utf-7?Q?+AGE-?= =?utf-16?B?AGE=?= =?iso-2022-jp?B?GyRC?= '),
  'words that do not end': header('Subject: ', '=?a?Q?'),
  'comments in comments': header('From: ', '('),
  quotes: header('From: ', '"\\'),
  angles: header('From: ', '<'),
  groups: header('From: ', 'a:b,'),
  addresses: header('From: ', 'a@xn--b.example, '),
};

describe('the summary of a message', () => {
  it('matches the result of parsing the whole message', async () => {
    const all = [
      ...Object.entries(CORPUS).map(([name, sample]) => [name, sample.bytes] as const),
      ...Object.entries(EIGHT_BIT),
    ];
    expect(all.length).to.be.above(40);
    for (const [name, message] of all) {
      const scanned = scanStructure(message);
      if (!scanned.root) throw new Error(`${name} is not parsed`);
      const parsed = toSummary(await parseMessage(message, scanned.root));
      expect(mailSummaryOf(summaryFields(message)), name).to.deep.equal(parsed);
    }
  });

  it('finds fields in any case, folded, encoded, after others, and with the colon on the next line', () => {
    expect(
      found(
        'Received: by x\r\n\tfrom: not.this@one\r\nSUBJECT : =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\n =?utf-8?Q?_aus_K=C3=B6ln?=\r\n' +
          'from: =?iso-8859-1?Q?J=F6rg?= <j@shop.example>\r\nMessage-Id\r\n : <7@shop>\r\n\r\nSubject: body\r\n',
      ),
    ).to.deep.equal({
      from: 'Jörg <j@shop.example>',
      subject: 'Grüße aus Köln',
      messageId: '<7@shop>',
      thread: threadOfRoot('7@shop'),
    });
  });

  it('reports a missing subject and a missing author', () => {
    for (const text of [
      '',
      '\r\nFrom: a@b.example\r\n',
      'just text\r\n',
      ' From: a@b.example\r\n\r\n',
      'To: x@y.example\r\n',
    ])
      expect(found(text), JSON.stringify(text)).to.deep.equal({
        from: null,
        subject: '',
        messageId: null,
        thread: null,
      });
  });

  it('does not need the end of the header', () => {
    expect(found('Subject: cut of').subject).to.equal('cut of');
    expect(found(`Subject: first\r\nX-Long: ${'x'.repeat(START_BYTES)}\r\nFrom: too@late.example`)).to.include({
      subject: 'first',
      from: null,
    });
  });

  it('is found after a thousand recipients, one per line, as by a full parse', async () => {
    const to = Array.from({ length: 1100 }, (_, i) => `person${i}@corp.test`).join(',\r\n ');
    const message = bytes(`From: Ana <ana@corp.test>\r\nTo: ${to}\r\nSubject: all staff\r\n\r\nHello all.\r\n`);
    const { root } = scanStructure(message);
    const parsed = root && parseMessage(message, root);
    expect([parsed?.to.length, parsed?.subject, parsed?.text]).to.deep.equal([1100, 'all staff', 'Hello all.\n']);
    expect(mailSummaryOf(summaryFields(message))).to.include({ from: 'Ana <ana@corp.test>', subject: 'all staff' });
    expect(headerLimitBreach(headerBlock(message)), 'it may also be sent').to.equal(undefined);
    expect(subjectOf(readFields(message)), 'for the conditions of a route').to.equal('all staff');
  });

  it('has at most 200 characters per field', () => {
    const { from, subject, messageId } = found(
      `From: ${'n'.repeat(900)} <a@b.example>\r\nSubject: ${'s'.repeat(900)}\r\nMessage-ID: <${'m'.repeat(900)}>\r\n\r\n`,
    );
    expect([from, subject, messageId].map((text) => text?.length)).to.deep.equal([200, 200, 200]);
    const chinese = `Subject: ${'=?utf-8?B?5Lit5paH5Lit5paH5Lit5paH5Lit5paH5Lit5paH5Lit5paH5Lit5paH5Lit5paH?=\r\n '.repeat(20)}\r\n\r\n`;
    expect(found(chinese).subject).to.equal('中文'.repeat(100));
  });

  it('takes a bounded time for hostile headers', function () {
    this.timeout(60_000);
    const took: Record<string, number> = {};
    const times = (run: () => void) => processorMs(() => Array.from({ length: 10 }, run));
    // In the same run: what reading an ordinary header of that size takes.
    const plain = header('', 'X-Line: some seventy octets of text, as they stand in the header of any mail\r\n');
    const pass = times(() => readFields(plain));
    for (const [name, message] of Object.entries(EXPENSIVE)) {
      const fields = summaryFields(message);
      expect(fields.length, name).to.be.below(9000);
      took[name] = times(() => summaryFields(message)) / pass;
      expect(took[name], `${name}: found`).to.be.below(20);
      expect(times(() => mailSummaryOf(fields)) / pass, `${name}: decoded`).to.be.below(60);
    }
    const [name, most] = Object.entries(took).toSorted(([, a], [, b]) => b - a)[0] ?? [];
    console.log(`      slowest to find: ${name}, ${most?.toFixed(1)} times an ordinary header`);
  });
});
