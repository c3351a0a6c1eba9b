import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { sendMail } from '../support/mail.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';
import { CERT, KEY } from '../support/webhook-tls.ts';

// The server blocks of docs/operations.md as they stand, but for ports and certificates, with the settings beside them.

const DOCS = readFileSync('docs/operations.md', 'utf8');
const BLOCKS = [...DOCS.matchAll(/^```nginx\n([^]*?)^```$/gm)].map(([, block = '']) => block);
const SETTINGS = parse(/^```yaml\n(public_url: [^]*?)^```$/m.exec(DOCS)?.[1] ?? '');
const MAIL = 'https://mail-view.example.net';
const NGINX = '/usr/sbin/nginx';

if (spawnSync(NGINX, ['-v']).error) console.log(`nginx is left out: ${NGINX} is missing (apt-get install nginx-light)`);
else
  describe('nginx, as docs/operations.md sets it up', function () {
    this.timeout(60_000);
    let running: TestDaemon;
    let nginx: ChildProcess;
    let port = 0;
    let cookie = '';
    before(async () => {
      running = await startDaemon({
        POSTERN_PUBLIC_URL: SETTINGS.public_url,
        POSTERN_HTTP__TRUSTED_PROXIES: SETTINGS.http.trusted_proxies.join(','),
        POSTERN_CONSOLE__ENABLED: String(SETTINGS.console.enabled),
        POSTERN_CONSOLE__MAIL_ORIGIN: MAIL,
      });
      const dir = await tempDir();
      port = await freePort();
      writeFileSync(join(dir, 'cert.pem'), CERT);
      writeFileSync(join(dir, 'key.pem'), KEY);
      const servers = BLOCKS.join('')
        .replaceAll('listen 443 ssl', `listen 127.0.0.1:${port} ssl`)
        .replaceAll(/\/etc\/letsencrypt\/\S+\/fullchain\.pem/g, join(dir, 'cert.pem'))
        .replaceAll(/\/etc\/letsencrypt\/\S+\/privkey\.pem/g, join(dir, 'key.pem'))
        .replaceAll('http://127.0.0.1:8080', running.base);
      const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((one) => `${one}_temp_path ${dir}/${one};`);
      const head = `daemon off; pid ${dir}/pid; error_log ${dir}/error.log;\nevents {}\n`;
      writeFileSync(join(dir, 'conf'), `${head}http { access_log off; ${temp.join(' ')}\n${servers}}`);
      nginx = spawn(NGINX, ['-c', join(dir, 'conf'), '-e', join(dir, 'error.log')], { stdio: 'ignore' });
      await until('nginx', () =>
        ask('GET', '/healthz').then(
          ({ statusCode }) => statusCode === 200,
          () => false,
        ),
      );
    });
    after(async () => {
      nginx?.kill();
      await running?.stop();
    });

    /** One request as a browser sends it, by a name of the proxy. */
    function ask(method: string, path: string, origin = SETTINGS.public_url, headers = {}): Promise<IncomingMessage> {
      const { hostname } = new URL(origin);
      const given = { Host: hostname, 'Sec-Fetch-Site': 'same-origin', Origin: origin, Cookie: cookie, ...headers };
      const how = {
        host: '127.0.0.1',
        port,
        method,
        path,
        servername: hostname,
        rejectUnauthorized: false,
        agent: false,
      };
      return new Promise((resolve, reject) =>
        request({ ...how, headers: given }, resolve)
          .on('error', reject)
          .end(),
      );
    }

    it('opens the console by the printed link, with the address of the browser', async () => {
      const link = new URL((await running.daemon.enterLink()) ?? '');
      expect(link.origin).to.equal(SETTINGS.public_url);
      const pressed = await ask('POST', link.pathname);
      expect([pressed.statusCode, pressed.headers.location]).to.deep.equal([303, '/console/']);
      [cookie = ''] = (pressed.headers['set-cookie']?.[0] ?? '').split(';');
      expect(cookie).to.match(/^__Host-postern=/);
      expect((await ask('GET', '/console/me')).statusCode).to.equal(200);
      expect(running.log.of('console.entered').at(-1)?.fields['address']).to.equal('127.0.0.1');
    });

    it('passes live events on at once', async () => {
      const live = await ask('GET', '/console/live?topics=mail,refused');
      expect([live.statusCode, live.headers['content-type']]).to.deep.equal([200, 'text/event-stream; charset=utf-8']);
      let seen = '';
      live.on('data', (chunk: Buffer) => {
        seen += chunk;
      });
      await sendMail(running.smtp, { from: 'a@sender.test', to: 'nobody@in.test' }, 'Subject: x\r\n\r\nx').catch(
        () => undefined,
      );
      await until('the refusal', () => seen.includes('event: refused'));
      live.destroy();
    });

    it('serves only mail links on the host of mail, and no console on unknown names', async () => {
      for (const path of ['/console/', '/', '/api/1.0/users/ping.json'])
        expect((await ask('GET', path, MAIL)).statusCode, path).to.equal(421);
      expect((await ask('GET', '/console/', 'https://track.customer.example')).statusCode).to.equal(421);
    });
  });
