import { readFile, writeFile } from 'node:fs/promises';
import { toOpenApi } from '../src/api/docs/openapi.ts';
import { toMarkdown } from '../src/api/docs/reference.ts';
import { OPERATIONS } from '../src/api/operations/index.ts';
import { DEFAULTS_FILE } from '../src/config.ts';
import { configurationDoc } from './configuration.ts';
import { metricsDoc } from './metrics.ts';

// Writes what is derived from the declarations. A test fails when the files and the declarations differ.

const docs = new URL('../docs/', import.meta.url);
await writeFile(new URL('api.md', docs), toMarkdown(OPERATIONS));
await writeFile(new URL('openapi.json', docs), JSON.stringify(toOpenApi(OPERATIONS, '/api/1.0'), null, 2) + '\n');
await writeFile(new URL('configuration.md', docs), configurationDoc(await readFile(DEFAULTS_FILE, 'utf8')));
await writeFile(new URL('metrics.md', docs), metricsDoc());
