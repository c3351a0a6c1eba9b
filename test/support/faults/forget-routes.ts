/** Loaded before the daemon: routes are known only while the store is there. */
import { replaceModule } from './replace-module.ts';

replaceModule(
  new URL('../../../src/inbound/routing.ts', import.meta.url),
  new URL('./forgetful-routing.ts', import.meta.url),
);
