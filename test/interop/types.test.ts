import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { postsOf } from '../support/events.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// The types that Postmark and CloudMailin publish for receivers of their posts: what we post must fit them. The compiler
// reads each post as a value, so that a null or a missing key where the type has none is an error.

const packageOf = (name: string) => dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
const TYPES = {
  postmark: ['InboundWebhook', join(packageOf('postmark'), 'dist/client/models/webhooks/payload/InboundWebhook.d.ts')],
  cloudmailin: ['IncomingMail', join(packageOf('cloudmailin'), 'dist/models/IncomingMail.d.ts')],
} as const;
const TSC = join(packageOf('typescript'), 'bin/tsc');

const MESSAGES: Readonly<Record<string, SendMailOptions>> = {
  'with everything': {
    from: 'Zoë Müller <zoe@sender.test>',
    cc: 'Copy <copy@sender.test>, other@sender.test',
    replyTo: 'answers@sender.test',
    subject: 'Grüße',
    text: 'text',
    html: '<p>text <img src="cid:dot">',
    attachments: [
      { filename: 'a.bin', content: Buffer.from([0, 255, 10]) },
      { filename: 'dot.png', cid: 'dot', content: Buffer.from('iVBORw0KGgo=', 'base64') },
      { filename: false, content: 'no name' },
    ],
  },
  'with nothing': { raw: '\r\n' },
  'from nobody': { raw: 'From: undisclosed\r\nTo:\r\nSubject:\r\n\r\n\r\n' },
};

describe('the types published by services for receivers', function () {
  this.timeout(120_000);
  let zone: Zone;
  let postern: TestDaemon;
  let hook: Receiver;
  before(async () => {
    zone = await startZone({ 'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] } });
    hook = await startReceiver();
    postern = await startDaemon({ POSTERN_DNS__SERVERS: zone.server, POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32' });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(async () => {
    await postern?.stop();
    await Promise.all([zone?.stop(), hook?.stop()]);
  });

  for (const format of ['postmark', 'cloudmailin'] as const)
    it(`of ${format} match every post: files inline or as links, a full message and an empty one`, async () => {
      for (const attachments of ['inline', 'link', 'none'])
        await postern.api('/inbound/add-route', {
          ...{ domain: 'in.test', pattern: `${format}-${attachments}`, url: hook.url, format, attachments },
        });
      const bodies: string[] = [];
      const sent = async (work: () => Promise<unknown>) => {
        const known = postsOf(hook.requests).length;
        await work();
        bodies.push(String((await until('the post', () => postsOf(hook.requests)[known])).body));
      };
      for (const message of Object.values(MESSAGES))
        for (const attachments of ['inline', 'link', 'none'])
          await sent(async () => {
            const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
            const to = `${format}-${attachments}@in.test`;
            await transport.sendMail({ to, ...message, envelope: { from: '', to } });
            transport.close();
          });
      // Without a client, a HELO name and an envelope sender.
      const raw_message = 'From: a@sender.test\r\nSubject: by the API\r\n\r\nx\r\n';
      await sent(() => postern.api('/inbound/send-raw', { raw_message, to: [`${format}-inline@in.test`] }));
      expect(await faultsOf(format, bodies)).to.equal('');
      expect(await faultsOf(format, ['{"From":1,"headers":1}']), 'control').to.contain('error TS');
    });
});

/** What the compiler says of the posts; empty if they fit. */
async function faultsOf(format: keyof typeof TYPES, bodies: readonly string[]): Promise<string> {
  const [type, file] = TYPES[format];
  const values = bodies.map((body, n) => `const body${n} = ${body};\nexport const post${n}: ${type} = body${n};\n`);
  const path = join(await tempDir(), 'posts.ts');
  await writeFile(path, `import type { ${type} } from ${JSON.stringify(file)};\n${values.join('')}`);
  const options = [
    '--noEmit',
    '--pretty',
    'false',
    '--strict',
    '--skipLibCheck',
    '--ignoreConfig',
    '--types',
    '',
    '--allowImportingTsExtensions',
  ];
  const { stdout, status } = spawnSync(process.execPath, [TSC, ...options, path], { encoding: 'utf8' });
  return status === 0 ? '' : stdout;
}
