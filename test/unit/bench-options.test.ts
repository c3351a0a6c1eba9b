import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect } from 'chai';

const RUN = join(import.meta.dirname, '../../bench/run.ts');
const bench = (...args: string[]) => spawnSync(process.execPath, [RUN, ...args], { encoding: 'utf8' });

describe('the command of the benchmark', () => {
  it('prints its options on --help', () => {
    const { status, stdout, stderr } = bench('--help');
    expect({ status, stderr }).to.deep.equal({ status: 0, stderr: '' });
    expect(stdout)
      .to.match(/^ {2}--quick /m)
      .and.match(/^ {2}--against FOLDER /m);
  });

  for (const [args, why] of [
    [['--quik'], "Unknown option '--quik'"],
    [['quick'], "Unexpected argument 'quick'"],
    [['--rounds', 'two'], '--rounds needs a number above 0'],
    [['--only', 'sendmail'], 'no contestant is named sendmail'],
    [['--cell', 'no such thing'], 'no such cell'],
  ] as const)
    it(`refuses ${args.join(' ')} in one line`, () => {
      const { status, stdout, stderr } = bench(...args);
      expect({ status, stdout }).to.deep.equal({ status: 2, stdout: '' });
      expect(stderr)
        .to.contain(why)
        .and.match(/^[^\n]+\n$/);
    });
});
