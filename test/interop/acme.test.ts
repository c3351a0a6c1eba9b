import { connect } from 'node:tls';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { NO_PEBBLE, type Pebble, startPebble } from '../support/pebble.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// Certificates from Pebble, the ACME server of Let's Encrypt for tests.

if (NO_PEBBLE) console.log(`ACME is left out: ${NO_PEBBLE}`);
else
  describe('certificates by ACME', function () {
    this.timeout(120_000);
    let zone: Zone;
    let pebble: Pebble;
    let daemon: TestDaemon;
    let httpsPort = 0;
    before(async () => {
      zone = await startZone({ 'in.postern.test': { A: ['127.0.0.1'] }, 'api.postern.test': { A: ['127.0.0.1'] } });
      const [http, https] = [await freePort(), await freePort()];
      httpsPort = https;
      pebble = await startPebble({ httpPort: http, dns: zone.server });
      daemon = await startDaemon({
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_PUBLIC_URL: 'https://api.postern.test',
        POSTERN_HTTPS__LISTEN: `127.0.0.1:${https}`,
        POSTERN_HTTPS__REDIRECT_LISTEN: `127.0.0.1:${http}`,
        POSTERN_ACME__ENABLED: 'true',
        POSTERN_ACME__DIRECTORY: pebble.directory,
        POSTERN_ACME__CA_FILE: pebble.caFile,
      });
    });
    after(async () => {
      await daemon?.stop();
      await pebble?.stop();
      await zone?.stop();
    });

    it('orders a certificate for each name and serves it by SNI', async () => {
      for (const name of ['api.postern.test', 'in.postern.test']) {
        const cert = await until(`a certificate of ${name}`, () =>
          shown(httpsPort, name, pebble.root()).catch((error) => (console.log(error.message, JSON.stringify(daemon.log.lines?.slice(-3))), undefined)),
        );
        expect(cert).to.equal(`DNS:${name}`);
      }
    });
  });

/** The names of the certificate that a client gets and trusts. */
function shown(port: number, servername: string, ca: string): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, servername, ca }, () => {
      resolve(socket.getPeerX509Certificate()?.subjectAltName);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}
