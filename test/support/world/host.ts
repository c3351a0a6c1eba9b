import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { boot, inRootWith, type Machine } from '../package/machine.ts';
import { makeOperatorRoot, npmOptions, TREE } from '../package/operator.ts';
import { must, type Ran } from '../package/run.ts';
import { v4, v6 } from './network.ts';
import type { World } from './world.ts';

// The host under test: a clean Debian with systemd on the wire of the world, and what an operator types there.

/** What `postern doctor --json` says of one thing. */
export interface Finding {
  readonly check: string;
  readonly verdict: 'ok' | 'warning' | 'fault' | 'skipped';
  readonly seen: string;
  readonly advice?: string;
}

export interface Host {
  /** Runs a script as root, and answers what it printed; throws unless it ends with 0. */
  sh(script: string): Promise<string>;
  run(script: string): Promise<Ran>;
  read(path: string): Promise<string>;
  write(path: string, text: string, mode?: number): Promise<void>;
  /** Copies a file of the test's own machine. */
  bring(from: string, path: string): Promise<void>;
  /** Changes one file by its text. */
  edit(path: string, change: (text: string) => string): Promise<void>;
  doctor(): Promise<{ readonly code: number; readonly found: readonly Finding[] }>;
  stop(): Promise<void>;
}

/** What the operator has installed before, from Debian: the network of the world leads to no mirror. Its npm is 9.2. */
const PACKAGES = ['nginx-light', 'certbot', 'sudo', 'curl', 'openssl', 'procps', 'adduser', 'npm'];

/**
 * Makes a clean Debian with a checkout, and builds the package in it by the command of the documents, with Debian's own npm.
 * WORLD_ROOT names a root that was prepared before, for whoever runs this often.
 */
export async function prepareHost(dir: string, buildCommand: string): Promise<string> {
  const root = join(dir, 'root');
  if (process.env['WORLD_ROOT'] !== undefined) {
    await must('cp', ['-a', process.env['WORLD_ROOT'], root]);
    return root;
  }
  await makeOperatorRoot(root, PACKAGES);
  const options = [...(await npmOptions(root)), '--setenv=DEB_ZSTD_LEVEL=1'];
  const built = await inRootWith(root, options, 'sh', '-ec', `cd ${TREE} && ${buildCommand}`);
  if (built.code !== 0) throw new Error(`${buildCommand}\n${built.out}\n${built.err}`);
  return root;
}

/** Boots it in the world; undefined when that does not work here. */
export async function bootHost(root: string, { network, trusted }: World): Promise<Host | undefined> {
  const resolvers = `nameserver ${v4('resolver')}\nnameserver ${v6('resolver')}\n`;
  await writeFile(join(root, 'etc/resolv.conf'), resolvers);
  // As an installer of Debian leaves it.
  await writeFile(join(root, 'etc/hosts'), '127.0.0.1 localhost\n127.0.1.1 mx.operator.net mx\n::1 localhost\n');
  await writeFile(join(root, 'etc/hostname'), 'mx\n');
  for (const [index, pem] of trusted.entries())
    await writeFile(join(root, `usr/local/share/ca-certificates/world-${index}.crt`), pem);
  const machine = await boot(root, network.hostSpace);
  if (machine === undefined) return undefined;
  const host = hostOn(machine, root);
  await host.sh('update-ca-certificates 2>&1');
  return host;
}

function hostOn(machine: Machine, root: string): Host {
  const at = (path: string) => join(root, path);
  const host: Host = {
    async sh(script) {
      const { code, out, err } = await machine.run('sh', '-ec', script);
      if (code === 0) return out;
      // systemctl says only that a service failed; why, its journal says.
      const { out: journal } = await machine.run('journalctl', '--no-pager', '-n', '60', '-o', 'short-precise');
      throw new Error(`${script}: ${code}\n${out}\n${err}\n${journal}`);
    },
    run: (script) => machine.run('sh', '-ec', script),
    read: (path) => readFile(at(path), 'utf8'),
    async write(path, text, mode = 0o644) {
      await writeFile(at(path), text, { mode });
    },
    bring: (from, path) => cp(from, at(path)),
    async edit(path, change) {
      const text = await readFile(at(path), 'utf8');
      const changed = change(text);
      if (changed === text) throw new Error(`${path} has nothing to change`);
      await writeFile(at(path), changed);
    },
    async doctor() {
      const { code, out, err } = await machine.run('postern', 'doctor', '--json');
      try {
        return { code, found: JSON.parse(out) as readonly Finding[] };
      } catch {
        throw new Error(`doctor: ${code}\n${out}\n${err}`);
      }
    },
    stop: () => machine.stop(),
  };
  return host;
}
