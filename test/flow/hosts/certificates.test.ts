import { connect } from 'node:tls';
import { expect } from 'chai';
import { mongoDriver } from '../../support/database.ts';
import { freePort } from '../../support/free-port.ts';
import { type Hosts, startHosts } from '../../support/hosts.ts';
import { NO_PEBBLE, type Pebble, startPebble } from '../../support/pebble.ts';
import { until } from '../../support/until.ts';
import { startZone, type Zone } from '../../support/zone.ts';

// Two hosts over one store, and an authority that reaches port 80 of only one of them.

const NAMES = ['a.postern.test', 'b.postern.test', 'postern.test'];

if (NO_PEBBLE) console.log(`certificates of two hosts are left out: ${NO_PEBBLE}`);
else if (mongoDriver)
  describe('certificates of hosts that share a store', function () {
    this.timeout(240_000);
    let zone: Zone;
    let pebble: Pebble;
    let hosts: Hosts;
    const ports = { a: 0, b: 0 };
    before(async () => {
      zone = await startZone(Object.fromEntries(NAMES.map((name) => [name, { A: ['127.0.0.1'] }])));
      const http = await freePort();
      ports.a = await freePort();
      ports.b = await freePort();
      pebble = await startPebble({ httpPort: http, dns: zone.server });
      const env = {
        POSTERN_ACME__ENABLED: 'true',
        POSTERN_ACME__DIRECTORY: pebble.directory,
        POSTERN_ACME__CA_FILE: pebble.caFile,
      };
      hosts = await startHosts(env, undefined, (name) => ({
        POSTERN_HTTPS__LISTEN: `127.0.0.1:${ports[name]}`,
        ...(name === 'a' && { POSTERN_HTTPS__REDIRECT_LISTEN: `127.0.0.1:${http}` }),
      }));
    });
    after(async () => {
      await hosts?.stop();
      await pebble?.stop();
      await zone?.stop();
    });

    const names = (port: number, servername: string) =>
      new Promise<string | undefined>((resolve) => {
        const socket = connect({ host: '127.0.0.1', port, servername, ca: pebble.root() }, () => {
          resolve(socket.getPeerX509Certificate()?.subjectAltName);
          socket.destroy();
        });
        socket.on('error', () => resolve(undefined));
      });

    it('are ordered once, whichever host the authority reaches, and served by both', async () => {
      for (const name of ['a.postern.test', 'postern.test'])
        for (const port of [ports.a, ports.b])
          await until(`${name} at ${port}`, async () => (await names(port, name)) === `DNS:${name}`, 60_000);
      await until('that of B', async () => (await names(ports.b, 'b.postern.test')) === 'DNS:b.postern.test', 60_000);
      const issued = [hosts.a, hosts.b].flatMap(({ log }) =>
        log.of('certificate.issued').map(({ fields }) => fields['name']),
      );
      expect(issued.toSorted()).to.deep.equal(NAMES);
      expect([hosts.a, hosts.b].flatMap(({ log }) => log.of('certificate.failed'))).to.deep.equal([]);
    });

    it('are served by a host that starts while the store is away', async () => {
      await until('its copy', async () => (await names(ports.b, 'b.postern.test')) !== undefined);
      await hosts.b.down();
      hosts.b.store.cut();
      await hosts.b.up();
      expect(await names(ports.b, 'b.postern.test')).to.equal('DNS:b.postern.test');
      expect(await names(ports.b, 'postern.test')).to.equal('DNS:postern.test');
      hosts.b.store.mend();
    });
  });
