import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** PEM files. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** What public authorities issue. */
const KINDS = {
  RSA: ['-newkey', 'rsa:2048'],
  ECDSA: ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
} as const;

/** A certificate that openssl makes and signs with its own key, in a folder that is there. */
export function makeCertificate(kind: keyof typeof KINDS, dir: string): Certificate {
  const [cert, key] = [join(dir, `${kind}.crt`), join(dir, `${kind}.key`)];
  const asked = ['req', '-x509', '-nodes', ...KINDS[kind], '-days', '30', '-subj', '/CN=in.example'];
  const { status, stderr } = spawnSync('openssl', [...asked, '-keyout', key, '-out', cert], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`openssl made no certificate: ${stderr ?? 'it is not installed'}`);
  return { cert, key };
}
