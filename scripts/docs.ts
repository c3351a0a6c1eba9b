import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { OPERATIONS } from '../src/api/operations/index.ts';
import { DEFAULTS_FILE } from '../src/config.ts';
import { cleanUpFile } from '../test/support/cleanup.ts';
import { startExample } from '../test/support/example-world.ts';
import { configurationDoc } from './configuration.ts';
import { metricsDoc } from './metrics.ts';

// Records the answers to the example calls of the declarations, and writes everything that is derived from them. A test
// fails when the files and the declarations differ.

const answers: Record<string, unknown> = {};
for (const operation of OPERATIONS) {
  const world = await startExample(operation);
  const { status, body } = await world.call(operation.path, operation.example);
  if (status !== 200) throw new Error(`the example of ${operation.path} answers ${status}: ${JSON.stringify(body)}`);
  answers[operation.path] = body;
  await world.stop();
}
await cleanUpFile();
const examples = new URL('../src/api/docs/examples.json', import.meta.url);
const recorded = JSON.stringify(answers, null, 1) + '\n';
if (recorded !== (await readFile(examples, 'utf8'))) {
  await writeFile(examples, recorded);
  // The reference has read the earlier answers.
  execFileSync(process.execPath, [import.meta.filename], { stdio: 'inherit' });
  process.exit();
}

const { toOpenApi } = await import('../src/api/docs/openapi.ts');
const { toMarkdown } = await import('../src/api/docs/reference.ts');
const docs = new URL('../docs/', import.meta.url);
await writeFile(new URL('api.md', docs), toMarkdown(OPERATIONS));
await writeFile(new URL('openapi.json', docs), JSON.stringify(toOpenApi(OPERATIONS, '/api/1.0'), null, 2) + '\n');
await writeFile(new URL('configuration.md', docs), configurationDoc(await readFile(DEFAULTS_FILE, 'utf8')));
await writeFile(new URL('metrics.md', docs), metricsDoc());
