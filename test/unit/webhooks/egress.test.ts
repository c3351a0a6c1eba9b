import { expect } from 'chai';
import { createGuard } from '../../../src/webhooks/post/guard.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { bytes, namesResolver, openPoster } from '../../support/delivery.ts';
import { FORBIDDEN_ANSWERS, FORBIDDEN_HOSTS, OPEN_HOSTS } from '../../support/egress-forms.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';

const guardOf = (names = {}) =>
  createGuard({ allowPrivate: [], loopbackOnly: false }, { resolver: namesResolver(names) });
const errorOf = async (url: string, names = {}): Promise<string> => {
  const verdict = await guardOf(names).check(url);
  return verdict.ok ? `ok ${verdict.addresses[0]}` : verdict.error;
};

describe('webhooks to private addresses', () => {
  it('are tested in at least 200 forms', () => {
    expect(new Set(FORBIDDEN_HOSTS).size).to.be.at.least(200);
    expect(FORBIDDEN_HOSTS).to.have.length(new Set(FORBIDDEN_HOSTS).size);
  });

  for (const host of FORBIDDEN_HOSTS) {
    it(`are rejected for ${host}`, async () => {
      // Every form must be an address by the time it is checked: one that only failed to resolve would prove nothing.
      for (const url of [`http://${host}/`, `https://${host}:8443/x`, `http://user@${host}:80/?a`]) {
        expect(await errorOf(url), url).to.equal('forbidden address');
      }
    });
  }

  for (const address of FORBIDDEN_ANSWERS) {
    it(`are rejected when a name server returns "${address}", alone or among public ones`, async () => {
      expect(await errorOf('https://x.example/', { 'x.example': [address] })).to.equal('forbidden address');
      expect(await errorOf('https://x.example/', { 'x.example': ['8.8.8.8', address] })).to.equal('forbidden address');
      expect(await errorOf('https://x.example/', { 'x.example': [address, '8.8.8.8', '2606:4700::1111'] })).to.equal(
        'forbidden address',
      );
    });
  }

  it('are the only ones rejected: all public addresses are allowed, to the boundaries', async () => {
    for (const host of OPEN_HOSTS)
      expect(await errorOf(`https://${host}/`), host).to.equal(`ok ${host.replace(/[[\]]/g, '')}`);
  });

  it('are rejected on the ports of other services and by other schemes', async () => {
    for (const port of [
      1, 21, 22, 23, 25, 53, 79, 81, 110, 111, 123, 135, 139, 143, 161, 389, 442, 444, 445, 465, 587, 993, 995, 1022,
      1023,
    ]) {
      expect(await errorOf(`http://8.8.8.8:${port}/`), String(port)).to.equal('forbidden address');
    }
    for (const port of [80, 443, 1024, 3000, 8080, 65535])
      expect(await errorOf(`http://8.8.8.8:${port}/`)).to.equal('ok 8.8.8.8');
    for (const url of [
      'ftp://8.8.8.8/',
      'file:///etc/passwd',
      'gopher://8.8.8.8:70/',
      'ws://8.8.8.8/',
      'data:text/plain,x',
      'javascript:1',
      'unix:/run/x',
      'http+unix://x/',
    ]) {
      expect(await errorOf(url), url).to.equal('forbidden address');
    }
  });

  describe('never reach a listener', () => {
    let canary: Receiver;
    const posters: Poster[] = [];
    const open = (names = {}): Poster => {
      const poster = openPoster({ names, allowPrivate: [], timeoutMs: 2000 });
      posters.push(poster);
      return poster;
    };
    beforeEach(async () => {
      canary = await startReceiver();
    });
    afterEach(async () => {
      for (const poster of posters.splice(0)) await poster.stop();
      await canary.stop();
    });

    it('in any of these forms', async () => {
      const poster = open();
      for (const host of FORBIDDEN_HOSTS) {
        expect(await poster.post(`http://${host}:${canary.port}/hook`, {}, bytes('x')), host).to.include({
          error: 'forbidden address',
          connected: false,
        });
        expect(await poster.head(`http://${host}:${canary.port}/hook`), host).to.include({
          error: 'forbidden address',
        });
      }
      expect(canary.connections()).to.equal(0);
    });

    it('when a name is public at first and loopback afterwards', async () => {
      // A documentation address stands for a public one; nothing is connected to here.
      let asked = 0;
      const names = { 'rebind.example': () => (asked++ % 2 === 0 ? ['192.0.2.1'] : ['127.0.0.1']) };
      const guard = createGuard(
        { allowPrivate: ['192.0.2.0/24'], loopbackOnly: false },
        { resolver: namesResolver(names) },
      );
      const seen: string[] = [];
      for (let i = 0; i < 6; i++) {
        const verdict = await guard.check('http://rebind.example/');
        seen.push(verdict.ok ? verdict.addresses.join() : verdict.error);
      }
      expect(seen).to.deep.equal([
        '192.0.2.1',
        'forbidden address',
        '192.0.2.1',
        'forbidden address',
        '192.0.2.1',
        'forbidden address',
      ]);
    });

    it('by a second lookup of the name between check and connection', async () => {
      // The name is looked up once for an attempt; the system would find the canary under it.
      let asked = 0;
      const names = {
        localhost: () => {
          asked++;
          return ['127.0.0.99'];
        },
      };
      const poster = openPoster({ names, allowPrivate: ['127.0.0.99'], timeoutMs: 2000 });
      posters.push(poster);
      const result = await poster.post(`http://localhost:${canary.port}/hook`, {}, bytes('x'));
      expect(result).to.include({ error: 'connection refused' });
      expect(asked).to.equal(1);
      expect(canary.connections()).to.equal(0);
    });

    it('over a connection that was opened when the name was still public', async () => {
      let addresses = ['127.0.0.1'];
      const names = { 'rebind.example': () => addresses };
      const poster = openPoster({ names, allowPrivate: ['127.0.0.1'], timeoutMs: 2000 });
      posters.push(poster);
      expect(await poster.post(`http://rebind.example:${canary.port}/`, {}, bytes('x'))).to.include({ status: 200 });
      addresses = ['127.0.0.1', '10.0.0.1'];
      expect(await poster.post(`http://rebind.example:${canary.port}/`, {}, bytes('x'))).to.include({
        error: 'forbidden address',
      });
      expect(canary.requests).to.have.length(1);
    });
  });
});
