import { expect } from 'chai';
import { copyFileSync, writeFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { spawnDaemon, type ChildDaemon } from '../support/child.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const fixture = (name: string) => new URL(`../smtp/fixtures/${name}`, import.meta.url).pathname;

/** The serial number of the certificate that STARTTLS shows. */
function serial({ host, port }: ChildDaemon['smtp']): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp(port, host);
    const steps = ['EHLO client.example\r\n', 'STARTTLS\r\n'];
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('closed')));
    socket.on('data', (chunk) => {
      if (!/^\d{3} /m.test(chunk.toString())) return;
      const step = steps.shift();
      if (step !== undefined) return void socket.write(step);
      socket.removeAllListeners('data');
      const secure = connectTls({ socket, rejectUnauthorized: false }, () => {
        resolve(secure.getPeerCertificate().serialNumber);
        secure.end('QUIT\r\n');
      });
      secure.on('error', reject);
    });
  });
}

describe('certificates of a running daemon', () => {
  it('are taken over when the files change or at SIGHUP; a pair that does not fit changes nothing', async () => {
    const dir = await tempDir();
    const [cert, key] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
    const use = (name: string) => {
      copyFileSync(fixture(`${name}.cert.pem`), cert);
      copyFileSync(fixture(`${name}.key.pem`), key);
    };
    use('first');
    const postern = await spawnDaemon(dir, { POSTERN_SMTP__TLS__CERT: cert, POSTERN_SMTP__TLS__KEY: key });
    const before = await serial(postern.smtp);
    use('second');
    const after = await until('the new certificate', async () => {
      const now = await serial(postern.smtp);
      return now !== before && now;
    });
    writeFileSync(key, 'no key at all');
    postern.signal('SIGHUP');
    await until('the refusal', () => postern.lines.some(({ event }) => event === 'daemon.reload_refused'));
    expect(await serial(postern.smtp)).to.equal(after);
    use('first');
    postern.signal('SIGHUP');
    await until('the first one again', async () => await serial(postern.smtp) === before);
    expect(await postern.end()).to.equal(0);
  }).timeout(30_000);
});
