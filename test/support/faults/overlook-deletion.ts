import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { isMainThread, workerData } from 'node:worker_threads';

// Control: the journal does not notice that its file is gone.
const file: unknown = isMainThread ? undefined : workerData?.file;
if (typeof file === 'string' && file.endsWith('journal.db')) {
  const { statSync } = fs;
  const overlook = (path: fs.PathLike, ...rest: never[]) =>
    path === file ? { ino: 1, isDirectory: () => false, isFile: () => false } : statSync(path, ...rest);
  Object.assign(fs, { statSync: overlook });
  syncBuiltinESMExports();
}
