import { expect } from 'chai';
import { spawnSync } from 'node:child_process';
import { sendDocument, sendDraft, type Seen } from '../test/support/compose.ts';
import { makeKey } from '../test/support/dns-keys.ts';

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';
const PROGRAM = new URL('verify_dkim.py', import.meta.url).pathname;
const KEY = makeKey('example.com', 'postern', 2048);
const RECORDS = Object.fromEntries(Object.entries(KEY.records).map(([name, node]) => [name, String(node.TXT?.[0])]));
const HEAD = ['From: Ann <ann@example.com>', 'To: bob@example.net', 'Subject: Hello'];
const TRACKED = { trackOpens: true, trackClicks: 'all', globalVars: [{ name: 'NAME', content: 'Bøb' }] } as const;

function verify(message: Uint8Array): string {
  const input = JSON.stringify({ message: Buffer.from(message).toString('base64'), records: RECORDS });
  const { stdout, stderr } = spawnSync(PYTHON, [PROGRAM], { input, encoding: 'utf8', timeout: 30_000 });
  return stdout.trim() || stderr;
}

describe('python3-dkim as the one that checks our signatures', () => {
  before(function () {
    if (spawnSync(PYTHON, ['-c', 'import dkim']).status === 0) return;
    console.log('    (skipped: python3-dkim is not installed)');
    this.skip();
  });

  const messages: Readonly<Record<string, () => Promise<Seen>>> = {
    'a draft, merged and tracked, with a file': () => sendDraft({
      html: '<p>*|NAME|* <a href="https://x.example/">x</a>  \t</p>\n\n\n', text: 'Grüße\n\n', attachments: [{ name: 'a.bin', type: 'application/octet-stream', content: 'AAEC' }], headers: [['Reply-To', 'desk@example.com']],
    }, { dkim: KEY, outgoing: { ...TRACKED, subject: 'Grüße '.repeat(30) } }),
    'an empty draft': () => sendDraft({}, { dkim: KEY }),
    'a document, merged and tracked': () => sendDocument([...HEAD, 'Content-Type: text/html; charset=utf-8', '', '*|NAME|* <a href="https://x.example/">x</a>', '', ''], { dkim: KEY, outgoing: TRACKED }),
    'a document with runs of blanks and a trace line': () => sendDocument([...HEAD, 'X-Own:  a  \t b ', '', ' a  \t b ', '\t', '', 'c '], { dkim: KEY, settings: { trace: 'Received: from a\r\n\tby b; now\r\n' } }),
    'a document without a body': () => sendDocument(HEAD, { dkim: KEY }),
    'a document of five megabytes': () => sendDocument([...HEAD, '', ...Array<string>(70_000).fill('x'.repeat(70))], { dkim: KEY }),
  };
  for (const [name, compose] of Object.entries(messages)) {
    it(`finds ${name} valid, and not any more when a letter of it changes`, async () => {
      const { raw } = await compose();
      const verdict = verify(raw);
      expect(verdict).to.match(/^valid /);
      expect(verdict.split(' ')[1]?.toLowerCase().split(':')).to.include.members(['from', 'to', 'subject', 'date', 'message-id', 'list-unsubscribe', 'list-unsubscribe-post']);
      expect(verify(Buffer.from(raw.toString('latin1').replace(/^Subject: /m, 'Subject: x'), 'latin1'))).to.match(/^invalid/);
      expect(verify(Buffer.concat([raw, Buffer.from('x\r\n')]))).to.match(/^invalid/);
    });
  }
});
