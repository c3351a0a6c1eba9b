import { globSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { expect } from 'chai';
import {
  bounceAddress,
  findReturnAddress,
  readReturnMailbox,
  toToken,
  unsubAddress,
} from '../../../src/mail/addresses/return-address.ts';
import { classifyReturned, type ReturnClassification } from '../../../src/returns/bounce-message.ts';

const SECRET = 'a secret';
const MESSAGE = '0123456789abcdef0123456789abcdef';
const FOLDER = 'test/fixtures/returns';
const tokens = { bounce: toToken(SECRET, 'bounce', 7, MESSAGE), unsub: toToken(SECRET, 'unsub', 7, MESSAGE) };

/** A mail as it comes over the wire, about the message. */
function mail(name: string): Buffer {
  const text = readFileSync(`${FOLDER}/${name}.eml`, 'utf8')
    .replaceAll('{{bounce}}', tokens.bounce)
    .replaceAll('{{unsub}}', tokens.unsub);
  return Buffer.from(text.replaceAll('\n', '\r\n'));
}

/** As it came: with the reverse-path of a bounce, or of a person. */
const about = (email: string | null, sender = '') => ({ email, sender });
const WITH_SENDER = ['human', 'spam-to-the-return-path', 'daemon-with-a-reverse-path'];
const toBounce = (name: string, email: string | null = 'jo@example.net') =>
  classifyReturned('bounce', mail(name), about(email, WITH_SENDER.includes(name) ? 'jo@example.net' : ''));
const inWords = (said: ReturnClassification) =>
  'bounce' in said
    ? `${said.kind} ${said.bounce.kind} ${said.bounce.description}: ${said.diag}`
    : said.kind === 'nothing'
      ? `nothing: ${said.why}`
      : said.kind;

/** What comes to the return path, and what it says. */
const BOUNCES: Readonly<Record<string, string>> = {
  'boundary-changed-by-a-gateway':
    'failed hard_bounce bad_mailbox: smtp;550 - Requested action not taken: no such user here',
  'error-sending-your-mail':
    'failed hard_bounce bad_mailbox: smtp;SMTP Server <mx.example.net> rejected recipient <jo@example.net> (Error following RCPT command). It responded as follows: [550 5.1.1 User unknown].',
  'domino-iso-2022-jp':
    'failed hard_bounce bad_mailbox: x-notes;ユーザー (jo@example.net) は Domino ディレクトリには見つかりません。',
  'postfix-unknown-user':
    'failed hard_bounce bad_mailbox: smtp;550 5.1.1 <jo@example.net>: Recipient address rejected: User unknown in virtual mailbox table',
  'postfix-over-quota': 'failed soft_bounce mailbox_full: smtp;552 5.2.2 <jo@example.net>: Over quota',
  'postfix-delayed':
    'delayed soft_bounce transient: x-postfix;connect to mail.example.net[203.0.113.9]:25: Connection timed out',
  'postfix-expired':
    'failed soft_bounce transient: x-postfix;connect to mail.example.net[203.0.113.9]:25: Connection timed out',
  'postfix-old-x-postfix':
    'failed hard_bounce bad_mailbox: x-postfix;host mail.example.net[203.0.113.9] said: 550 <jo@example.net>: User unknown (in reply to RCPT TO command)',
  'postfix-relayed': 'nothing: delivery report: relayed',
  'forwarded-to-two': 'nothing: delivery report: expanded',
  'other-recipient': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 no such user',
  'sendmail-host-unknown':
    'failed hard_bounce invalid_domain: smtp;550 5.1.2 <jo@example.net>... Host unknown (Name server: example.net: host not found)',
  'sendmail-still-trying': 'delayed soft_bounce transient: smtp;451 4.4.1 reply: read error from mail.example.net.',
  'sendmail-of-old': 'failed hard_bounce bad_mailbox: smtp;550 <jo@example.net>... User unknown',
  'exim-failed':
    'failed hard_bounce bad_mailbox: smtp;550 5.1.1 <jo@example.net>: Recipient address rejected: User unknown',
  'exim-unrouteable': 'failed hard_bounce invalid_domain: smtp;Unrouteable address',
  'exim-delayed': 'delayed soft_bounce transient: smtp;421 4.3.2 mail.example.net: Too busy, try again later',
  'exim-connection-timeout': 'failed soft_bounce transient: smtp;Connection timed out: retry timeout exceeded',
  'exim-retry-timeout': 'failed soft_bounce transient: smtp;retry timeout exceeded',
  'postfix-connection-timeout-as-text':
    'failed soft_bounce transient: smtp;jo@example.net>: connect to mx.rcpt.test[192.0.2.1]:25: Connection timed out',
  'gmx-retry-timeout': 'failed soft_bounce transient: smtp;delivery retry timeout exceeded',
  'yahoo-giving-up': 'failed soft_bounce transient: smtp;Unable to deliver message after multiple retries, giving up.',
  'workmail-encoded-subject': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 <jo@example.net>... User Unknown',
  'dsn-expired': 'failed soft_bounce transient: x-postfix;connect to mx.rcpt.test[192.0.2.1]:25: Connection timed out',
  'expired-without-a-status': 'failed soft_bounce transient: 4.4.7',
  'exchange-online':
    'failed hard_bounce invalid_domain: smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient jo@example.net not found by SMTP address lookup',
  'exchange-of-old': 'failed hard_bounce bad_mailbox: smtp;mail.example.net #5.1.1>',
  'exchange-html':
    "failed soft_bounce mailbox_full: smtp;554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:QuotaExceededException'",
  'gmail-no-such-user':
    "failed hard_bounce bad_mailbox: smtp;550-5.1.1 The email account that you tried to reach does not exist. Please try 550-5.1.1 double-checking the recipient's email address for typos or 550 5.1.1 unnecessary spaces.",
  'gmail-of-old':
    'failed soft_bounce mail_block: smtp;550 5.7.1 Message rejected due to local policy, blocked by spamhaus',
  'gmail-delay': 'delayed soft_bounce transient: smtp;421 4.4.2 Connection timed out',
  'qmail-no-mailbox': 'failed hard_bounce bad_mailbox: smtp;Sorry, no mailbox here by that name. (#5.1.1)',
  'qmail-remote-said': 'failed soft_bounce mailbox_full: smtp;552 sorry, the recipient has exceeded his quota',
  'qmail-too-long': "failed soft_bounce transient: smtp;Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)",
  'yahoo-remote': 'failed soft_bounce general: smtp;554: delivery error: dd Not a valid recipient',
  mdaemon: 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 Recipient unknown',
  domino: 'failed hard_bounce bad_mailbox: x-notes;User jo (jo@example.net) not listed in Domino Directory',
  'no-empty-line-between-blocks':
    "failed hard_bounce bad_mailbox: smtp;5.1.0 - Unknown address error 550-'5.1.1 User unknown' (delivery attempts: 0)",
  'utf8-recipient': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 <jö@example.net>: no such mailbox',
  'daemon-without-a-domain': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 no such user',
  // It was taken for an automatic reply, and the message stayed "sent".
  'daemon-that-says-it-replies': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 no such user',
  'daemon-with-a-reverse-path': 'failed hard_bounce bad_mailbox: smtp;550 5.1.1 no such user',
  'arf-to-the-return-path': 'spam',
  'vacation-outlook': 'nothing: auto-reply',
  'vacation-sieve': 'nothing: auto-reply',
  'vacation-by-subject': 'nothing: auto-reply',
  'vacation-precedence': 'nothing: auto-reply',
  'moved-away': 'nothing: auto-reply',
  challenge: 'nothing: challenge',
  human: 'nothing: not a recognized bounce',
  'bounce-without-a-reason': 'failed soft_bounce general: smtp;Something went wrong somewhere.',
  'spam-to-the-return-path': 'nothing: not a recognized bounce',
  'read-receipt': 'nothing: receipt',
};

/** What comes to fbl@ and abuse@. */
const COMPLAINTS: Readonly<Record<string, string>> = {
  'arf-yahoo': 'spam',
  'arf-redacted': 'spam',
  'arf-of-somebody-else': 'spam',
  jmrp: 'spam',
  'arf-opt-out': 'unsub',
  'arf-not-spam': 'nothing: feedback of type not-spam',
  'arf-dmarc-failure': 'nothing: feedback of type auth-failure',
  human: 'nothing: not a report',
  'spam-to-the-return-path': 'nothing: not a report',
  'postfix-unknown-user': 'nothing: a delivery report to the wrong address',
};

describe('returned mail', () => {
  for (const [name, words] of Object.entries(BOUNCES)) {
    it(`recognises ${name}`, () => expect(inWords(toBounce(name))).to.equal(words));
  }

  for (const [name, words] of Object.entries(COMPLAINTS)) {
    it(`recognises ${name} at the complaint address`, () =>
      expect(inWords(classifyReturned('complaints', mail(name), about(null)))).to.equal(words));
  }

  it('reads the parts of a multipart whose subtype is missing', () => {
    const text = mail('postfix-unknown-user')
      .toString()
      .replace('multipart/report; report-type=delivery-status;', 'multipart;');
    expect(inWords(classifyReturned('bounce', Buffer.from(text), about(null)))).to.equal(
      BOUNCES['postfix-unknown-user'],
    );
  });

  it('accepts anything at the unsubscribe address except a delivery report', () => {
    for (const name of ['unsubscribe-mail', 'unsubscribe-by-the-mail-program', 'human'])
      expect(classifyReturned('unsub', mail(name), about(null)).kind, name).to.equal('unsub');
    expect(classifyReturned('unsub', mail('postfix-unknown-user'), about(null)).kind).to.equal('nothing');
    expect(classifyReturned('unsub', mail('arf-redacted'), about(null)).kind).to.equal('spam');
  });

  it('prefers the result for the recipient to those for others', () => {
    expect(toBounce('forwarded-to-two').kind).to.equal('nothing');
    expect(toBounce('forwarded-to-two', 'ann@example.org').kind).to.equal('failed');
    expect(toBounce('forwarded-to-two', 'somebody@else.example').kind).to.equal('failed');
  });

  it('finds the message of a complaint by our tokens in the parts that it includes', () => {
    for (const name of ['arf-yahoo', 'arf-redacted', 'arf-opt-out', 'jmrp', 'arf-to-the-return-path']) {
      const said = classifyReturned('complaints', mail(name), about(null));
      expect('original' in said && findReturnAddress(SECRET, said.original), name).to.deep.equal({
        account: 7,
        message: MESSAGE,
      });
    }
    const other = classifyReturned('complaints', mail('arf-of-somebody-else'), about(null));
    expect('original' in other && findReturnAddress(SECRET, other.original)).to.equal(undefined);
  });

  it('has a fixture for every case and a case for every fixture', () => {
    const names = globSync(`${FOLDER}/*.eml`).map((path) => basename(path, '.eml'));
    expect(names.length).to.be.at.least(25);
    expect(
      names.filter((name) => !(name in BOUNCES) && !(name in COMPLAINTS) && !name.startsWith('unsubscribe-')),
    ).to.deep.equal([]);
  });
});

describe('returned mail that is truncated or hostile', () => {
  it('is parsed without an exception at any truncation', () => {
    for (const path of globSync(`${FOLDER}/*.eml`)) {
      const whole = mail(basename(path, '.eml'));
      for (let length = 0; length < whole.length; length += 37)
        classifyReturned('bounce', whole.subarray(0, length), about('jo@example.net'));
    }
  });

  it('is parsed as far as a report without an end goes', () => {
    const whole = mail('postfix-unknown-user');
    expect(
      classifyReturned('bounce', Buffer.concat([whole, Buffer.alloc(900_000, 'x')]), about('jo@example.net')).kind,
    ).to.equal('failed');
    const endless = Buffer.concat([
      mail('exim-failed').subarray(0, 400),
      Buffer.from('\r\n\r\n'),
      Buffer.alloc(900_000, ' 550 5.1.1'),
    ]);
    expect(classifyReturned('bounce', endless, about(null)).kind).to.be.oneOf(['failed', 'nothing']);
  });

  it('is ignored if it exceeds the limits of a message', () => {
    expect(
      inWords(
        classifyReturned(
          'bounce',
          Buffer.from(`From: a@example.net\r\n${'X: y\r\n'.repeat(2000)}\r\n550 5.1.1 no`),
          about(null),
        ),
      ),
    ).to.match(/^nothing: /);
  });

  it('is parsed in linear time', () => {
    const head = 'From: MAILER-DAEMON@x.example\r\nSubject: failure notice\r\n\r\n';
    for (const piece of [
      '(',
      '550 ',
      '<',
      '\n \t',
      '5.1.1',
      ' said: ',
      'a-',
      '0'.repeat(12) + '-',
      '-----\n',
      'mailbox is ',
      '"',
    ]) {
      classifyReturned('bounce', Buffer.from(head + piece.repeat(1_000_000 / piece.length)), about(null));
      classifyReturned(
        'bounce',
        Buffer.from(
          `Subject: ${piece.replaceAll('\n', '').repeat(200_000 / piece.length)}\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\n${piece.repeat(500_000 / piece.length)}\r\n--b--`,
        ),
        about(null),
      );
      findReturnAddress(SECRET, piece.repeat(200_000 / piece.length));
    }
  }).timeout(20_000);
});

describe('addresses of the return domain', () => {
  const boxes = (text: string) => readReturnMailbox(SECRET, text.slice(0, text.lastIndexOf('@')));

  it('are parsed in any case', () => {
    const bounce = bounceAddress(SECRET, 7, MESSAGE, 'bounces.postern.test');
    const unsub = unsubAddress(SECRET, 7, MESSAGE, 'bounces.postern.test');
    for (const write of [(text: string) => text, (text: string) => text.toUpperCase()]) {
      expect(boxes(write(bounce))).to.deep.equal({ kind: 'bounce', account: 7, message: MESSAGE });
      expect(boxes(write(unsub))).to.deep.equal({ kind: 'unsub', account: 7, message: MESSAGE });
    }
    expect(boxes('FBL@x')).to.deep.equal({ kind: 'complaints' });
    expect(boxes('abuse@x')).to.deep.equal({ kind: 'complaints' });
  });

  it('are parsed at their own domain, and found in the header of their message', () => {
    const own = 'bounces.customer.test';
    for (const [kind, address] of [
      ['bounce', bounceAddress(SECRET, 7, MESSAGE, own, own)],
      ['unsub', unsubAddress(SECRET, 7, MESSAGE, own, own)],
    ] as const) {
      const [name = ''] = address.split('@');
      expect(readReturnMailbox(SECRET, name, own)).to.deep.equal({ kind, account: 7, message: MESSAGE });
      for (const other of [undefined, 'customer.test'])
        expect(readReturnMailbox(SECRET, name, other)).to.equal(undefined);
      for (const text of [
        `Return-Path: <${address}>`,
        `<mailto:${address.toUpperCase()}?subject=x>`,
        `it was ${address}.`,
      ])
        expect(findReturnAddress(SECRET, text), text).to.deep.equal({ account: 7, message: MESSAGE });
      expect(findReturnAddress(SECRET, address.replace(own, 'else.test'))).to.equal(undefined);
    }
    for (const mailbox of ['fbl', 'abuse']) expect(readReturnMailbox(SECRET, mailbox, own)).to.equal(undefined);
  });

  it('fit into a local part even for very many accounts', () => {
    for (const address of [bounceAddress, unsubAddress])
      expect(address(SECRET, 36 ** 7 - 1, MESSAGE, '').length - 1).to.be.at.most(64);
  });

  it('cannot be forged', () => {
    const good = tokens.bounce;
    const last = good.endsWith('0') ? '1' : '0';
    for (const mailbox of [
      `${good.slice(0, -1)}${last}`,
      good.replace(/^7/, '8'),
      `unsub-${good}`,
      tokens.unsub,
      `unsub-unsub-${tokens.unsub}`,
      good.slice(0, -1),
      `${good}0`,
      '',
      'unsub-',
      'postmaster',
      'fbl-',
      toToken('another secret', 'bounce', 7, MESSAGE),
    ]) {
      expect(readReturnMailbox(SECRET, mailbox), mailbox).to.equal(undefined);
    }
  });
});
