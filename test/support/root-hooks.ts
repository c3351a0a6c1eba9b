import { enableCompileCache } from 'node:module';
import { join } from 'node:path';
import type { Context } from 'mocha';
import './warm-threads.ts';
import { cleanUpFile, cleanUpTest } from './cleanup.ts';
import { mongoKind } from './mongo-server.ts';
import { PATIENCE, until } from './until.ts';

// Loaded before the tests of every run, in each of its processes (.mocharc.yml).

// Tests start Node many times over: what was compiled once is not compiled again.
process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, '../../node_modules/.cache/postern');
enableCompileCache(process.env['NODE_COMPILE_CACHE']);

/** What keeps a process from ending, by kind: sockets, timers, threads, children. */
function open(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

let before = new Map<string, number>();

/** What is open beyond what was open before the file. */
const leftOpen = () => [...open()].filter(([kind, count]) => count > (before.get(kind) ?? 0)).map(([kind]) => kind);

export const mochaHooks = {
  async beforeAll() {
    await Promise.resolve(); // from here on mocha's own timer for this hook is open, as it is in the last one
    before = open();
  },
  beforeEach(this: Context) {
    const test = this.currentTest;
    if (test && test.timeout() > 0) test.timeout(test.timeout() * PATIENCE);
  },
  afterEach: cleanUpTest,
  /** A test that leaves a socket, a timer or a thread behind is a fault. */
  async afterAll(this: Context) {
    this.timeout(60_000 * PATIENCE);
    await cleanUpFile();
    await until('what the tests opened to be closed', () => leftOpen().length === 0, 20_000).catch(() => {
      throw new Error(`the tests leave open: ${leftOpen().join(', ')}`);
    });
  },
};

/** Once a run: says which of the two stores is left out of what is tested over both. */
export function mochaGlobalSetup(): void {
  const only = process.env['TEST_STORE'];
  if (only) console.log(`of the stores, only this one is tested: ${only}`);
  else if (!mongoKind()) console.log('only the embedded store is tested; npm run test:mongo tests over MongoDB');
}
