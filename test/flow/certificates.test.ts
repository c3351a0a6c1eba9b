import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { serialAt } from '../support/starttls.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const fixture = (name: string) => new URL(`../fixtures/tls/${name}`, import.meta.url).pathname;

describe('certificates of a running daemon', () => {
  for (const threads of ['0', '2'])
    it(`are reloaded when the files change or at SIGHUP; a pair that does not match changes nothing (threads: ${threads})`, async () => {
      const dir = await tempDir();
      const [cert, key] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
      const use = (name: string) => {
        copyFileSync(fixture(`${name}.cert.pem`), cert);
        copyFileSync(fixture(`${name}.key.pem`), key);
      };
      use('first');
      const postern = await spawnDaemon(dir, {
        POSTERN_SMTP__TLS__CERT: cert,
        POSTERN_SMTP__TLS__KEY: key,
        POSTERN_SMTP__THREADS: threads,
      });
      const before = await serialAt(postern.smtp.port);
      use('second');
      const after = await until('the new certificate', async () => {
        const now = await serialAt(postern.smtp.port);
        return now !== before ? now : undefined;
      });
      writeFileSync(key, 'no key at all');
      postern.signal('SIGHUP');
      await until('the refusal', () => postern.lines.some(({ event }) => event === 'daemon.reload_refused'));
      expect(await serialAt(postern.smtp.port)).to.equal(after);
      use('first');
      postern.signal('SIGHUP');
      await until('the first one again', async () => (await serialAt(postern.smtp.port)) === before);
      expect(await postern.end()).to.equal(0);
    }).timeout(30_000);

  for (const { what, name, hostname, reason } of [
    { what: 'has expired', name: 'expired', reason: 'expired on Feb  1 00:00:00 2020 GMT' },
    { what: 'is not valid yet', name: 'future', reason: 'is not valid before Jan  1 00:00:00 2100 GMT' },
    {
      what: 'is for another name',
      name: 'first',
      hostname: 'mx.elsewhere.test',
      reason: 'covers CN=first.ours.test, not mx.elsewhere.test',
    },
  ])
    it(`are loaded with a warning at a start and at a reload when one ${what}`, async () => {
      const dir = await tempDir();
      const [cert, key] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
      const use = (of: string) => {
        copyFileSync(fixture(`${of}.cert.pem`), cert);
        copyFileSync(fixture(`${of}.key.pem`), key);
      };
      use(name);
      const postern = await spawnDaemon(dir, {
        POSTERN_SMTP__TLS__CERT: cert,
        POSTERN_SMTP__TLS__KEY: key,
        ...(hostname !== undefined && { POSTERN_HOSTNAME: hostname }),
      });
      const warnings = () => postern.lines.filter(({ event }) => event === 'smtp.certificate');
      const [warning] = await until('the warning', () => (warnings().length > 0 ? warnings() : undefined));
      expect(warning).to.include({ level: 'warn', reason: `the certificate in ${cert} ${reason}` });
      const text = await (await fetch(`${postern.base}/metrics`)).text();
      expect(text).to.match(
        new RegExp(`^postern_tls_certificate_covers_hostname ${hostname === undefined ? 1 : 0}$`, 'm'),
      );
      postern.signal('SIGHUP');
      await until('the warning again', () => warnings().length === 2);
      expect(postern.lines.filter(({ event }) => event === 'daemon.reload_refused')).to.deep.equal([]);
      expect(await postern.end()).to.equal(0);
    }).timeout(30_000);
});
