import { expect } from 'chai';
import { FORMAT_NAMES, type FormatName, MANDRILL } from '../../../src/inbound/formats.ts';
import { BOMBS } from '../../support/attacks/bombs.ts';
import { startVictim, type Victim } from '../../support/attacks/victim.ts';
import { sendMail } from '../../support/mail.ts';
import { bytesOf, renderJob, spooled, VERDICTS } from '../../support/mime.ts';
import { HOSTILE } from '../../support/mime-hostile.ts';
import { type OpenRenderer, openRenderer } from '../../support/renderer.ts';
import { until } from '../../support/until.ts';

// The other formats than Mandrill's, under the messages that are made to stop us. Those messages over SMTP, in Mandrill's
// form: test/attacks/bombs.test.ts.

const FORMATS = FORMAT_NAMES.filter((name) => name !== 'mandrill');
/** What is larger costs the same in every format: it is given up by the same parser. */
const LARGEST = 400_000;
const ALL = Object.entries({ ...HOSTILE, ...BOMBS });

/** Reads a post as a receiver does: undici's parser of forms, the JSON of the language. Throws what they throw. */
async function read(bytes: Buffer, type: string): Promise<void> {
  if (type === 'application/json') JSON.parse(bytes.toString());
  else if (type.startsWith('multipart/'))
    await new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
  else expect(type).to.equal('message/rfc822');
}

describe('hostile messages in every format', function () {
  this.timeout(300_000);
  let renderer: OpenRenderer;
  before(async () => {
    ({ renderer } = await openRenderer());
  });
  after(() => renderer.stop());

  for (const format of FORMATS)
    it(`give ${format} posts that its receivers can read`, async () => {
      const faults: string[] = [];
      let tried = 0;
      for (const [name, make] of ALL) {
        const raw = make();
        if (raw.length > LARGEST) continue;
        tried++;
        const message = spooled({ verdicts: VERDICTS });
        const { body, headers } = await renderer.render(renderJob(raw, { message, style: { ...MANDRILL, format } }));
        const bytes = await bytesOf(body);
        await renderer.discard(body);
        await read(bytes, headers['Content-Type'] ?? '').catch((error: unknown) => faults.push(`${name}: ${error}`));
        if (format === 'raw' && !bytes.subarray(bytes.length - raw.length).equals(raw))
          faults.push(`${name}: other bytes`);
      }
      expect(faults).to.deep.equal([]);
      expect(tried).to.be.above(40);
    });
});

/** A busy machine collects its garbage later. */
const MOST_MB = process.env['CI'] === 'true' ? 450 : 400;
const MEGABYTE = 1024 * 1024;
/** With all of them it takes minutes. */
const MEASURED: readonly FormatName[] = process.env['CI'] === 'true' ? ['postmark', 'sendgrid'] : FORMAT_NAMES;

describe('ten messages of 10 MB at once', function () {
  this.timeout(300_000);
  let victim: Victim;
  beforeEach(async () => {
    victim = await startVictim();
  });
  afterEach(() => victim.stop());

  for (const format of MEASURED)
    it(`take less than ${MOST_MB} MB as ${format}`, async () => {
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
      expect(await victim.peak()).to.be.below(MOST_MB);
    });
});
