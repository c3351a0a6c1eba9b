/** Loaded before the daemon: takes away that a 250 waits for the queue. */
import { replaceModule } from './replace-module.ts';

replaceModule(
  new URL('../../../src/inbound/accept.ts', import.meta.url),
  new URL('./early-acceptance.ts', import.meta.url),
);
