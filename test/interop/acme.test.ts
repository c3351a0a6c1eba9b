import { get as getPlain, type IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { connect } from 'node:net';
import { connect as connectTls, type PeerCertificate } from 'node:tls';
import { expect } from 'chai';
import { createRunningClock, type RunningClock } from '../support/clock.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { NO_PEBBLE, type Pebble, startPebble } from '../support/pebble.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// Certificates from Pebble, the ACME server of Let's Encrypt for tests.

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const HOST = 'in.postern.test';
const API = 'api.postern.test';
const HERE = { A: ['127.0.0.1'] };
/** An address of this machine at which nobody listens. */
const ELSEWHERE = { A: ['127.0.0.77'] };
const MAC_KEY = 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W';

if (NO_PEBBLE) console.log(`ACME is left out: ${NO_PEBBLE}`);
else
  describe('certificates by ACME', function () {
    this.timeout(240_000);
    let zone: Zone;
    let pebble: Pebble;
    let daemon: TestDaemon;
    let clock: RunningClock;
    let [http, https, smtp] = [0, 0, 0];

    /** A daemon that gets its certificates from a Pebble of its own. */
    async function begin({
      records = { [HOST]: HERE, [API]: HERE },
      authority = {},
      settings = {},
    }: {
      records?: object;
      authority?: object;
      settings?: Readonly<Record<string, string>>;
    } = {}): Promise<void> {
      zone = await startZone({ ...records });
      [http, https] = [await freePort(), await freePort()];
      clock = createRunningClock(Date.now(), 0);
      pebble = await startPebble({ httpPort: http, dns: zone.server, ...authority });
      const env = {
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_PUBLIC_URL: `https://${API}`,
        POSTERN_HTTPS__LISTEN: `127.0.0.1:${https}`,
        POSTERN_HTTPS__REDIRECT_LISTEN: `127.0.0.1:${http}`,
        POSTERN_ACME__ENABLED: 'true',
        POSTERN_ACME__DIRECTORY: pebble.directory,
        POSTERN_ACME__CA_FILE: pebble.caFile,
        // A clock that leaps looks like a lag of days.
        POSTERN_SMTP__MAX_LOOP_LAG_MS: '100000000000',
        ...settings,
      };
      daemon = await startDaemon(env, { clock });
      smtp = daemon.smtp.port;
    }
    afterEach(async () => {
      await daemon?.stop();
      await pebble?.stop();
      await zone?.stop();
    });

    const issued = (name: string) =>
      until(`a certificate of ${name}`, () =>
        daemon.log.of('certificate.issued').some(({ fields }) => fields['name'] === name),
      );
    const failedOrders = (name: string) =>
      daemon.log.of('certificate.failed').filter(({ fields }) => fields['name'] === name);
    /** The certificate that a client trusts, by the name that it asks for. */
    const shown = (name: string) => certificateAt(https, name, pebble.root());

    it('are ordered for each name, shown by SNI, and offered by SMTP, though a quarter of all nonces is refused', async () => {
      await begin({
        authority: { env: { PEBBLE_WFE_NONCEREJECT: '25' } },
        settings: { POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0' },
      });
      await Promise.all([issued(HOST), issued(API)]);
      for (const name of [HOST, API]) {
        const cert = await shown(name);
        expect(cert.subjectaltname).to.equal(`DNS:${name}`);
        expect(cert.nistCurve).to.equal('P-256');
      }
      expect(await pageAt(https, API, pebble.root(), '/healthz')).to.include({ status: 200 });
      const offered = await until('STARTTLS', () => startTls(smtp, HOST, pebble.root()));
      expect(offered.subjectaltname).to.equal(`DNS:${HOST}`);
      const [implicit] = await until(
        'port 465',
        () =>
          daemon.log.of('smtp.listening').slice(1).length > 0 && [
            daemon.log.of('smtp.listening').at(-1)?.fields['port'],
          ],
      );
      expect((await certificateAt(Number(implicit), HOST, pebble.root())).subjectaltname).to.equal(`DNS:${HOST}`);
    });

    it('leave port 80 with challenges and redirects of our names only', async () => {
      await begin();
      const ask = (host: string, path: string, method = 'GET') => plainAt(http, { host, path, method });
      expect(await ask(API, '/track/open/x?a=1')).to.include({
        status: 308,
        location: `https://${API}/track/open/x?a=1`,
      });
      expect(await ask(`${API.toUpperCase()}:80`, '/')).to.include({ status: 308, location: `https://${API}/` });
      expect(await ask(HOST, '//evil.example/', 'HEAD')).to.include({
        status: 308,
        location: `https://${HOST}//evil.example/`,
      });
      for (const [host, path, method] of [
        ['evil.example', '/', 'GET'],
        [`${API}@evil.example`, '/', 'GET'],
        ['', '/', 'GET'],
        [API, '/api/1.0/users/ping.json', 'POST'],
        [API, 'http://evil.example/', 'GET'],
        [API, '/.well-known/acme-challenge/unknown-token-0123456789', 'GET'],
        ['evil.example', '/.well-known/acme-challenge/..%2f..%2f', 'GET'],
      ] as const)
        expect(await ask(host, path, method), `${method} ${host} ${path}`).to.include({
          status: 404,
          location: undefined,
        });
    });

    it('are renewed while clients connect, and none is refused', async () => {
      await begin({
        authority: { config: { certificateValidityPeriod: 90 * 24 * 3600 } },
        settings: { POSTERN_SMTP__THREADS: '2' },
      });
      await Promise.all([issued(HOST), issued(API)]);
      const first = await shown(API);
      await until('STARTTLS', () => startTls(smtp, HOST, pebble.root()));
      let connecting = true;
      let connected = 0;
      const clients = [0, 1, 2, 3].map(async (n) => {
        while (connecting) {
          await (n % 2 === 0 ? shown(API) : startTls(smtp, HOST, pebble.root()));
          connected++;
        }
      });
      clock.leap(63 * DAY_MS);
      await until('renewals', () => daemon.log.of('certificate.renewed').length === 2);
      await until('the new one', async () => (await shown(API)).serialNumber !== first.serialNumber);
      const soFar = connected;
      await until('more clients', () => connected > soFar + 8);
      connecting = false;
      await Promise.all(clients);
      expect(daemon.log.of('certificate.failed')).to.deep.equal([]);
      expect(daemon.log.lines.filter(({ level }) => level === 'error')).to.deep.equal([]);
    });

    it('stay in use while the authority is away for a week, and are renewed when it is back and knows no account', async () => {
      await begin({ authority: { config: { certificateValidityPeriod: 90 * 24 * 3600 } } });
      await Promise.all([issued(HOST), issued(API)]);
      const oldRoot = pebble.root();
      await pebble.stop();
      clock.leap(66 * DAY_MS);
      for (let day = 0; day < 7; day++) {
        await until('a failure', () => failedOrders(API).length > day);
        expect(failedOrders(API).at(-1)?.fields['reason']).to.match(/cannot be reached/);
        expect((await certificateAt(https, API, oldRoot)).subjectaltname).to.equal(`DNS:${API}`);
        clock.leap(DAY_MS);
      }
      await pebble.start();
      clock.leap(7 * HOUR_MS);
      await until('renewals', () => daemon.log.of('certificate.renewed').length === 2);
      expect((await shown(API)).subjectaltname).to.equal(`DNS:${API}`);
      expect(await pebble.log()).to.match(/accountDoesNotExist|unable to find existing account|There are now/i);
    });

    it('say what to do about a name that cannot be proven, and leave the others alone', async () => {
      await begin({ records: { [HOST]: HERE, [API]: ELSEWHERE } });
      await issued(HOST);
      await until('a failure', () => failedOrders(API).length > 0);
      const fields = failedOrders(API)[0]?.fields ?? {};
      expect(fields['note']).to.match(/port 80 of api\.postern\.test/);
      expect(Date.parse(String(fields['again_at']))).to.be.within(clock.now() + 2 * 60_000, clock.now() + 6 * 60_000);
      zone.set({ [HOST]: HERE, [API]: HERE });
      clock.leap(6 * 60_000);
      await issued(API);
    });

    it('are bound to an account that the authority knows, and not without', async () => {
      const authority = {
        config: { externalAccountBindingRequired: true, externalAccountMACKeys: { 'kid-1': MAC_KEY } },
      };
      await begin({ authority });
      await until('a failure', () => failedOrders(HOST).length > 0);
      expect(failedOrders(HOST)[0]?.fields['note']).to.contain('acme.eab_key_id');
      await daemon.stop();
      await pebble.stop();
      await zone.stop();
      await begin({
        authority,
        settings: { POSTERN_ACME__EAB_KEY_ID: 'kid-1', POSTERN_ACME__EAB_HMAC_KEY: MAC_KEY },
      });
      await issued(HOST);
    });

    it('serve the MTA-STS policy of an inbound domain at its own name', async () => {
      const policyHost = 'mta-sts.customer.test';
      await begin({
        records: { [HOST]: HERE, [API]: HERE, [policyHost]: HERE, 'mta-sts.away.test': ELSEWHERE },
        settings: { POSTERN_INBOUND__MTA_STS: 'enforce', POSTERN_INBOUND__MX_HOSTS: 'mx2.postern.test' },
      });
      await issued(API);
      for (const domain of ['customer.test', 'away.test']) await daemon.api('/inbound/add-domain', { domain });
      clock.leap(11 * 60_000);
      await issued(policyHost);
      const { status, type, text } = await pageAt(https, policyHost, pebble.root(), '/.well-known/mta-sts.txt');
      expect(status).to.equal(200);
      expect(type).to.match(/^text\/plain/);
      expect(text).to.equal(
        `version: STSv1\r\nmode: enforce\r\nmx: ${HOST}\r\nmx: mx2.postern.test\r\nmax_age: 2419200\r\n`,
      );
      expect((await pageAt(https, API, pebble.root(), '/.well-known/mta-sts.txt')).status).to.equal(404);
      expect(daemon.log.of('certificate.issued').map(({ fields }) => fields['name'])).to.not.include(
        'mta-sts.away.test',
      );
      expect(daemon.log.of('certificate.failed')).to.deep.equal([]);
    });
  });

/** The certificate at a port, trusted by this root for this name. */
function certificateAt(
  port: number,
  servername: string,
  ca: string,
): Promise<PeerCertificate & { nistCurve?: string }> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, servername, ca }, () => {
      resolve(socket.getPeerCertificate());
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

/** The certificate that STARTTLS shows; false if it is not offered. Fails if the session is refused. */
function startTls(port: number, servername: string, ca: string): Promise<PeerCertificate | false> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    const steps = ['EHLO client.example\r\n', 'STARTTLS\r\n'];
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      const text = chunk.toString();
      if (!/^\d{3} /m.test(text)) return;
      if (/^[45]/.test(text)) return reject(new Error(text));
      if (steps.length === 1 && !/STARTTLS/.test(text)) {
        socket.destroy();
        return resolve(false);
      }
      const step = steps.shift();
      if (step !== undefined) return void socket.write(step);
      socket.removeAllListeners('data');
      const secure = connectTls({ socket, servername, ca }, () => {
        resolve(secure.getPeerCertificate());
        secure.end('QUIT\r\n').resume();
      });
      secure.on('error', reject);
    });
  });
}

async function textOf(answer: IncomingMessage): Promise<string> {
  return Buffer.concat(await answer.toArray()).toString();
}

function pageAt(port: number, host: string, ca: string, path: string) {
  return new Promise<{ status: number | undefined; type: string | undefined; text: string }>((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, ca, servername: host, headers: { host }, agent: false }, (answer) => {
      const { statusCode: status, headers } = answer;
      textOf(answer).then((text) => resolve({ status, type: headers['content-type'], text }), reject);
    }).on('error', reject);
  });
}

function plainAt(port: number, { host, path, method }: { host: string; path: string; method: string }) {
  return new Promise<{ status: number | undefined; location: string | undefined }>((resolve, reject) => {
    getPlain({ host: '127.0.0.1', port, path, method, headers: { host }, agent: false }, (answer) => {
      resolve({ status: answer.statusCode, location: answer.headers.location });
      answer.resume();
    }).on('error', reject);
  });
}
