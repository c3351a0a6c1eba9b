import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { freePort } from '../../test/support/free-port.ts';
import { sessionMb, sessionSeconds, startListener } from '../processes.ts';
import type { Peer } from './peer.ts';

const HERE = join(import.meta.dirname, 'haraka');
const PROGRAM = join(HERE, 'node_modules/Haraka/haraka.js');

/** Its packages are in a folder of their own, because some of ours are there in other versions. */
function missing(install: boolean): string | undefined {
  if (existsSync(PROGRAM)) return undefined;
  if (!install) return 'its packages are not installed';
  console.log('Installing Haraka (npm ci in bench/peers/haraka) ...');
  const { status, stderr } = spawnSync('npm', ['ci', '--omit=optional', '--no-audit', '--no-fund'], {
    cwd: HERE,
    encoding: 'utf8',
  });
  return status === 0 && existsSync(PROGRAM)
    ? undefined
    : `npm could not install it: ${/npm error (?!code)(.*)/.exec(stderr)?.[1] ?? 'is there an npm?'}`;
}

/**
 * Haraka as it makes itself a folder (`haraka -i`), with a worker for each processor and no plugin but one that posts.
 */
export const haraka: Peer = {
  name: 'haraka',
  does: {
    before250: 'posted, and answered with 200',
    durable: 'as far as the receiver does',
    verdicts: 'none',
    parsed: 'no',
    posted: 'the raw bytes, tried once',
  },
  missing: async (install) => missing(install),
  async start({ urls: [url = ''], dir, certificate }) {
    const port = await freePort();
    for (const folder of ['config', 'plugins']) mkdirSync(join(dir, folder));
    cpSync(join(HERE, 'post.cjs'), join(dir, 'plugins/post.js'));
    cpSync(join(dirname(PROGRAM), 'config/connection.ini'), join(dir, 'config/connection.ini'));
    const config = {
      plugins: `${certificate ? 'tls\n' : ''}rcpt_to.in_host_list\npost\n`,
      ...(certificate && { 'tls.ini': `key=${certificate.key}\ncert=${certificate.cert}\n` }),
      host_list: 'in.example\n',
      'smtp.ini': `listen=127.0.0.1:${port}\nnodes=cpus\n`,
      'log.ini': '[main]\nlevel=error\n',
      me: 'mx.haraka.test\n',
    };
    for (const [name, text] of Object.entries(config)) writeFileSync(join(dir, 'config', name), text);
    const { pid, stop } = await startListener(process.execPath, [PROGRAM], port, { HARAKA: dir, SINK: url });
    const now = () => sessionMb(pid);
    return { port, cpu: () => sessionSeconds(pid), memory: () => ({ peak: now(), now: now() }), stop };
  },
};
