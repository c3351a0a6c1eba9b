import { registerHooks } from 'node:module';

/**
 * From now on whoever imports `target` gets `replacement`, which itself may import the real one. Only for modules that
 * run before the daemon.
 */
export function replaceModule(target: URL, replacement: URL): void {
  registerHooks({
    resolve(specifier, context, next) {
      const found = next(specifier, context);
      return found.url === target.href && context.parentURL !== replacement.href
        ? { ...found, url: replacement.href }
        : found;
    },
  });
}
