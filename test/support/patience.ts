import type { Context } from 'mocha';

/** Milliseconds that any test may take where the machine has other things to do as well: bounds are there for what hangs. */
const AT_LEAST = 300_000;

/** How long after its last test a run may take to end by itself. */
const TO_END = 60_000;

/** Loaded by `.ci/run`, which runs parts of the suite beside each other, perhaps on slow processors. */
export const mochaHooks = {
  beforeEach(this: Context) {
    const test = this.currentTest;
    if (test && test.timeout() > 0) test.timeout(Math.max(test.timeout(), AT_LEAST));
  },
  afterAll() {
    // A test that fails may leave things open; the step must not wait for its limit then. Nothing left: this is never called.
    setTimeout(() => {
      console.log(`the run does not end: ${process.getActiveResourcesInfo().join(', ')}`);
      process.once('exit', () => {
        process.exitCode = 1;
      }); // last of all: mocha sets it in a listener of its own
      process.exit();
    }, TO_END).unref();
  },
};
