import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { classifyReply, ruleInWords } from '../../../src/mail/bounce.ts';

const CASES: readonly (readonly [code: number, diag: string, kind: 'hard' | 'soft', word: string, number: number])[] = [
  [
    550,
    '5.1.1 <jo@example.com>: Recipient address rejected: User unknown in local recipient table',
    'hard',
    'bad_mailbox',
    10,
  ],
  [
    550,
    '5.1.1 The email account that you tried to reach does not exist. Please try double-checking',
    'hard',
    'bad_mailbox',
    10,
  ],
  [550, 'Requested action not taken: mailbox unavailable', 'soft', 'general', 20],
  [554, "delivery error: dd This user doesn't have an example.com account (jo@example.com)", 'hard', 'bad_mailbox', 10],
  [550, '5.4.1 Recipient address rejected: Access denied', 'hard', 'bad_mailbox', 10],
  [550, '5.2.1 The email account that you tried to reach is disabled', 'hard', 'bad_mailbox', 10],
  [553, 'sorry', 'soft', 'general', 20],
  [550, '5.1.2 no such domain', 'hard', 'invalid_domain', 21],
  [556, '5.1.10 example.com takes no mail (null MX)', 'hard', 'invalid_domain', 21],
  [552, '5.2.2 Over Quota', 'soft', 'mailbox_full', 22],
  [552, '5.2.2 The email account that you tried to reach is over quota', 'soft', 'mailbox_full', 22],
  [550, 'Mailbox full', 'soft', 'mailbox_full', 22],
  [452, '4.2.2 The email account is over quota', 'soft', 'mailbox_full', 22],
  [552, '5.3.4 Message size exceeds fixed limit', 'soft', 'message_size', 23],
  [552, '5.2.3 Message too large', 'soft', 'message_size', 23],
  [550, '5.7.1 Message rejected as spam by content filtering', 'soft', 'spam_detected', 52],
  [554, '5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.example.org', 'soft', 'mail_block', 50],
  [550, '5.7.26 This mail has been blocked because the sender is unauthenticated', 'soft', 'mail_block', 50],
  [550, '5.7.1 Delivery not authorized, message refused', 'soft', 'mail_block', 50],
  [554, '5.7.1 <jo@example.com>: Relay access denied', 'soft', 'relay_denied', 54],
  [550, '5.1.8 <a@b.example>: Sender address rejected: Domain not found', 'soft', 'general', 20],
  [554, 'Transaction failed', 'soft', 'general', 20],
  [550, '5.0.0 no', 'soft', 'general', 20],
  [451, '4.4.7 delivery time expired: 4.3.0 try again', 'soft', 'transient', 70],
  [0, '5.1.1', 'hard', 'bad_mailbox', 10],
  [0, '4.4.1', 'soft', 'transient', 70],
  [0, '', 'soft', 'general', 20],
  [550, '5.2.0 <jo@example.com> From: Domain is invalid. Please provide a valid From:', 'soft', 'general', 20],
  [501, '5.0.0 Invalid domain name', 'soft', 'general', 20],
  [550, '5.1.1 RCP-P2 Refused due to recipient preferences', 'soft', 'mail_block', 50],
  [0, 'procmail: Couldn\'t create "/var/spool/mail/jo" id: mx.example.com: No such user', 'soft', 'general', 20],
  [550, '5.7.27 Host does not accept mail', 'hard', 'invalid_domain', 21],
  [0, 'Reason: Illegal host/domain name found', 'hard', 'invalid_domain', 21],
  [0, 'Invalid final delivery userid: jo@example.com', 'hard', 'bad_mailbox', 10],
  [0, 'ユーザー (jo@example.com) は Domino ディレクトリには見つかりません。', 'hard', 'bad_mailbox', 10],
];

describe('a refused mail', () => {
  for (const [code, diag, kind, description, bgtools_code] of CASES) {
    it(`is a ${kind} bounce (${description}) after "${code} ${diag}"`, () => {
      expect(classifyReply(code, diag)).to.deep.include({ kind: `${kind}_bounce`, description, bgtools_code });
    });
  }

  // Replies of real servers, with addresses and names that were made up.
  for (const { name, reply, expected } of JSON.parse(readFileSync('test/fixtures/smtp-replies.json', 'utf8')))
    it(`is a ${expected} bounce after the reply "${name}"`, () => {
      const { kind, rule } = classifyReply(Number(reply.slice(0, 3)), reply.slice(4));
      expect(kind, rule).to.equal(`${expected}_bounce`);
    });

  it('has a sentence for the matching rule', () => {
    for (const reply of ['5.1.1 no such user', '5.0.0 no', '4.4.7 expired', '5.2.2 over quota'])
      expect(ruleInWords(classifyReply(550, reply).rule), reply).to.match(/^The |^A /);
  });

  it('is classified by the first thousand characters of a reply', () => {
    expect(classifyReply(550, `5.0.0 ${'mailbox '.repeat(100_000)} full, over quota`)).to.include({
      description: 'general',
    });
    expect(
      classifyReply(550, `5.1.1 no such user ${'over quota '.repeat(100_000)}`),
      'words of a full mailbox count more than a code',
    ).to.include({ description: 'mailbox_full' });
  });
});
