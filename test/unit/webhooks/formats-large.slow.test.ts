import { expect } from 'chai';
import { FORMAT_NAMES, type FormatName } from '../../../src/inbound/formats.ts';
import { startVictim, type Victim } from '../../support/attacks/victim.ts';
import { sendMail } from '../../support/mail.ts';
import { SMALL } from '../../support/sizes.ts';
import { until } from '../../support/until.ts';

// Messages that are made to stop us, in every format: test/attacks/bombs.test.ts and fuzz.test.ts.

/** A busy machine collects its garbage later. */
const MAX_MB = process.env['CI'] === 'true' ? 450 : 400;
const MEGABYTE = 1024 * 1024;
/** With all of them it takes minutes. */
const MEASURED: readonly FormatName[] = SMALL ? ['postmark', 'sendgrid'] : FORMAT_NAMES;

describe('ten messages of 10 MB at once', function () {
  this.timeout(300_000);
  let victim: Victim;
  beforeEach(async () => {
    victim = await startVictim();
  });
  afterEach(() => victim.stop());

  for (const format of MEASURED)
    it(`take less than ${MAX_MB} MB as ${format}`, async () => {
      const domain = 'in.test';
      await victim.api('/inbound/add-route', { domain, pattern: `${format}-*`, url: victim.hook.url, format });
      await victim.forgetPeak();
      const known = victim.posts().length;
      const file = Buffer.alloc(7.3 * MEGABYTE, 'The quick brown fox jumps over the lazy dog. ').toString('base64');
      const lines = file.replace(/(.{76})/g, '$1\r\n');
      const head =
        'From: a@sender.test\r\nSubject: large\r\nMIME-Version: 1.0\r\nContent-Type: application/pdf; name=large.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n';
      const raw = Buffer.from(`${head}${lines}\r\n`);
      expect(raw.length).to.be.within(9.9 * MEGABYTE, 10.5 * MEGABYTE);
      const envelope = { from: 'a@sender.test' };
      await Promise.all(
        Array.from({ length: 10 }, (_, n) =>
          sendMail(victim.postern.smtp, { ...envelope, to: `${format}-${n}@${domain}` }, raw),
        ),
      );
      await until('all posts', () => victim.posts().length >= known + 10, 120_000);
      const sizes = victim.posts().slice(known);
      for (const { body } of sizes) expect(body.length).to.be.above(file.length * 0.7);
      expect(await victim.peak()).to.be.below(MAX_MB);
    });
});
