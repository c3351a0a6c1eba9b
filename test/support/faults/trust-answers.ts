/** Loaded before the daemon: it reads whatever endpoints answer, to the end. */
import { registerHooks } from 'node:module';

const WIRE = new URL('../../../src/webhooks/post/wire.ts', import.meta.url).href;
const LIMIT = 'const ANSWER_BYTES = 16 * 1024;';

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (url !== WIRE) return loaded;
    const source =
      typeof loaded.source === 'string' ? loaded.source : new TextDecoder().decode(loaded.source ?? undefined);
    if (!source.includes(LIMIT)) throw new Error('the limit of an answer is written in another way now');
    return { ...loaded, source: source.replace(LIMIT, 'const ANSWER_BYTES = Number.POSITIVE_INFINITY;') };
  },
});
