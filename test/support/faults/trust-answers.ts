/** Loaded before the daemon: it reads whatever endpoints answer, to the end. */
import { replaceModule } from './replace-module.ts';

replaceModule(
  new URL('../../../src/webhooks/post/wire.ts', import.meta.url),
  new URL('./long-answer.ts', import.meta.url),
);
