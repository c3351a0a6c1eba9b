import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { tempDir } from '../support/temp.ts';

const SCRIPT = join(import.meta.dirname, '../with-checks.sh');
// Two lines, a moment apart: those of two checks must not mix.
const NPM = '#!/bin/sh\necho "$3 begins" && sleep 0.05 && echo "$3 ends" >&2\n[ "$3" != "$BROKEN" ]\n';

/** Runs a command with checks that `npm` stands in for, of which one may fail. */
async function run(command: string, broken = '') {
  const dir = await tempDir();
  writeFileSync(join(dir, 'npm'), NPM, { mode: 0o755 });
  const env = { ...process.env, PATH: `${dir}:${process.env['PATH']}`, BROKEN: broken };
  const { status, stdout } = spawnSync(SCRIPT, ['sh', '-c', command], { env, encoding: 'utf8' });
  return { status, lines: stdout.trim().split('\n') };
}
const printed = (types: string, lint: string) => [
  ...['the tests', `== npm run typecheck: ${types}`, 'typecheck begins', 'typecheck ends'],
  ...[`== npm run lint: ${lint}`, 'lint begins', 'lint ends'],
];

describe('tests with checks beside them', () => {
  it('succeed if all succeed, and print each check as a whole', async () => {
    expect(await run('echo the tests')).to.deep.equal({ status: 0, lines: printed('ok', 'ok') });
  });

  it('fail if a check fails', async () => {
    expect(await run('echo the tests', 'typecheck')).to.deep.equal({ status: 1, lines: printed('failed', 'ok') });
    expect(await run('echo the tests', 'lint')).to.deep.equal({ status: 1, lines: printed('ok', 'failed') });
  });

  it('fail with the status of the tests if those fail', async () => {
    expect(await run('echo the tests; exit 7')).to.deep.equal({ status: 7, lines: printed('ok', 'ok') });
  });
});
