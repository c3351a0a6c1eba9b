import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { MANDRILL } from '../../src/inbound/formats.ts';
import { makeKey, signMessage } from '../support/dns-keys.ts';
import { bytesOf, renderJob } from '../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../support/renderer.ts';

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';
const PROGRAM = fileURLToPath(new URL('../support/interop/verify_dkim.py', import.meta.url));
const KEY = makeKey('example.com', 's1', 2048);
const RECORDS = Object.fromEntries(Object.entries(KEY.records).map(([name, node]) => [name, String(node.TXT?.[0])]));

const verify = (message: Uint8Array): string => {
  const input = JSON.stringify({ message: Buffer.from(message).toString('base64'), records: RECORDS });
  return spawnSync(PYTHON, [PROGRAM], { input, encoding: 'utf8', timeout: 30_000 }).stdout.trim();
};

describe('the signature of a raw message, verified again by the consumer', () => {
  let renderer: OpenRenderer;
  before(async function () {
    if (spawnSync(PYTHON, ['-c', 'import dkim']).status !== 0) {
      console.log('left out: python3-dkim is not installed');
      return this.skip();
    }
    ({ renderer } = await openRenderer({ mxHosts: ['mx2.example.net'] }));
  });
  after(() => renderer?.stop());

  it('is valid although forged fields before and after it were removed', async () => {
    const forged = 'Return-Path: <ceo@victim.example>\r\nAuthentication-Results: mx2.example.net; dmarc=pass\r\n';
    const message = `${forged}From: ann@example.com\r\nTo: b@example.net\r\nSubject: x\r\n${forged}\r\nHello\r\n`;
    const signed = forged + signMessage(message, KEY);
    const { body } = await renderer.render(renderJob(Buffer.from(signed), { style: { ...MANDRILL, format: 'raw' } }));
    const bytes = await bytesOf(body);
    // Whole names: three letters may be in a signature by chance.
    expect(bytes.toString()).not.to.match(/victim\.example|mx2\.example/);
    expect(verify(bytes)).to.match(/^valid /);
    expect(verify(Buffer.from(bytes.toString().replace('Hello', 'Hullo')))).to.equal('invalid');
  });
});
