import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { z } from 'zod';

const outcome = z.object({
  tried: z.array(z.string()),
  asked: z.array(z.string()),
  verdicts: z.array(
    z.object({
      spf: z.object({ result: z.string() }),
      dkim: z.object({ valid: z.boolean() }),
      dmarc: z.object({ result: z.string() }),
    }),
  ),
});

describe('authentication', () => {
  it('sends no query past our resolver, and none for BIMI, MTA-STS or a suffix list', async () => {
    const script = fileURLToPath(new URL('../../support/dns-isolation.ts', import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, [script]);
    const { tried, asked, verdicts } = outcome.parse(JSON.parse(stdout));
    expect(tried).to.deep.equal([]);
    expect(verdicts.map((verdict) => verdict.spf.result)).to.include.members(['pass', 'fail']);
    expect(verdicts.some((verdict) => verdict.dkim.valid)).to.equal(true);
    expect(verdicts.map((verdict) => verdict.dmarc.result)).to.include.members(['pass', 'fail']);
    expect(asked.filter((question) => /_bimi|_mta-sts/.test(question))).to.deep.equal([]);
  });
});
