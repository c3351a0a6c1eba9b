import { extname } from 'node:path';

/**
 * The URL of a module that a thread or a process of its own runs. It has the extension of the calling module: `.ts` in
 * the sources, `.js` in the npm package, which is compiled because Node runs no TypeScript below node_modules. `from`
 * is the caller's `import.meta.url`.
 */
export const moduleUrl = (path: `${'.' | '..'}/${string}.ts`, from: string): URL =>
  new URL(path.replace(/\.ts$/, extname(from)), from);
