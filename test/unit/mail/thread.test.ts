import { expect } from 'chai';
import { type HeaderField, parseHeaders } from '../../../src/mail/mime/headers.ts';
import { namesInSmtpReply, namesOfId, threadOfSent, toConversation } from '../../../src/mail/replies/sent-names.ts';
import { idsIn, repliedToIds, replyFieldsIn, threadIdOf, threadOfRoot } from '../../../src/mail/replies/thread.ts';

const fields = (text: string): readonly HeaderField[] => parseHeaders(Buffer.from(text, 'latin1'));
const references = (value: string) => idsIn(fields(`References: ${value}`), 'references');

describe('the message ids in a field', () => {
  const FORMS: Readonly<Record<string, readonly string[]>> = {
    '<a@b> <c@d>': ['a@b', 'c@d'],
    '<a@b>,<c@d>': ['a@b', 'c@d'],
    '<a@b><c@d>': ['a@b', 'c@d'],
    '<a@b>\r\n\t<c@d>': ['a@b', 'c@d'],
    '< a\r\n @ b >': ['a@b'],
    '(is <x@y> (or <z@y>)) <a@b> (\\) <w@y>)': ['a@b'],
    ':-( <a@b>': ['a@b'],
    '(never closed <a@b>': ['a@b'],
    'Your message of "Mon, 5 Jan 2026" <a@b>.': ['a@b'],
    '<<<a@b>>>': ['a@b'],
    '<a@b': [],
    '<> <a@b>': ['a@b'],
    'a@b': ['a@b'],
    'a@b c@d, e@f': ['a@b', 'c@d', 'e@f'],
    'mail of jo@b': [],
    '<no-at-sign>': ['no-at-sign'],
    '<"quo ted"@b>': ['"quoted"@b'],
    '=?us-ascii?Q?=3Ca=40b=3E?= =?us-ascii?Q?=3Cc=40d=3E?=': ['a@b', 'c@d'],
    '': [],
  };
  for (const [text, ids] of Object.entries(FORMS))
    it(`are ${ids.join(' and ') || 'none'} in ${JSON.stringify(text)}`, () => {
      expect(references(text)).to.deep.equal(ids);
    });

  it('are the first and the last of many, and none longer than a line', () => {
    const many = Array.from({ length: 10_000 }, (_, n) => `<${n}@b>`);
    const found = references(many.join(' '));
    expect(found).to.have.length(100);
    expect([found[0], found.at(-1)]).to.deep.equal(['0@b', '9999@b']);
    expect(references(`<${'a'.repeat(65_536)}@b> <c@d>`)).to.deep.equal(['c@d']);
  });

  it('are found in one pass, for any field', () => {
    for (const piece of ['<', '>', '(', ')', '\\', '()', '<>', '(<', '=?', '=?utf-8?Q?=3C?= ', ' ', 'a@', '@'])
      expect(references(piece.repeat(Math.ceil(250_000 / piece.length))).length, piece).to.be.at.most(100);
  });
});

describe('the conversation of a message', () => {
  it('is that of its root: in References, else In-Reply-To, else its own id', () => {
    const root = threadOfRoot('root@a');
    for (const text of [
      'Message-ID: <root@a>',
      'Message-ID: <2@b>\r\nIn-Reply-To: <Root@A>',
      'In-Reply-To: <2@b>\r\nReferences:\r\n <root@a> <2@b>',
      'References: \r\nReferences: <root@a>',
    ])
      expect(threadIdOf(fields(text)), text).to.equal(root);
    expect(threadIdOf(fields('Subject: x'))).to.equal(null);
  });

  it('is that of a sent message, for any host name', () => {
    const id = '0123456789abcdef0123456789abcdef';
    for (const host of ['in.postern.test', 'old.example'])
      expect(threadIdOf(fields(`References: <${id}@${host}> <x@y>`))).to.equal(threadOfSent(id));
    expect(threadOfSent(id, { thread: 'given' })).to.equal('given');
  });

  it('is unknown for a sent message with neither an id nor a parent', () => {
    expect(toConversation(fields('Subject: x\r\nReply-To: support+news@a.example'), 'a@b.example')).to.deep.equal({});
  });
});

describe('the references of a message', () => {
  it('begin with its parents, then go back from the nearest, up to a limit', () => {
    const text = `Subject: x\r\nREFERENCES : <1@a>\r\n <2@a> <3@a>\r\nIn-Reply-To\r\n : <3@a>\r\n\r\nReferences: <body@a>`;
    expect(repliedToIds(replyFieldsIn(Buffer.from(text)))).to.deep.equal(['3@a', '2@a', '1@a']);
    const many = `References: ${Array.from({ length: 1000 }, (_, n) => `<${n}@a>`).join(' ')}\r\n\r\n`;
    expect(repliedToIds(replyFieldsIn(Buffer.from(many)))).to.have.length(20);
    expect(repliedToIds(replyFieldsIn(Buffer.from('Message-ID: <1@a>\r\n\r\n')))).to.deep.equal([]);
  });
});

describe('the Message-IDs in the reply of a relay', () => {
  const shared = (reply: string, id: string) => namesOfId(id).some((name) => namesInSmtpReply(reply).includes(name));
  it('are found in its usual formats', () => {
    for (const [reply, id] of [
      [
        '2.0.0 Ok 0102018f4c7a3b2e-0a1b2c3d-aaaa-bbbb-cccc-0123456789ab-000000',
        '0102018f4c7a3b2e-0a1b2c3d-aaaa-bbbb-cccc-0123456789ab-000000@email.amazonses.com',
      ],
      ['Ok: queued as EOC1x7ETTEWAWMCN0rCN4A', 'EOC1x7ETTEWAWMCN0rCN4A@ismtpd0001p1iad1.sendgrid.net'],
      ['2.0.0 OK: queued as <202601051130.4711@smtp-relay.mailin.fr>', '202601051130.4711@smtp-relay.mailin.fr'],
      ['Ok: queued as 0A129AEE-E1CD-480D-B08D-4F48548FF48D', '0a129aee-e1cd-480d-b08d-4f48548ff48d@mtasv.net'],
    ] as const)
      expect(shared(reply, id), reply).to.equal(true);
  });

  it('are not words, numbers, addresses or hosts', () => {
    for (const reply of [
      '2.0.0 Ok: queued',
      'Queuedmailfordelivery thankyouverymuchindeed',
      '1234567890123456789012',
      'for jo.somebody.else.17@example.com by mx-in-0017.mail.example.com',
      '',
    ])
      expect(namesInSmtpReply(reply), reply).to.deep.equal([]);
    expect(
      namesInSmtpReply(`${'abcdefgh12345678 '.repeat(1)}${'x9y8z7w6v5u4t3s2r1 q1w2e3r4t5y6u7i8o9 '.repeat(500)}`)
        .length,
    ).to.be.at.most(6);
  });
});
