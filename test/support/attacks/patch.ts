import { existsSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { readPatches } from './patches.ts';

/**
 * Loaded into a daemon by `node --import`: changes lines of its source while they are loaded, on every thread, so that
 * a control can switch one protection off. What a patch looks for must be there, or the daemon does not start.
 */
const patches = readPatches(process.env);
for (const { file } of patches)
  if (!existsSync(new URL(`../../../src/${file}`, import.meta.url))) throw new Error(`src/${file} is not there`);

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    const ours = patches.filter(({ file }) => url.endsWith(`/src/${file}`));
    if (ours.length === 0 || loaded.source === undefined || loaded.source === null) return loaded;
    let text = typeof loaded.source === 'string' ? loaded.source : new TextDecoder().decode(loaded.source);
    for (const { file, from, to } of ours) {
      if (!text.includes(from)) throw new Error(`src/${file} has no ${JSON.stringify(from)}`);
      text = text.replaceAll(from, () => to);
    }
    return { ...loaded, source: text };
  },
});
