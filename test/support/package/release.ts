import { createHash } from 'node:crypto';
import { globSync, mkdtempSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bringPackages, build, checkOut, EPOCH, TREE } from './checkout.ts';
import { must, run } from './run.ts';

/** A checkout of the tree, and the files of a release that were built in it. */
export interface Release {
  readonly checkout: string;
  readonly files: string;
  /** The package for Debian on this machine. */
  readonly deb: string;
  /** The package for the other architecture. */
  readonly foreign: string;
  /** What the build said on standard error. */
  readonly said: string;
}

async function make(): Promise<Release> {
  const dir = mkdtempSync(join(tmpdir(), 'postern-release-'));
  // A run that is cut off leaves no half gigabyte behind.
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
  process.once('SIGTERM', () => process.exit(1));
  const checkout = await checkOut(join(dir, 'checkout'));
  await bringPackages(checkout);
  const files = join(checkout, 'dist');
  const said = join(dir, 'said');
  await must('sh', ['-c', '"$1" --out "$2" 2>"$3"', 'sh', join(checkout, 'scripts/release.sh'), files, said], {
    cwd: '/',
    env: { ...process.env, SOURCE_DATE_EPOCH: EPOCH },
  });
  const host = (await must('dpkg', ['--print-architecture'])).trim();
  const named = (arch: string) => join(files, globSync(`postern_*_${arch}.deb`, { cwd: files })[0] ?? 'none');
  return {
    checkout,
    files,
    deb: named(host),
    foreign: named(host === 'amd64' ? 'arm64' : 'amd64'),
    said: await readFile(said, 'utf8'),
  };
}

let made: Promise<Release> | undefined;
/** The release of this tree, built once for all tests of a run. */
export function release(): Promise<Release> {
  made ??= make();
  return made;
}

/**
 * The package of an earlier commit, as another version: of the first merge since the format of the queue, which no older
 * version reads, or the packages of npm changed. Undefined without such a merge, as in a clone without history.
 */
export async function earlier(dir: string, version: string): Promise<string | undefined> {
  const git = async (...words: string[]) => (await run('git', ['-C', TREE, ...words])).out.trim();
  const since = await git('log', '-1', '--format=%H', '--', ...DIVIDING);
  // Between two merges a commit may hold half of a change.
  const merges = await git('rev-list', '--merges', '--first-parent', '--ancestry-path', `${since}..HEAD^`);
  const commit = merges.split('\n').at(-1) ?? '';
  if (commit === '') return undefined;
  const unpack = 'mkdir "$2" && git -C "$1" archive "$3" | tar -C "$2" -xf -';
  await must('bash', ['-o', 'pipefail', '-c', unpack, 'bash', TREE, dir, commit]);
  for (const [name, from, to] of versionIn(version)) {
    const file = join(dir, name);
    await writeFile(file, (await readFile(file, 'utf8')).replace(from, to));
  }
  await bringPackages(dir);
  return build(dir);
}

/** Files that an earlier commit must have as they are. */
const DIVIDING = ['package-lock.json', 'src/queue/disk/schema.ts'];

/** Where a version stands in a tree, and as what. */
const versionIn = (version: string) =>
  [
    ['package.json', /"version": "[^"]+"/, `"version": "${version}"`],
    ['src/base/version.ts', /VERSION = '[^']+'/, `VERSION = '${version}'`],
  ] as const;

/** The package as another version, with other settings in the example that a host begins with. It is not built again. */
export async function repack(deb: string, dir: string, version: string): Promise<string> {
  const sums = join(dir, 'DEBIAN/md5sums');
  const change = async (name: string, from: RegExp, to: string) => {
    const text = await readFile(join(dir, name), 'utf8');
    if (!from.test(text)) throw new Error(`${name} has no ${String(from)}`);
    const changed = text.replace(from, to);
    await writeFile(join(dir, name), changed);
    const sum = createHash('md5').update(changed).digest('hex');
    await writeFile(sums, (await readFile(sums, 'utf8')).replace(new RegExp(`^\\w+(?=  ${name}$)`, 'm'), sum));
  };
  await must('dpkg-deb', ['-R', deb, dir]);
  for (const [name, from, to] of versionIn(version)) await change(`usr/lib/postern/${name}`, from, to);
  await change('etc/postern/postern.yaml', /^# Settings of/, '# The settings of');
  await change('DEBIAN/control', /^Version: .+$/m, `Version: ${version}`);
  const file = `${dir}.deb`;
  await must('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z1', '--build', dir, file]);
  return file;
}
