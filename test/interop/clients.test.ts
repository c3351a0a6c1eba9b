import { execFile } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { tempDir } from '../support/temp.ts';

// Clients in other languages, as their makers publish them. test/unit/api/old-clients.test.ts has bodies of those that are not to be had here.

const run = promisify(execFile);
const SOURCES = join(import.meta.dirname, '../support/interop/clients');
const FETCHING_MS = 240_000;

interface Language {
  readonly name: string;
  /** Fetches what the clients need and answers the command that runs them; throws where they are not to be had. */
  ready(dir: string): Promise<readonly [program: string, ...args: string[]]>;
  /** Subjects that have arrived then. */
  readonly subjects: readonly string[];
}

const LANGUAGES: readonly Language[] = [
  {
    name: 'PHP: Monolog and Symfony (php-cli, php-curl, php-monolog, php-symfony-mailchimp-mailer, php-symfony-http-client)',
    async ready() {
      await run('php', [
        '-r',
        "foreach (['Monolog', 'Symfony/Component/HttpClient', 'Symfony/Component/Mailer/Bridge/Mailchimp'] as $each) require_once \"/usr/share/php/$each/autoload.php\"; curl_init();",
      ]);
      return ['php', join(SOURCES, 'clients.php')];
    },
    subjects: ['monolog', 'symfony-api', 'symfony-http'],
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
    it(`work with what they send by default: ${name}`, async function () {
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
});
