import { expect } from 'chai';
import yazl from 'yazl';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import {
  isThere,
  type RealScanner,
  startClamavMilter,
  startRealClamd,
  startRealRspamd,
  startRealSpamd,
} from '../support/interop/real-scanners.ts';
import { sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { EICAR, GTUBE } from '../support/scanners.ts';
import { until } from '../support/until.ts';

// Debian's scanners, as they are installed, each with mail that it must find and mail that it must not.

const HEAD = [
  'From: Ada <ada@example.org>',
  'To: <box@in.test>',
  'Date: Mon, 05 Jan 2026 12:00:00 +0000',
  'MIME-Version: 1.0',
];

const mail = (subject: string, ...rest: readonly string[]): string =>
  [...HEAD, `Subject: ${subject}`, `Message-ID: <${subject}@example.org>`, ...rest, ''].join('\r\n');
const text = (subject: string, content: string): string => mail(subject, 'Content-Type: text/plain', '', content);

function attached(subject: string, name: string, content: Buffer): string {
  const lines = content.toString('base64').match(/.{1,76}/g) ?? [];
  return mail(
    subject,
    'Content-Type: multipart/mixed; boundary="b"',
    '',
    '--b',
    'Content-Type: text/plain',
    '',
    'See the file.',
    '--b',
    `Content-Type: application/octet-stream; name="${name}"`,
    `Content-Disposition: attachment; filename="${name}"`,
    'Content-Transfer-Encoding: base64',
    '',
    ...lines,
    '--b--',
  );
}

async function zipped(content: string): Promise<Buffer> {
  const zip = new yazl.ZipFile();
  zip.addBuffer(Buffer.from(content), 'test.com');
  zip.end();
  const chunks: Buffer[] = [];
  for await (const chunk of zip.outputStream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

/** Mail, with what must be found in it. */
const MAIL: Readonly<Record<string, { readonly message: string; readonly spam: boolean; readonly virus: boolean }>> = {
  ham: { message: text('ham', 'Hello Bob, the meeting is at ten.'), spam: false, virus: false },
  gtube: { message: text('gtube', GTUBE), spam: true, virus: false },
  eicar: { message: attached('eicar', 'test.com', Buffer.from(EICAR)), spam: false, virus: true },
  zip: { message: attached('zip', 'test.zip', await zipped(EICAR)), spam: false, virus: true },
};

// What rspamd answers "add header" and "rewrite subject" to, where GTUBE is answered with "reject".
const MILDER = { 'add-header': `Y${GTUBE.slice(1)}`, 'rewrite-subject': `Z${GTUBE.slice(1)}` };

/** What a sender writes, so that his message looks as if it had been scanned already. */
const FORGED = [
  'X-Virus-Scanned: clamav-milter 1.4.6 at mx.in.test',
  'X-Virus-Status: Clean',
  'x-virus-status: Clean',
  'X-Spam: No',
  'X-Spam-Flag: NO',
  'X-Spam-Status: No, score=-99.0 required=5.0 tests=NONE',
  'X-Spam-Score: -99',
  'X-Spam-Checker-Version: SpamAssassin 4.0.1 on mx.in.test',
  'X-Rspamd-Action: no action',
  'X-Rspamd-Server: mx.in.test',
  'X-Spamd-Result: default: False [-99.00 / 15.00]',
];
const forge = (message: string): string => `${FORGED.join('\r\n')}\r\n${message}`;

interface World {
  readonly running: TestDaemon;
  readonly hook: Receiver;
}

async function start(env: Readonly<Record<string, string>>): Promise<World> {
  const hook = await startReceiver();
  const running = await startDaemon(env);
  await running.api('/inbound/add-domain', { domain: 'in.test' });
  await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  return { running, hook };
}

const scansOf = ({ hook }: World): ReadonlyMap<string, any> =>
  new Map(
    postsOf(hook.requests)
      .flatMap(eventsOf)
      .map(({ msg }) => [msg.subject, msg.scan]),
  );

/** Each scanner, its requirements, and its setting in Postern. */
const SCANNERS = {
  clamd: {
    programs: ['clamd'],
    finds: 'virus',
    async start() {
      const scanner = await startRealClamd();
      return { env: { POSTERN_SCAN__CLAMD: scanner.address }, scanner, others: [] };
    },
  },
  'clamav-milter': {
    programs: ['clamd', 'clamav-milter'],
    finds: 'virus',
    async start() {
      const clamd = await startRealClamd();
      const scanner = await startClamavMilter(clamd);
      return { env: { POSTERN_SCAN__MILTERS: `virus=${scanner.address}` }, scanner, others: [clamd] };
    },
  },
  'clamav-milter that accepts everything': {
    programs: ['clamd', 'clamav-milter'],
    finds: 'virus',
    async start() {
      const clamd = await startRealClamd();
      const scanner = await startClamavMilter(clamd, 'Accept');
      return { env: { POSTERN_SCAN__MILTERS: `virus=${scanner.address}` }, scanner, others: [clamd] };
    },
  },
  rspamd: {
    programs: ['rspamd'],
    finds: 'spam',
    async start() {
      const scanner = await startRealRspamd();
      return { env: { POSTERN_SCAN__RSPAMD: `http://${scanner.address}` }, scanner, others: [] };
    },
  },
  "rspamd's milter": {
    programs: ['rspamd'],
    finds: 'spam',
    async start() {
      const scanner = await startRealRspamd();
      return { env: { POSTERN_SCAN__MILTERS: `spam=${scanner.milter}` }, scanner, others: [] };
    },
  },
  spamd: {
    programs: ['spamd'],
    finds: 'spam',
    async start() {
      const scanner = await startRealSpamd();
      return { env: { POSTERN_SCAN__SPAMD: scanner.address }, scanner, others: [] };
    },
  },
} as const;

const MESSAGES = 60;
const CLIENTS = 4;

for (const [name, { programs, finds, start: startScanner }] of Object.entries(SCANNERS)) {
  describe(`mail scanned by ${name} of Debian`, function () {
    this.timeout(180_000);
    let world: World;
    let scanner: RealScanner;
    let others: readonly RealScanner[] = [];
    const stopping: (() => Promise<void>)[] = [];
    before(async function () {
      const missing = programs.find((program) => !isThere(program));
      if (missing !== undefined) {
        console.log(`left out: ${missing} is not installed`);
        return this.skip();
      }
      const started = await startScanner();
      ({ scanner, others } = started);
      for (const one of [scanner, ...others]) stopping.push(() => one.stop());
      world = await start({ ...started.env, POSTERN_SCAN__TIMEOUT_MS: '10000' });
      stopping.unshift(
        () => world.running.stop(),
        () => world.hook.stop(),
      );
    });
    after(async () => {
      for (const stop of stopping) await stop();
    });

    it('is detected: GTUBE, EICAR in base64 and in a zip, and clean mail', async () => {
      for (const { message } of Object.values(MAIL))
        expect(await sendMail(world.running.smtp, { from: 'ada@example.org', to: 'box@in.test' }, message)).to.match(
          /^250/,
        );
      await until('all posts', () => scansOf(world).size === Object.keys(MAIL).length, 60_000);
      for (const [subject, { spam, virus }] of Object.entries(MAIL)) {
        const scan = scansOf(world).get(subject);
        expect(scan, `${subject}: ${scanner.said()}`).to.include({
          spam: finds === 'virus' ? 'unknown' : spam ? 'spam' : 'ham',
          virus: finds === 'spam' ? 'unknown' : virus ? 'infected' : 'clean',
          reason: null,
        });
        if (finds === 'virus' && virus) expect(scan.name).to.match(/Eicar/);
      }
    });

    it('is detected despite forged fields, in any order', async () => {
      const mails = Object.entries(MAIL).flatMap(([name, { message, spam, virus }]) =>
        [forge(message), message.replace('\r\n\r\n', `\r\n${FORGED.toReversed().join('\r\n')}\r\n\r\n`)].map(
          (forged, i) => ({ subject: `forged-${name}-${i}`, forged, spam, virus }),
        ),
      );
      const rspamdOnly = name.startsWith('rspamd')
        ? Object.entries(MILDER).map(([action, content]) => ({
            subject: `forged-${action}`,
            forged: forge(text(action, content)),
            ...{ spam: true, virus: false },
          }))
        : [];
      const all = [...mails, ...rspamdOnly];
      for (const { subject, forged } of all) {
        const message = forged.replace(/^Subject: .*$/m, `Subject: ${subject}`);
        const reply = await sendMail(world.running.smtp, { from: 'ada@example.org', to: 'box@in.test' }, message);
        expect(reply).to.match(/^250/);
      }
      const forgedOnes = () => [...scansOf(world)].filter(([subject]) => subject.startsWith('forged-'));
      await until('all posts', () => forgedOnes().length === all.length, 60_000);
      for (const { subject, spam, virus } of all)
        expect(scansOf(world).get(subject), `${subject}: ${scanner.said()}`).to.include({
          spam: finds === 'virus' ? 'unknown' : spam ? 'spam' : 'ham',
          virus: finds === 'spam' ? 'unknown' : virus ? 'infected' : 'clean',
          reason: null,
        });
    });

    it(`waits when the scanner is killed under load: of ${MESSAGES} messages none is lost, and no bad one passes`, async () => {
      let sent = 0;
      let killed: Promise<void> | undefined;
      const client = async () => {
        while (sent < MESSAGES) {
          const n = sent++;
          if (n === Math.floor(MESSAGES / 3)) killed = scanner.kill();
          const bad = n % 3 === 0;
          const message = !bad
            ? text(`load-${n}`, 'Hello')
            : finds === 'spam'
              ? text(`load-${n}`, GTUBE)
              : attached(`load-${n}`, 'test.com', Buffer.from(EICAR));
          const reply = await sendMail(world.running.smtp, { from: 'ada@example.org', to: 'box@in.test' }, message);
          expect(reply).to.match(/^250/);
        }
      };
      await Promise.all(Array.from({ length: CLIENTS }, client));
      await killed;
      await until('it to be missed', () => world.running.log.of('scanner.down').length > 0, 60_000);
      await scanner.again();
      const loads = () => [...scansOf(world)].filter(([subject]) => subject.startsWith('load-'));
      await until('all posts', () => loads().length === MESSAGES, 120_000);
      for (const [subject, scan] of loads()) {
        const bad = Number(subject.slice('load-'.length)) % 3 === 0;
        expect(finds === 'spam' ? scan.spam : scan.virus, subject).to.equal(
          finds === 'spam' ? (bad ? 'spam' : 'ham') : bad ? 'infected' : 'clean',
        );
      }
    });
  });
}
