type Cleanup = () => Promise<void>;

const tests: Cleanup[] = [];
const files: Cleanup[] = [];

/** What is to be undone after each test that may have used a part of this folder. */
export function afterTest(cleanup: Cleanup): void {
  tests.push(cleanup);
}

/** What is to be undone when all tests of a file are done, the last that was registered first. */
export function afterFile(cleanup: Cleanup): void {
  files.unshift(cleanup);
}

/** The root hooks call both; code without mocha calls the second. */
export async function cleanUpTest(): Promise<void> {
  for (const cleanup of tests) await cleanup();
}

export async function cleanUpFile(): Promise<void> {
  for (const cleanup of files) await cleanup();
}
