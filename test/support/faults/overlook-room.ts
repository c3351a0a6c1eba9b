/** Loaded before the daemon: every disk looks empty, so that only a failed write tells that one is full. */

import files from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

const { statfs } = files;
files.statfs = (async (path: string) => {
  const seen = await statfs(path);
  return Object.assign(seen, { bavail: seen.blocks });
}) as typeof statfs;
syncBuiltinESMExports();
