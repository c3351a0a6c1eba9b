import { registerHooks } from 'node:module';

const SRC = new URL('../../../src/', import.meta.url).href;
let copies = 0;

/**
 * The module at `entry` over a copy of src/ of its own, in which one module is replaced by another (which may import
 * the real one). For controls that need the daemon in this process; beside it the real one stays as it is. What it
 * answers has the type of the entry.
 */
export async function importCopy(
  entry: URL,
  { replace, by }: { readonly replace: URL; readonly by: URL },
): Promise<unknown> {
  const mark = `?copy=${++copies}`;
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      const inCopy = context.parentURL?.endsWith(mark) === true;
      if (!inCopy || !found.url.startsWith(SRC)) return found;
      return { ...found, url: found.url === replace.href ? by.href : `${found.url}${mark}` };
    },
  });
  try {
    const made: unknown = await import(`${entry.href}${mark}`);
    return made;
  } finally {
    hooks.deregister();
  }
}
