import { writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { isMainThread } from 'node:worker_threads';

// Loaded into a process by `node --import`: writes the URLs of the modules that its main thread loads into the file
// LOADED_MODULES, when it ends.

const urls: string[] = [];
if (isMainThread) {
  registerHooks({
    load(url, context, next) {
      urls.push(url);
      return next(url, context);
    },
  });
  process.on('exit', () => writeFileSync(process.env['LOADED_MODULES'] ?? '', urls.join('\n')));
}
