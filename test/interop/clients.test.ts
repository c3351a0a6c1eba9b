import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { chromium, startBrowser } from '../support/chromium.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { tempDir } from '../support/temp.ts';

// Clients in other languages, as their makers publish them, or what they send with where they are not to be had from
// Debian, PyPI, Maven or npm. test/unit/api/old-clients.test.ts has bodies as those wrote them.

const run = promisify(execFile);
const SOURCES = join(import.meta.dirname, '../support/interop/clients');
const FETCHING_MS = 240_000;
const JQUERY = readFileSync(createRequire(import.meta.url).resolve('jquery'), 'utf8');

interface Language {
  readonly name: string;
  /** Fetches the packages of the clients and returns the command that runs them; throws where they are unavailable. */
  ready(dir: string): Promise<readonly [program: string, ...args: string[]]>;
  /** Subjects that have arrived then. */
  readonly subjects: readonly string[];
}

const SWIFT_MAILER = ['Egulias/EmailValidator/autoload', 'Swift/swift_required'];

/** Throws where PHP or one of these files of Debian's packages is missing. */
const php = (...files: readonly string[]) =>
  run('php', ['-r', files.map((file) => `require_once "/usr/share/php/${file}.php";`).join('') + 'curl_init();']);

const LANGUAGES: readonly Language[] = [
  {
    name: 'PHP: Monolog with Swift Mailer, Symfony (packages of Debian)',
    async ready() {
      const symfony = ['Component/HttpClient', 'Component/Mailer/Bridge/Mailchimp'];
      await php('Monolog/autoload', ...SWIFT_MAILER, ...symfony.map((part) => `Symfony/${part}/autoload`));
      return ['php', join(SOURCES, 'clients.php')];
    },
    subjects: ['monolog', 'symfony-api', 'symfony-http'],
  },
  {
    name: 'PHP: Guzzle and Swift Mailer, by which the official client and Laravel send',
    async ready() {
      await php('GuzzleHttp/autoload', ...SWIFT_MAILER);
      return ['php', join(SOURCES, 'guzzle.php')];
    },
    subjects: ['guzzle', 'guzzle template', 'swift'],
  },
  {
    name: 'Ruby: Excon, by which both official clients send',
    async ready() {
      await run('ruby', ['-e', 'require "excon"']);
      return ['ruby', join(SOURCES, 'excon.rb')];
    },
    subjects: ['excon', 'excon template'],
  },
  {
    name: 'Python: mandrill and mailchimp-transactional',
    async ready(dir) {
      await run('python3', ['-m', 'venv', dir]);
      const python = join(dir, 'bin', 'python');
      await run(python, ['-m', 'pip', 'install', '--quiet', 'mandrill==1.0.60', 'mailchimp-transactional==1.4.1']);
      return [python, join(SOURCES, 'clients.py')];
    },
    subjects: ['python-old', 'python-new'],
  },
  {
    name: 'Java: lutung',
    async ready(dir) {
      await run('mvn', [
        '-q',
        '-B',
        '-f',
        join(SOURCES, 'pom.xml'),
        'dependency:copy-dependencies',
        `-DoutputDirectory=${dir}`,
      ]);
      return ['java', '-cp', join(dir, '*'), join(SOURCES, 'Lutung.java')];
    },
    subjects: ['lutung a,b', 'lutung raw'],
  },
];

describe('clients of other languages', function () {
  this.timeout(FETCHING_MS + 60_000);
  let postern: TestDaemon;
  let hook: Server;
  before(async () => {
    hook = createServer((_, response) => response.end()).listen(0, '127.0.0.1');
    postern = await startDaemon({ POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32' });
  });
  after(async () => {
    await postern?.stop();
    hook?.close();
  });

  for (const { name, ready, subjects } of LANGUAGES) {
    it(`work with their default requests: ${name}`, async function () {
      const [program, ...args] = await ready(await tempDir()).catch((error: unknown) => {
        console.log(`      (skipped: ${String(error).split('\n', 1)[0]})`);
        return this.skip();
      });
      const { port } = hook.address() as AddressInfo;
      const { stdout } = await run(
        program,
        [...args, postern.base, postern.key, `http://127.0.0.1:${port}/${program.split('/').at(-1)}`],
        { timeout: 60_000 },
      );
      const ids: string[] = JSON.parse(stdout);
      const found: { _id: string; subject: string }[] = await postern.api('/messages/search', { limit: 1000 });
      expect(found.map(({ subject }) => subject)).to.include.members([...subjects]);
      expect(found.map(({ _id }) => _id)).to.include.members(ids);
    });
  }

  it('work with their default requests: jQuery on a page of another host, as a form and as JSON', async function () {
    const program = chromium();
    if (program === undefined) {
      console.log('      (skipped: no chromium on the PATH)');
      return this.skip();
    }
    const browser = await startBrowser(program);
    try {
      const { port } = hook.address() as AddressInfo;
      await browser.open(`http://127.0.0.1:${port}/`, 800, 600);
      await browser.evaluate(`${JQUERY};0`);
      const said = await browser.evaluate(
        `(${inBrowser})(${JSON.stringify(`${postern.base}/api/1.0`)}, ${JSON.stringify(postern.key)})`,
      );
      const { sent, found, refused } = said;
      expect(sent.map((answer: { status: string }[]) => answer.map(({ status }) => status))).to.deep.equal([
        ['queued', 'queued'],
        ['queued'],
        ['queued'],
      ]);
      expect(found).to.include.members(["jQuery's (*form*)", 'jQuery JSON', 'jQuery template']);
      expect(refused).to.deep.include({
        status: 404,
        body: {
          status: 'error',
          code: 5,
          name: 'Unknown_Template',
          message: 'No such template "none"',
        },
      });
      const info = await postern.api('/messages/info', { id: sent[0][0]._id });
      expect(info).to.deep.include({ tags: ['contact', 'web'], metadata: { site: 'www' } });
    } finally {
      await browser.close();
    }
  });
});

declare const jQuery: any;

/** Runs on the page: the calls that a contact form makes. */
async function inBrowser(base: string, key: string) {
  const message = (subject: string, fields: object) => ({
    from_email: 'ops@sender.test',
    subject,
    to: [{ email: 'jquery@to.test', name: null, type: 'to' }],
    ...fields,
  });
  const form = message("jQuery's (*form*)", {
    to: [{ email: 'jquery@to.test', name: 'Ann', type: 'to' }, { email: 'other@to.test' }],
    html: '<p>100% & more</p>',
    autotext: 'true',
    auto_text: true,
    track_opens: false,
    merge_language: null,
    tags: ['contact', 'web'],
    attachments: [],
    metadata: { site: 'www' },
  });
  await jQuery.post(`${base}/templates/add.json`, { key, name: 'jQuery', code: '<p>Hi</p>', publish: true });
  const sent = [
    await jQuery.ajax({ type: 'POST', url: `${base}/messages/send.json`, data: { key, message: form, async: false } }),
    await jQuery.ajax({
      type: 'POST',
      url: `${base}/messages/send.json`,
      contentType: 'application/json',
      data: JSON.stringify({ key, message: message('jQuery JSON', { text: 'Hi' }) }),
    }),
    await jQuery.post(`${base}/messages/send-template.json`, {
      key,
      template_name: 'jquery',
      template_content: [],
      message: message('jQuery template', {}),
    }),
  ];
  const found = await jQuery.post(`${base}/messages/search.json`, { key, query: '', tags: [], limit: 100 });
  const refused = await jQuery.post(`${base}/templates/info.json`, { key, name: 'none' }).then(
    () => 'no error came',
    ({ status, responseJSON: body }: { status: number; responseJSON: object }) => ({ status, body }),
  );
  return { sent, found: found.map(({ subject }: { subject: string }) => subject), refused };
}
