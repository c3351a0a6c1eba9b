/** Loaded before the daemon: takes away that the 250 for mail handed over waits for the queue. */
import { replaceModule } from './replace-module.ts';

replaceModule(
  new URL('../../../src/sending/submit.ts', import.meta.url),
  new URL('./early-submitting.ts', import.meta.url),
);
