import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { certificateRequest, renewalId } from '../../../src/certificates/csr.ts';
import { issueCertificate } from '../../support/issuer.ts';
import { tempDir } from '../../support/temp.ts';

describe('a certificate request', () => {
  it('is verified by OpenSSL, and for that name only', async () => {
    const longest = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(57)}.example`;
    for (const name of ['mx.example.com', 'xn--bcher-kva.example', longest.slice(-253)]) {
      const file = join(await tempDir(), 'request.der');
      writeFileSync(file, certificateRequest(name, generateKeyPairSync('ec', { namedCurve: 'P-256' })));
      const shown = execFileSync('openssl', ['req', '-in', file, '-inform', 'DER', '-noout', '-text', '-verify'], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      expect(shown).to.contain(`DNS:${name}\n`);
      expect(shown).to.match(/Subject: *\n/);
      expect(shown).to.contain('ASN1 OID: prime256v1');
      expect(shown).to.contain('Signature Algorithm: ecdsa-with-SHA256');
    }
  });
});

describe('the name of a certificate for renewal information', () => {
  it('is that of the example in RFC 9773 section 4.1', async () => {
    const { chain } = await issueCertificate({
      name: 'example.com',
      keyId: '69:88:5B:6B:87:46:40:41:E1:B3:7B:84:7B:A0:AE:2C:DE:01:C8:D4',
      serial: '0x87654321',
    });
    expect(renewalId(chain)).to.equal('aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE');
  });

  it('has a serial number without padding if its first bit is not set', async () => {
    const keyId = '01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:10:11:12:13:14';
    const { chain } = await issueCertificate({ name: 'example.com', keyId, serial: '0x1234' });
    expect(renewalId(chain)).to.equal('AQIDBAUGBwgJCgsMDQ4PEBESExQ.EjQ');
  });
});
