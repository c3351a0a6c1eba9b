import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { must } from '../package/run.ts';
import { until } from '../until.ts';
import { type Network, v4 } from './network.ts';

/** Where the certificate authority of the world is, by name. */
export const ACME = 'acme.nic.example';

interface Authority {
  /** Certificates that a host must trust: the API's own, and the root of what it issues. */
  readonly trusted: readonly string[];
}

/** Pebble, the ACME server of Let's Encrypt for tests, which checks port 80 of the names that it certifies. */
export async function startAuthority(network: Network, dir: string): Promise<Authority> {
  await mkdir(dir);
  const own = await makeCertificate(dir, 'acme', [ACME]);
  const config = join(dir, 'pebble.json');
  await writeFile(
    config,
    JSON.stringify({
      pebble: {
        listenAddress: `${v4('acme')}:14000`,
        managementListenAddress: `${v4('acme')}:15000`,
        certificate: own.cert,
        privateKey: own.key,
        httpPort: 80,
        tlsPort: 443,
        ocspResponderURL: '',
        externalAccountBindingRequired: false,
      },
    }),
  );
  const pebble = [
    'env',
    'PEBBLE_VA_NOSLEEP=1',
    'PEBBLE_WFE_NONCEREJECT=0',
    'pebble',
    '-config',
    config,
    '-dnsserver',
    `${v4('resolver')}:53`,
  ];
  network.serve(join(dir, 'pebble.log'), ...pebble);
  const root = await until('pebble', async () => {
    const { code, out } = await network.run('curl', '-sk', `https://${v4('acme')}:15000/roots/0`);
    return code === 0 && out.includes('BEGIN CERTIFICATE') && out;
  });
  return { trusted: [await readFile(own.cert, 'utf8'), root] };
}

/** A certificate that signs itself. `days` may be negative: then it has expired. */
export async function makeCertificate(
  dir: string,
  name: string,
  names: readonly string[],
  days = 30,
): Promise<{ readonly cert: string; readonly key: string }> {
  const [cert, key] = [join(dir, `${name}.cert.pem`), join(dir, `${name}.key.pem`)];
  const request = join(dir, `${name}.csr`);
  const day = (offset: number) =>
    `${new Date(Date.now() + offset * 86_400_000).toISOString().slice(2, 19).replace(/[-:T]/g, '')}Z`;
  const alt = `subjectAltName=${names.map((each) => `DNS:${each}`).join(',')}`;
  await must('openssl', [
    ...['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-keyout', key, '-out', request, '-subj', `/CN=${names[0]}`],
  ]);
  // Only `openssl ca` takes dates (`x509` counts days from now), and it wants a folder of its own.
  const ca = join(dir, `${name}.ca`);
  await mkdir(ca);
  await writeFile(join(ca, 'index.txt'), '');
  await writeFile(
    join(ca, 'conf'),
    `[ca]\ndefault_ca=own\n[own]\ndatabase=${ca}/index.txt\nnew_certs_dir=${ca}\nrand_serial=yes\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n[ext]\n${alt}\n`,
  );
  await must('openssl', [
    ...['ca', '-batch', '-notext', '-selfsign', '-config', join(ca, 'conf'), '-extensions', 'ext'],
    ...[
      '-keyfile',
      key,
      '-in',
      request,
      '-out',
      cert,
      '-startdate',
      day(days < 0 ? days - 30 : -1),
      '-enddate',
      day(days),
    ],
  ]);
  return { cert, key };
}
