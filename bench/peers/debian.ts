import { spawnSync } from 'node:child_process';

const ENV = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };

/** Installs a Debian package; answers why it could not. */
export function installDebian(name: string): string | undefined {
  if (spawnSync('apt-get', ['--version']).status !== 0) return `${name} is not installed, and there is no apt-get`;
  if (process.getuid?.() !== 0) return `${name} is not installed (apt-get install ${name})`;
  console.log(`Installing ${name} (apt-get install) ...`);
  // Without a configuration the package asks nothing and its daemon does not start: we run an instance of our own.
  if (name === 'postfix')
    spawnSync('debconf-set-selections', {
      input: 'postfix postfix/main_mailer_type select No configuration\n',
      env: ENV,
    });
  // one mirror of several may fail; the lists that are there may do
  spawnSync('apt-get', ['update', '-qq'], { env: ENV });
  const { status, stderr } = spawnSync('apt-get', ['install', '-y', '-qq', '--no-install-recommends', name], {
    env: ENV,
    encoding: 'utf8',
  });
  return status === 0 ? undefined : `apt-get could not install ${name}: ${stderr.trim().split('\n').at(-1)}`;
}
