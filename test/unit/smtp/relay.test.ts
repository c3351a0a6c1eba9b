import { expect } from 'chai';
import { type Client, type Started, startListener } from '../../support/smtp.ts';
import {
  ACCOUNT,
  base64,
  CERTIFICATE,
  plain,
  type StartedSubmission,
  SUBMISSION_KEY,
  startSubmission,
} from '../../support/submission.ts';
import { until } from '../../support/until.ts';

/** What is said, line by line (several in one when they go out together), and how each reply must begin. */
type Dialog = readonly (readonly [say: string | Buffer, ...hear: string[]])[];

const GOOD = `AUTH PLAIN ${plain(SUBMISSION_KEY)}`;
const MAIL = 'MAIL FROM:<a@sender.test>';
const RCPT = 'RCPT TO:<victim@elsewhere.test>';

/** Nothing of a transaction works. */
const NOTHING: Dialog = [
  [MAIL, '530 5.7.0'],
  [RCPT, '503 5.5.1'],
  ['DATA', '503 5.5.1'],
];

async function play(client: Client, dialog: Dialog): Promise<void> {
  for (const [say, ...hear] of dialog) {
    client.send(typeof say === 'string' ? `${say}\r\n` : say);
    for (const start of hear) expect((await client.reply()).slice(0, start.length), String(say)).to.equal(start);
  }
}

const ENCRYPTED: Readonly<Record<string, Dialog>> = {
  'without a login': NOTHING,
  'from the null sender': [['MAIL FROM:<>', '530 5.7.0']],
  'from postmaster': [['MAIL FROM:<postmaster@mx.ours.test>', '530 5.7.0']],
  'with AUTH=<> on MAIL instead of a login': [[`${MAIL} AUTH=<>`, '530 5.7.0']],
  "with another's address in AUTH= instead of a login": [[`${MAIL} AUTH=someone@ours.test`, '530 5.7.0']],
  'to itself': [
    [MAIL, '530'],
    ['RCPT TO:<postmaster>', '503'],
  ],
  'with MAIL, RCPT and DATA in one packet': [[`${MAIL}\r\n${RCPT}\r\nDATA`, '530', '503', '503']],
  'with a wrong key': [[`AUTH PLAIN ${plain('a-wrong-key-of-22-chars')}`, '535 5.7.8'], ...NOTHING],
  'with a wrong key by LOGIN': [
    ['AUTH LOGIN', '334'],
    [base64('user'), '334'],
    [base64('wrong'), '535 5.7.8'],
    ...NOTHING,
  ],
  'with an empty key': [[`AUTH PLAIN ${plain('')}`, '535 5.7.8'], ...NOTHING],
  'with an empty key by LOGIN': [['AUTH LOGIN', '334'], [base64('user'), '334'], ['=', '535 5.7.8'], ...NOTHING],
  'with the key as the user name': [[`AUTH PLAIN ${plain('x', SUBMISSION_KEY)}`, '535 5.7.8'], ...NOTHING],
  'with the key as the authorization identity': [
    [`AUTH PLAIN ${plain('x', 'y', SUBMISSION_KEY)}`, '535 5.7.8'],
    ...NOTHING,
  ],
  'with the account as the key': [[`AUTH PLAIN ${plain(ACCOUNT)}`, '535 5.7.8'], ...NOTHING],
  'with the hash of the key': [[`AUTH PLAIN ${plain('e'.repeat(64))}`, '535 5.7.8'], ...NOTHING],
  'with the key in other letters': [[`AUTH PLAIN ${plain(SUBMISSION_KEY.toUpperCase())}`, '535 5.7.8'], ...NOTHING],
  'with the key and a blank': [[`AUTH PLAIN ${plain(`${SUBMISSION_KEY} `)}`, '535 5.7.8'], ...NOTHING],
  'with a key of 300 characters': [[`AUTH PLAIN ${plain('k'.repeat(300))}`, '535 5.7.8'], ...NOTHING],
  'with a NUL in the key': [[`AUTH PLAIN ${plain(`${SUBMISSION_KEY}\0`)}`, '501 5.5.2'], ...NOTHING],
  'with a NUL in front of all': [[`AUTH PLAIN ${base64(`\0\0\0${SUBMISSION_KEY}`)}`, '501 5.5.2'], ...NOTHING],
  'with two parts instead of three': [[`AUTH PLAIN ${base64(`user\0${SUBMISSION_KEY}`)}`, '501 5.5.2'], ...NOTHING],
  'with an empty response': [['AUTH PLAIN =', '501 5.5.2'], ...NOTHING],
  'with CRLF in the user name': [
    [`AUTH PLAIN ${plain(SUBMISSION_KEY, 'x\r\nMAIL FROM:<a@sender.test>')}`, '501 5.5.2'],
    ...NOTHING,
  ],
  'with CRLF in the user name of LOGIN': [[`AUTH LOGIN ${base64('x\r\n235 2.7.0 ok')}`, '501 5.5.2'], ...NOTHING],
  'with CRLF in the key of LOGIN': [
    ['AUTH LOGIN', '334'],
    [base64('u'), '334'],
    [base64(`${SUBMISSION_KEY}\r\n`), '501 5.5.2'],
    ...NOTHING,
  ],
  'with a key in plain text': [[`AUTH PLAIN ${SUBMISSION_KEY}`, '501 5.5.2'], ...NOTHING],
  'with base64 for URLs': [
    [`AUTH PLAIN ${Buffer.from('\0\0~~~???>>>').toString('base64url')}`, '501 5.5.2'],
    ...NOTHING,
  ],
  'with base64 without padding': [
    [`AUTH PLAIN ${plain(SUBMISSION_KEY, 'someone').replace(/=+$/, '')}`, '501 5.5.2'],
    ...NOTHING,
  ],
  'with bytes that are no text': [
    [`AUTH PLAIN ${Buffer.from([0, 0xff, 0xfe, 0, 0xc3, 0x28]).toString('base64')}`, '501 5.5.2'],
    ...NOTHING,
  ],
  'with a response that is cancelled': [['AUTH PLAIN', '334'], ['*', '501 5.7.0'], ...NOTHING],
  'with a key that is cancelled': [['AUTH LOGIN', '334'], [base64('u'), '334'], ['*', '501 5.7.0'], ...NOTHING],
  'with an initial response that is too long': [[`AUTH PLAIN ${base64('x'.repeat(3000))}`, '500 5.5.2']],
  'with a later response that is too long': [
    ['AUTH PLAIN', '334'],
    [base64('x'.repeat(3000)), '500 5.5.2'],
  ],
  'with MAIL as the response': [['AUTH PLAIN', '334'], [MAIL, '501 5.5.2'], ...NOTHING],
  'with a wrong AUTH and MAIL in one packet': [
    [`AUTH PLAIN ${plain('wrong')}\r\n${MAIL}\r\n${RCPT}\r\nDATA`, '535', '530', '503', '503'],
  ],
  'with AUTH, its response and MAIL in one packet': [
    [`AUTH LOGIN\r\n${base64('u')}\r\n${base64('wrong')}\r\n${MAIL}`, '334', '334', '535', '530'],
  ],
  'with a mechanism that nobody offered': [
    ['AUTH CRAM-MD5', '504 5.5.4'],
    ['AUTH XOAUTH2 abcd', '504 5.5.4'],
    ['AUTH EXTERNAL =', '504 5.5.4'],
    ['AUTH ANONYMOUS', '504 5.5.4'],
    ...NOTHING,
  ],
  'with AUTH of nothing': [['AUTH', '501 5.5.4'], ['AUTH PLAIN a b', '501 5.5.4'], ...NOTHING],
  'with a login that STARTTLS would repeat': [['STARTTLS', '503 5.5.1'], ...NOTHING],
  'with XCLIENT': [['XCLIENT LOGIN=admin ADDR=127.0.0.1', '502 5.5.1'], ...NOTHING],
  'with BDAT': [['BDAT 10 LAST', '502 5.5.1'], ...NOTHING],
  'with EXPN and VRFY': [['EXPN all', '502 5.5.1'], ['VRFY root', '252'], ...NOTHING],
};

const PLAINTEXT: Readonly<Record<string, Dialog>> = {
  'the right key before STARTTLS': [[GOOD, '538 5.7.11'], ...NOTHING],
  'the right key by LOGIN before STARTTLS': [
    ['AUTH LOGIN', '538 5.7.11'],
    [base64('u'), '500 5.5.2'],
    [base64(SUBMISSION_KEY), '500 5.5.2'],
    ...NOTHING,
  ],
  'no key before STARTTLS': NOTHING,
  'MAIL before EHLO': [['RSET', '250'], ['HELO x', '250'], ...NOTHING],
};

const INBOUND: Readonly<Record<string, Dialog>> = {
  'a right key': [
    [GOOD, '502 5.5.1'],
    [MAIL, '250'],
    [RCPT, '550 5.7.1'],
  ],
  'AUTH LOGIN': [
    ['AUTH LOGIN', '502 5.5.1'],
    [base64('u'), '500 5.5.2'],
  ],
  'AUTH=<> on MAIL': [[`${MAIL} AUTH=<>`, '555 5.5.4']],
  "somebody else's domain": [
    [MAIL, '250'],
    [RCPT, '550 5.7.1'],
  ],
  'a source route': [
    [MAIL, '250'],
    ['RCPT TO:<@ours.test:victim@elsewhere.test>', '550 5.7.1'],
  ],
  'a percent sign': [
    [MAIL, '250'],
    ['RCPT TO:<victim%elsewhere.test@ours.test>', '550 5.7.1'],
  ],
  'a bang path': [
    [MAIL, '250'],
    ['RCPT TO:<elsewhere.test!victim@ours.test>', '550 5.7.1'],
  ],
  'a quoted at sign': [
    [MAIL, '250'],
    ['RCPT TO:<"victim@elsewhere.test"@ours.test>', '550 5.7.1'],
  ],
  'a quoted percent sign': [
    [MAIL, '250'],
    ['RCPT TO:<"victim%elsewhere.test"@ours.test>', '550 5.7.1'],
  ],
  'two at signs': [
    [MAIL, '250'],
    ['RCPT TO:<victim@elsewhere.test@ours.test>', '501 5.1.3'],
  ],
  'an address of IPv4': [
    [MAIL, '250'],
    ['RCPT TO:<victim@[127.0.0.1]>', '550 5.7.1'],
  ],
  'an address of IPv6': [
    [MAIL, '250'],
    ['RCPT TO:<victim@[IPv6:::1]>', '550 5.7.1'],
  ],
  'a bare address': [
    [MAIL, '250'],
    ['RCPT TO:<victim@127.0.0.1>', '501 5.1.3'],
  ],
  'a domain that ends as one of ours': [
    [MAIL, '250'],
    ['RCPT TO:<victim@not-ours.test>', '550 5.7.1'],
    ['RCPT TO:<victim@ours.test.elsewhere.test>', '550 5.7.1'],
  ],
  'a sender of ours': [
    ['MAIL FROM:<b@ours.test>', '250'],
    [RCPT, '550 5.7.1'],
  ],
  'the null sender': [
    ['MAIL FROM:<>', '250'],
    [RCPT, '550 5.7.1'],
  ],
  'a parameter ORCPT': [
    [MAIL, '250'],
    ['RCPT TO:<victim@elsewhere.test> ORCPT=rfc822;b@ours.test', '550 5.7.1'],
  ],
};

/** Recipients that are refused even to those who may send. */
const NO_RECIPIENTS: Readonly<Record<string, string>> = {
  'RCPT TO:<@relay.test:victim@[127.0.0.1]>': '550 5.1.2',
  'RCPT TO:<@a.test:@b.test:victim@elsewhere.test>': '501 5.1.3',
  'RCPT TO:<victim@[127.0.0.1]>': '550 5.1.2',
  'RCPT TO:<victim@[IPv6:::1]>': '550 5.1.2',
  'RCPT TO:<victim@127.0.0.1>': '501 5.1.3',
  'RCPT TO:<victim@elsewhere.test@ours.test>': '501 5.1.3',
  'RCPT TO:<>': '501 5.1.3',
  'RCPT TO:<webmaster>': '501 5.1.3',
  'RCPT TO:<a@[127.0.0.1]> ORCPT=rfc822;victim@elsewhere.test': '550 5.1.2',
  'RCPT TO:<"a\r\nRCPT TO:<b@c.test>': '501 5.1.3',
};

describe('unauthenticated clients cannot relay', () => {
  let submission: StartedSubmission;
  let inbound: Started;
  before(async () => {
    submission = await startSubmission({
      tls: CERTIFICATE,
      tlsListen: [{ host: '127.0.0.1', port: 0 }],
      maxBadKeysPerMinute: 1000,
    });
    inbound = await startListener();
  });
  after(() => Promise.all([submission.stop(), inbound.stop()]));
  afterEach(() => {
    expect(submission.below.submitted).to.deep.equal([]);
    expect(inbound.below.taken).to.deep.equal([]);
    expect(JSON.stringify(submission.log.lines))
      .to.not.include(SUBMISSION_KEY)
      .and.not.include(plain(SUBMISSION_KEY))
      .and.not.include(base64(SUBMISSION_KEY));
  });

  for (const [name, dialog] of Object.entries(ENCRYPTED)) {
    it(`${name} (STARTTLS)`, async () => play(await submission.secured(), dialog));
    it(`${name} (TLS from the start)`, async () => play(await submission.implicit(), dialog));
  }
  for (const [name, dialog] of Object.entries(PLAINTEXT)) {
    it(`in plaintext: ${name}`, async () => play(await submission.client(), dialog));
  }
  for (const [name, dialog] of Object.entries(INBOUND)) {
    it(`${name} (inbound)`, async () => play(await inbound.client(), dialog));
  }

  it('with a key that was revoked', async () => {
    const other = await startSubmission({ tls: CERTIFICATE });
    await other.revoke();
    await play(await other.secured(), [[GOOD, '535 5.7.8'], ...NOTHING]);
    await other.stop();
  });

  it('with a key of a deleted account', async () => {
    const other = await startSubmission({ tls: CERTIFICATE });
    await other.store.accounts.remove({ id: ACCOUNT });
    await play(await other.secured(), [[GOOD, '535 5.7.8'], ...NOTHING]);
    await other.stop();
  });

  it('with a key that is revoked during the session', async () => {
    const other = await startSubmission({ tls: CERTIFICATE });
    const client = await other.loggedIn();
    await play(client, [
      [MAIL, '250'],
      ['RSET', '250'],
    ]);
    await other.revoke();
    await other.clock.advance(3000);
    await play(client, NOTHING);
    expect(other.below.submitted).to.deep.equal([]);
    await other.stop();
  });

  for (const smuggled of [
    `STARTTLS\r\n${GOOD}\r\n${MAIL}\r\n${RCPT}\r\n`,
    `STARTTLS\r\nEHLO x\r\n${GOOD}\r\n`,
    `STARTTLS\r\nAUTH PLAIN\r\n${plain(SUBMISSION_KEY)}`,
  ]) {
    it(`with a login in plaintext behind STARTTLS (${smuggled.split('\r\n').length} lines)`, async () => {
      const client = await submission.client();
      client.send(smuggled);
      expect(await client.reply()).to.match(/^220/);
      await client.secure();
      await play(client, [['EHLO x', '250'], ...NOTHING]);
      expect(client.pending()).to.deep.equal([]);
    });
  }

  it('by commands sent before STARTTLS', async () => {
    const other = await startSubmission({ tls: CERTIFICATE, requireTls: false });
    const client = await other.client();
    await play(client, [
      [GOOD, '235'],
      ['STARTTLS', '220'],
    ]);
    await client.secure();
    await play(client, [['EHLO x', '250'], ...NOTHING]);
    await other.stop();
  });

  it('in plaintext from an address that is not on loopback, though the daemon listens there', async () => {
    const other = await startSubmission({ loopbackOnly: true, proxyProtocol: ['127.0.0.1'] });
    const far = other.raw();
    await play(far, [
      ['PROXY TCP4 192.0.2.7 127.0.0.1 4000 587', '220'],
      ['EHLO x', '250'],
      [GOOD, '538 5.7.11'],
      ...NOTHING,
    ]);
    const near = other.raw();
    await play(near, [
      ['PROXY TCP4 127.0.0.1 127.0.0.1 4000 587', '220'],
      ['EHLO x', '250'],
      [GOOD, '235'],
    ]);
    await other.stop();
  });

  it('even with a login, to an unknown mailbox of a domain', async () => {
    const client = await submission.loggedIn();
    await play(client, [[MAIL, '250']]);
    for (const [line, reply] of Object.entries(NO_RECIPIENTS)) {
      await play(client, [[line, reply]]);
      // the second line is a command of its own
      if (line.includes('\r\n')) expect(await client.reply()).to.match(/^250/);
    }
  });

  it('by any order of commands (400 sessions, seed 20261121)', async function () {
    this.timeout(60_000);
    const open = await startSubmission({ loopbackOnly: true, maxBadKeysPerMinute: 100_000 });
    const words = [
      'EHLO x',
      'HELO x',
      MAIL,
      RCPT,
      'DATA',
      'RSET',
      'NOOP',
      '*',
      '=',
      '',
      '.',
      'AUTH PLAIN',
      'AUTH LOGIN',
      'AUTH LOGIN =',
      `AUTH PLAIN ${plain('wrong')}`,
      plain('wrong'),
      base64('wrong'),
      `AUTH ${base64('x')}`,
      'STARTTLS',
      `${MAIL} AUTH=<>`,
      'From: a@sender.test',
      'VRFY x',
    ];
    let state = 20261121;
    const chance = (below: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0; // Numerical Recipes
      return Math.floor((state / 2 ** 32) * below);
    };
    for (let i = 0; i < 400; i++) {
      const client = await open.client('');
      const lines = Array.from({ length: chance(20) + 1 }, () => words[chance(words.length)] ?? '');
      client.send(`${['EHLO c', ...lines].join('\r\n')}\r\n${chance(2) === 0 ? 'QUIT\r\n' : ''}`);
      if (chance(3) === 0) client.destroy();
      else client.end();
    }
    await until('the end of all', () => open.log.of('smtp.session').length === 400, 30_000);
    expect(open.below.submitted).to.deep.equal([]);
    expect(open.log.of('smtp.fault')).to.deep.equal([]);
    expect(await (await open.client()).say(GOOD)).to.match(/^235/);
    await open.stop();
  });

  it('with TLS from the first byte, which does not listen without a certificate', async () => {
    const open = await startSubmission({ listen: [], tlsListen: [{ host: '127.0.0.1', port: 0 }] });
    expect(open.listener.addresses()).to.deep.equal([]);
    expect(open.listener.healthy()).to.equal(true);
    await open.listener.reload(CERTIFICATE);
    expect(open.listener.addresses()).to.have.length(1);
    await open.stop();
  });

  for (const [text, domain] of [
    ['victim%elsewhere.test@away.test', 'away.test'],
    ['elsewhere.test!victim@away.test', 'away.test'],
    ['"victim@elsewhere.test"@away.test', 'away.test'],
  ] as const) {
    it(`by ${text}, which is mail for ${domain}`, async () => {
      const other = await startSubmission({ tls: CERTIFICATE });
      const client = await other.loggedIn();
      await play(client, [
        [MAIL, '250'],
        [`RCPT TO:<${text}>`, '250'],
        ['DATA', '354'],
        ['From: a@sender.test\r\n\r\nx\r\n.', '250'],
      ]);
      expect(other.below.submitted[0]?.recipients).to.deep.equal([text]);
      expect(text.slice(text.lastIndexOf('@') + 1)).to.equal(domain);
      await other.stop();
    });
  }
});
