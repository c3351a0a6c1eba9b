import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { RECEIVERS, type ReceiverSample } from '../../src/console/web/receivers.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { sendMail } from '../support/mail.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

// The receivers that the console shows to those who have none yet.

const NO_KEY = `whsec_${Buffer.alloc(32).toString('base64')}`;

const RAILS = `
require "action_controller/railtie"
require "rack/handler/webrick"
$stdout.sync = true
class Application < Rails::Application
  config.eager_load = false
  config.secret_key_base = "only for this test" * 4
  config.logger = Logger.new($stdout)
  config.hosts.clear
  config.filter_parameters = [:mandrill_events]
end
require_relative "mail_controller"
Application.initialize!
Application.routes.draw { match "/hooks/mail", to: "mail#create", via: :all }
Rack::Handler::WEBrick.run(Application, Host: "127.0.0.1", Port: ENV["PORT"].to_i, AccessLog: [])
`;
const DJANGO = `
import os
from wsgiref.simple_server import make_server
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DATA_UPLOAD_MAX_MEMORY_SIZE=50_000_000)
from django.core.wsgi import get_wsgi_application
from django.urls import path
from mail import mail
urlpatterns = [path("hooks/mail", mail)]
make_server("127.0.0.1", int(os.environ["PORT"]), get_wsgi_application()).serve_forever()
`;

/** The file of the sample, the one that runs it in an application, how to start it, and whether it can run here. */
const WAYS: Readonly<
  Record<
    ReceiverSample['id'],
    {
      readonly file: string;
      readonly around?: readonly [name: string, text: string];
      readonly start: (port: number) => readonly string[];
      readonly needs: readonly string[];
    }
  >
> = {
  node: { file: 'receiver.mjs', start: () => [process.execPath, 'receiver.mjs'], needs: [process.execPath, '-v'] },
  rails: {
    file: 'mail_controller.rb',
    around: ['application.rb', RAILS],
    start: () => ['/usr/bin/ruby', 'application.rb'],
    needs: ['/usr/bin/ruby', '-e', '%w[railties webrick].each { Gem::Specification.find_by_name(_1) }'],
  },
  django: {
    file: 'mail.py',
    around: ['application.py', DJANGO],
    start: () => ['/usr/bin/python3', '-u', 'application.py'],
    needs: ['/usr/bin/python3', '-c', 'import django'],
  },
  php: {
    file: 'receiver.php',
    start: (port) => ['php', '-S', `127.0.0.1:${port}`, 'receiver.php'],
    needs: ['php', '-v'],
  },
};

describe('receiver code shown in the console', function () {
  this.timeout(60_000);
  let postern: TestDaemon;
  before(async () => {
    postern = await startDaemon({ POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32' });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(() => postern?.stop());

  for (const { id, label, code } of RECEIVERS)
    describe(label, () => {
      const { file, around, start, needs } = WAYS[id];
      let [child, said]: [ChildProcess | undefined, string] = [undefined, ''];
      let port: number;
      let folder: string;

      async function run(secret: string): Promise<void> {
        await end();
        said = '';
        const [program = '', ...options] = start(port);
        const env = { PATH: process.env['PATH'], LANG: 'C.UTF-8', WEBHOOK_SECRET: secret, PORT: String(port) };
        child = spawn(program, options, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
        for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => void (said += text));
        await until(`${label} to listen`, () =>
          fetch(url(), { method: 'HEAD' }).then(
            ({ ok }) => ok,
            () => false,
          ),
        );
      }
      async function end(): Promise<void> {
        const ended = child;
        child = undefined;
        if (!ended || ended.exitCode !== null) return;
        await new Promise((resolve) => ended.once('close', resolve).kill('SIGKILL'));
      }
      const url = () => `http://127.0.0.1:${port}/hooks/mail`;

      before(async function () {
        if (spawnSync(needs[0] ?? '', needs.slice(1)).status !== 0) {
          console.log(`left out: ${label} is not installed`);
          return this.skip();
        }
        port = await freePort();
        folder = await tempDir();
        for (const [name, text] of [[file, code] as const, ...(around ? [around] : [])])
          writeFileSync(join(folder, name), text);
        await run(NO_KEY);
      });
      after(end);

      it('accepts posts of Postern, and rejects a signature by another key', async () => {
        const route = await postern.api('/inbound/add-route', { domain: 'in.test', pattern: id, url: url() });
        const message = `From: ann@sender.test\r\nSubject: For ${id}, t\u00fcchtig\r\n\r\nHello\r\n`;
        await sendMail(postern.smtp, { from: 'ann@sender.test', to: `${id}@in.test` }, message);
        const deliveries = (state: string) => postern.api('/inbound/deliveries', { state, route: route.id });
        const [refused] = await until('the 401', async () => {
          const waiting = await deliveries('waiting');
          return waiting[0]?.attempts.length > 0 ? waiting : undefined;
        });
        expect(refused.attempts.at(-1).status).to.equal(401);
        expect(said).to.not.contain(`For ${id}`);
        await run((await postern.api('/inbound/route-key', { id: route.id })).signing_secret);
        await postern.api('/endpoints/retry', { url: url() });
        await until('the delivery', async () => (await deliveries('delivered')).length === 1);
        await until('the subject', () => said.includes(`For ${id}`));
      });
    });
});
