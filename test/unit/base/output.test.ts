import { expect } from 'chai';
import { createLogOutput } from '../../../src/base/log.ts';

/** A line that is written at once. */
const line = (n: number) => `{"event":"daemon.note","level":"info","n":${n}}\n`;

/** A standard output with a script: accepts a number of bytes, or fails. */
function outputThat(...does: readonly (number | string)[]) {
  const next = [...does];
  const taken: string[] = [];
  const write = createLogOutput((bytes) => {
    const what = next.shift() ?? bytes.byteLength;
    if (typeof what === 'string') throw Object.assign(new Error(what), { code: what });
    taken.push(Buffer.from(bytes.subarray(0, what)).toString());
    return Math.min(what, bytes.byteLength);
  });
  return { write, taken: () => taken.join(''), left: () => next.length };
}

describe('the output of the log', () => {
  it('continues in pieces when the reader is slow', () => {
    const { write, taken } = outputThat(5, 7);
    write(line(1));
    expect(taken()).to.equal(line(1));
  });

  it('waits for a slow reader', () => {
    const { write, taken } = outputThat('EAGAIN', 'EAGAIN');
    write(line(1));
    expect(taken()).to.equal(line(1));
  });

  for (const code of ['EPIPE', 'ENOSPC', 'EIO']) {
    it(`drops a line after ${code} and never stops the process for it`, () => {
      const { write, taken } = outputThat(code);
      write(line(1));
      write(line(2));
      expect(taken()).to.equal(line(2));
    });
  }

  it('waits a second for a blocked reader, and then only until it reads again', () => {
    const still = Array.from({ length: 102 }, () => 'EAGAIN');
    const { write, taken, left } = outputThat(...still);
    write(line(1));
    expect(left()).to.equal(2);
    write(line(2));
    write(line(3));
    expect(left()).to.equal(0);
    write(line(4));
    expect(taken()).to.equal(line(4));
  });

  it('starts a new line after a truncated one', () => {
    const { write, taken } = outputThat(5, 'ENOSPC');
    write(line(1));
    write(line(2));
    expect(taken()).to.equal(`${line(1).slice(0, 5)}\n${line(2)}`);
  });
});
