import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { must, run } from './run.ts';

export const TREE = new URL('../../../', import.meta.url).pathname;
/** Any moment that is not now: files that kept their own date would show. */
export const EPOCH = '1767225600';

/** A copy of the tree as a clone would have it, without packages. */
export async function checkOut(dir: string): Promise<string> {
  await mkdir(dir);
  const files =
    'git ls-files -co --exclude-standard -z 2>/dev/null | grep -z . || find . -type f ! -path "./node_modules/*" ! -path "./.git/*" ! -path "./data/*" ! -path "./dist/*" -print0';
  await must('sh', ['-c', `cd "$1" && { ${files}; } | tar --null -T - -cf - | tar -C "$2" -xf -`, 'sh', TREE, dir]);
  return dir;
}

/**
 * The packages that `npm ci` brought, with what only development needs. A build reads them alone, so that the files may
 * be the same ones where the disk is. What tests have in its cache is left out.
 */
export async function bringPackages(dir: string): Promise<void> {
  const from = (await must('readlink', ['-f', join(TREE, 'node_modules')])).trim();
  const to = join(dir, 'node_modules');
  const copy = 'mkdir "$2" && find "$1" -mindepth 1 -maxdepth 1 ! -name .cache -exec cp -a "$3" -t "$2" {} +';
  if ((await run('sh', ['-c', copy, 'sh', from, to, '--link'])).code === 0) return;
  await must('rm', ['-rf', to]);
  await must('sh', ['-c', copy, 'sh', from, to, '--reflink=auto']);
}

/** 200 MB of packages are copied once for all builds. */
export const movePackages = (from: string, to: string): Promise<void> =>
  rename(join(from, 'node_modules'), join(to, 'node_modules'));

/** Builds; answers where the package is. */
export async function build(dir: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  return (
    await must(join(dir, 'scripts/deb.sh'), ['--out', join(dir, 'dist')], {
      cwd: '/',
      env: { ...process.env, SOURCE_DATE_EPOCH: EPOCH, ...env },
    })
  ).trim();
}
