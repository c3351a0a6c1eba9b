import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { tempDir } from './temp.ts';

const run = promisify(execFile);

export interface IssueOptions {
  readonly name: string;
  /** The key id of the authority, as OpenSSL writes it. */
  readonly keyId?: string;
  readonly serial?: string;
  readonly days?: number;
}

/** A certificate that OpenSSL signs with an authority of its own, and its key; PEM. */
export async function issueCertificate({
  name,
  keyId = '69:88:5B:6B:87:46:40:41:E1:B3:7B:84:7B:A0:AE:2C:DE:01:C8:D4',
  serial,
  days = 90,
}: IssueOptions): Promise<{ readonly chain: string; readonly key: string }> {
  const dir = await tempDir();
  const at = (file: string) => join(dir, file);
  const openssl = (...argv: string[]) => run('openssl', argv);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const authority = `[req]\ndistinguished_name=dn\n[dn]\n[ext]\nsubjectKeyIdentifier=${keyId}\nbasicConstraints=CA:true\n`;
  await writeFile(at('ca.conf'), authority);
  await writeFile(at('leaf.conf'), `authorityKeyIdentifier=keyid\nsubjectAltName=DNS:${name}\n`);
  const [conf, ca, csr, leaf] = [at('ca.conf'), at('ca.pem'), at('leaf.csr'), at('leaf.pem')];
  const own = ['-config', conf, '-extensions', 'ext', '-subj', '/CN=CA'];
  await openssl('req', '-x509', ...key, '-keyout', at('ca.key'), '-out', ca, ...own);
  await openssl('req', '-new', ...key, '-keyout', at('leaf.key'), '-out', csr, '-subj', '/CN=x');
  const signer = ['-CA', ca, '-CAkey', at('ca.key'), ...(serial === undefined ? [] : ['-set_serial', serial])];
  const options = ['-extfile', at('leaf.conf'), '-days', String(days), '-out', leaf];
  await openssl('x509', '-req', '-in', csr, ...signer, ...options);
  return { chain: await readFile(leaf, 'utf8'), key: await readFile(at('leaf.key'), 'utf8') };
}
