import { lookup } from 'node:dns/promises';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkOut } from './checkout.ts';
import { inRoot, makeRoot } from './machine.ts';
import { must } from './run.ts';

// A clean Debian in which an operator builds or installs a checkout by Debian's own npm, which is 9.2.

/** The checkout in such a root. */
export const TREE = '/root/postern';

const INSTALL =
  'apt-get -q update && apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io install "$@"';

/** No clean Debian can be had here: there may be no mirror. */
export class NoDebian extends Error {}

/** Makes a clean Debian with packages of Debian, and a checkout in it. */
export async function makeOperatorRoot(root: string, packages: readonly string[]): Promise<void> {
  const brought = await makeRoot(root)
    .then(() => inRoot(root, 'sh', '-c', INSTALL, 'sh', ...packages))
    .catch((error: unknown) => {
      throw new NoDebian(String(error));
    });
  if (brought.code !== 0) throw new NoDebian(brought.err);
  await checkOut(join(root, TREE));
}

/**
 * Options of nspawn with which npm in the root uses the registry and the cache of this machine's npm; what it adds to
 * the cache is lost. No other host has a name there.
 */
export async function npmOptions(root: string): Promise<string[]> {
  const settingOf = async (name: string) => (await must('npm', ['config', 'get', name])).trim();
  const set: Record<string, string> = { cache: '/root/npm-cache', prefer_offline: 'true' };
  const hosts: string[] = ['127.0.0.1 localhost'];
  for (const name of ['registry', 'https-proxy', 'proxy']) {
    const url = await settingOf(name);
    if (!URL.canParse(url)) continue; // there is none
    const { hostname } = new URL(url);
    // Behind a proxy the registry may have no address here.
    for (const { address } of await lookup(hostname, { all: true }).catch(() => []))
      hosts.push(`${address} ${hostname}`);
    set[name.replace('-', '_')] = url;
  }
  await writeFile(join(root, 'etc/hosts'), `${hosts.join('\n')}\n`);
  await writeFile(join(root, 'etc/resolv.conf'), '');
  const file = await settingOf('cafile');
  const trusted = file === 'null' ? process.env['NODE_EXTRA_CA_CERTS'] : file;
  return [
    '--resolv-conf=off',
    `--overlay=${await settingOf('cache')}::${set['cache']}`,
    ...Object.entries(set).map(([name, value]) => `--setenv=npm_config_${name}=${value}`),
    ...(trusted ? [`--bind-ro=${trusted}:/root/trusted.pem`, '--setenv=NODE_EXTRA_CA_CERTS=/root/trusted.pem'] : []),
  ];
}
