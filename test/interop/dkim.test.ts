import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type Seen, sendDocument, sendDraft } from '../support/compose.ts';
import { makeKey } from '../support/dns-keys.ts';
import { tempDir } from '../support/temp.ts';

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';
const PROGRAM = new URL('../support/interop/verify_dkim.py', import.meta.url).pathname;
const KEY = makeKey('example.com', 'postern', 2048);
const RECORDS = Object.fromEntries(Object.entries(KEY.records).map(([name, node]) => [name, String(node.TXT?.[0])]));
const HEAD = ['From: Ann <ann@example.com>', 'To: bob@example.net', 'Subject: Hello'];
const TRACKED = { trackOpens: true, trackClicks: 'all', globalVars: [{ name: 'NAME', content: 'Bøb' }] } as const;

function verify(message: Uint8Array): string {
  const input = JSON.stringify({ message: Buffer.from(message).toString('base64'), records: RECORDS });
  const { stdout, stderr } = spawnSync(PYTHON, [PROGRAM], { input, encoding: 'utf8', timeout: 30_000 });
  return stdout.trim() || stderr;
}

const messages: Readonly<Record<string, () => Promise<Seen>>> = {
  'a draft, merged and tracked, with a file': () =>
    sendDraft(
      {
        html: '<p>*|NAME|* <a href="https://x.example/">x</a>  \t</p>\n\n\n',
        text: 'Grüße\n\n',
        attachments: [{ name: 'a.bin', type: 'application/octet-stream', content: 'AAEC' }],
        headers: [['Reply-To', 'desk@example.com']],
      },
      { dkim: KEY, outgoing: { ...TRACKED, subject: 'Grüße '.repeat(30) } },
    ),
  'an empty draft': () => sendDraft({}, { dkim: KEY }),
  'a document, merged and tracked': () =>
    sendDocument(
      [...HEAD, 'Content-Type: text/html; charset=utf-8', '', '*|NAME|* <a href="https://x.example/">x</a>', '', ''],
      { dkim: KEY, outgoing: TRACKED },
    ),
  'a document with runs of blanks and a trace line': () =>
    sendDocument([...HEAD, 'X-Own:  a  \t b ', '', ' a  \t b ', '\t', '', 'c '], {
      dkim: KEY,
      settings: { trace: 'Received: from a\r\n\tby b; now\r\n' },
    }),
  'a document without a body': () => sendDocument(HEAD, { dkim: KEY }),
  'a document of five megabytes': () =>
    sendDocument([...HEAD, '', ...Array<string>(70_000).fill('x'.repeat(70))], { dkim: KEY }),
};

/** Fields that a reader sees or is led by, and that no honest server adds. */
const FORGED = [
  'From',
  'To',
  'Cc',
  'Subject',
  'Date',
  'Reply-To',
  'Message-ID',
  'MIME-Version',
  'Content-Type',
  'Content-Transfer-Encoding',
  'List-Unsubscribe',
  'List-Unsubscribe-Post',
];
const withField = (raw: Buffer, name: string) => Buffer.concat([Buffer.from(`${name}: forged\r\n`), raw]);

describe('python3-dkim verifying our signatures', () => {
  before(function () {
    if (spawnSync(PYTHON, ['-c', 'import dkim']).status === 0) return;
    console.log('    (skipped: python3-dkim is not installed)');
    this.skip();
  });

  for (const [name, compose] of Object.entries(messages)) {
    it(`passes ${name}, and fails after a change of one letter`, async () => {
      const { raw } = await compose();
      const verdict = verify(raw);
      expect(verdict).to.match(/^valid /);
      expect(verdict.split(' ')[1]?.toLowerCase().split(':')).to.include.members([
        'from',
        'to',
        'subject',
        'date',
        'message-id',
        'list-unsubscribe',
        'list-unsubscribe-post',
      ]);
      expect(verify(Buffer.from(raw.toString('latin1').replace(/^Subject: /m, 'Subject: x'), 'latin1'))).to.match(
        /^invalid/,
      );
      expect(verify(Buffer.concat([raw, Buffer.from('x\r\n')]))).to.match(/^invalid/);
    });
  }

  for (const name of FORGED) {
    it(`fails a message with another ${name} in front`, async () => {
      const { raw } = await sendDocument([...HEAD, 'Cc: c@example.net', '', 'text'], { dkim: KEY });
      expect(verify(withField(raw, name))).to.match(/^invalid/);
    });
  }
});

describe('opendkim verifying our signatures', () => {
  let dir: string;
  before(async function () {
    if (spawnSync('opendkim', ['-V']).status !== 0) {
      console.log('    (skipped: opendkim is not installed)');
      this.skip();
    }
    dir = await tempDir();
    await writeFile(
      join(dir, 'zone'),
      Object.entries(RECORDS)
        .map(([name, text]) => `${name} ${text}\n`)
        .join(''),
    );
    await writeFile(join(dir, 'conf'), `Mode v\nSyslog no\nTestDNSData file:${join(dir, 'zone')}\n`);
  });

  async function judge(message: Uint8Array): Promise<string> {
    // As SMTP carries it: its last line ends in CRLF. A file without that is read as one without a body.
    await writeFile(
      join(dir, 'message'),
      Buffer.concat([message, Buffer.from(Buffer.from(message.slice(-2)).equals(Buffer.from('\r\n')) ? '' : '\r\n')]),
    );
    const { stdout, stderr } = spawnSync('opendkim', ['-x', join(dir, 'conf'), '-vv', '-t', join(dir, 'message')], {
      encoding: 'utf8',
      timeout: 30_000,
    });
    return /dkim=\w+/.exec(stdout)?.[0] ?? `${stdout}${stderr}`;
  }

  for (const [name, compose] of Object.entries(messages)) {
    it(`passes ${name}, and fails after a change of one letter`, async () => {
      const { raw } = await compose();
      expect(await judge(raw)).to.equal('dkim=pass');
      expect(await judge(Buffer.from(raw.toString('latin1').replace(/^Subject: /m, 'Subject: x'), 'latin1'))).to.equal(
        'dkim=fail',
      );
    });
  }

  for (const name of FORGED) {
    it(`fails a message with another ${name} in front`, async () => {
      const { raw } = await sendDocument([...HEAD, 'Cc: c@example.net', '', 'text'], { dkim: KEY });
      expect(await judge(withField(raw, name))).to.match(/^dkim=(?:fail|permerror)$/);
    });
  }
});
