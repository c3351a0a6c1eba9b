import { expect } from 'chai';
import { hopsToRelay, parseRelay } from '../../../src/sending/transport/hops.ts';

import { carry, createCarrierWorld, ONE_MX, TWO_MX } from '../../support/carrier-world.ts';
import { CLOSE, type Script } from '../../support/scripted-smtp.ts';

describe('the hosts for outgoing mail', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  const two = async (script?: Script) => {
    const first = await world.server(script);
    return [first, await world.server(undefined, { address: '127.0.0.11', port: first.port })] as const;
  };

  it('are the MX hosts, the preferred one first', async () => {
    const [first, second] = await two();
    expect(await carry(world.carrier({ zone: TWO_MX }))).to.include({ host: 'mx.example.com' });
    expect([first.sessions.length, second.sessions.length]).to.deep.equal([1, 0]);
  });

  it('are tried in turn on a failure of the host', async () => {
    const troubles: readonly Script[] = [
      (step) => (step === 'banner' ? CLOSE : undefined),
      (step) => (step === 'banner' ? '554 not here' : undefined),
      (step) => (step === 'EHLO' ? '421 busy' : undefined),
      (step) => (step === 'EHLO' || step === 'HELO' ? '550 no' : undefined),
      (step) => (step === 'MAIL' ? CLOSE : undefined),
      (step) => (step === 'RCPT' ? '421 4.3.2 closing' : undefined),
      (step) => (step === 'DATA' ? CLOSE : undefined),
    ];
    for (const [i, trouble] of troubles.entries()) {
      const [first, second] = await two(trouble);
      expect(await carry(world.carrier({ zone: TWO_MX })), String(i)).to.include({
        kind: 'answered',
        code: 250,
        host: 'second.example.com',
        address: '127.0.0.11',
      });
      expect([first.sessions.length, second.sessions.length], String(i)).to.deep.equal([1, 1]);
      await world.stop();
    }
  });

  it('are not tried in turn when the reply is about the message', async () => {
    for (const said of ['450 4.2.1 later', '550 5.1.1 no']) {
      const [, second] = await two((step) => (step === 'RCPT' ? said : undefined));
      expect(await carry(world.carrier({ zone: TWO_MX }))).to.include({
        kind: 'answered',
        code: Number(said.slice(0, 3)),
        host: 'mx.example.com',
      });
      expect(second.sessions).to.have.length(0);
      await world.stop();
    }
  });

  it('report a 421 in preference to a host that is down', async () => {
    const server = await world.server((step) => (step === 'RCPT' ? '421 4.7.0 too many connections' : undefined));
    expect(await carry(world.carrier({ zone: TWO_MX }))).to.include({
      kind: 'answered',
      code: 421,
      diag: '4.7.0 too many connections',
    });
    expect(server.sessions).to.have.length(1);
  });

  it('are all the addresses of a host, at most four, of at most five hosts', async () => {
    const server = await world.server((step) => (step === 'banner' ? '421 no' : undefined), { address: '0.0.0.0' });
    const addresses = (host: number) => [1, 2, 3, 4, 5].map((i) => `127.0.${host}.${i}`);
    const hosts = [1, 2, 3, 4, 5, 6, 7].map((host) => `mx${host}.example.com`);
    const zone = {
      'example.com': { MX: hosts.map((exchange, i) => ({ exchange, priority: i })) },
      ...Object.fromEntries(hosts.map((host, i) => [host, { A: addresses(i + 1) }])),
    };
    expect(await carry(world.carrier({ zone }))).to.include({ kind: 'unanswered', permanent: false });
    expect(server.sessions).to.have.length(20);
  });

  it('are the domain itself without an MX', async () => {
    await world.server();
    expect(await carry(world.carrier({ zone: { 'example.com': { A: ['127.0.0.1'] } } }))).to.include({
      kind: 'answered',
      code: 250,
      host: 'example.com',
    });
  });

  it('do not exist, permanently, for an unknown domain, a null MX, or no address; and temporarily after a DNS failure', async () => {
    await world.server();
    const table = [
      [{}, { permanent: true, reason: 'the domain example.com does not exist' }],
      [
        { 'example.com': { MX: [{ exchange: '', priority: 0 }] } },
        { permanent: true, reason: 'the domain example.com accepts no mail (null MX)' },
      ],
      [{ 'example.com': { TXT: ['x'] } }, { permanent: true, reason: 'the mail hosts of example.com have no address' }],
      [{ 'example.com': { fails: 'timeout' } }, { permanent: false }],
      [{ ...ONE_MX, 'mx.example.com': { fails: 'servfail' } }, { permanent: false }],
    ] as const;
    for (const [zone, expected] of table)
      expect(await carry(world.carrier({ zone }))).to.include({ kind: 'unanswered', ...expected });
  });

  it('are never in a private network, for any DNS records', async () => {
    const server = await world.server();
    const forbidden = {
      kind: 'unanswered',
      permanent: true,
      reason: 'the mail hosts of example.com have forbidden addresses',
    };
    for (const address of ['127.0.0.1', '10.0.0.1', '169.254.169.254', '192.168.1.1', '100.64.0.1', '0.0.0.0'])
      for (const A of [[address], ['8.8.8.8', address]]) {
        const zone = { ...ONE_MX, 'mx.example.com': { A } };
        expect(await carry(world.carrier({ zone, allowPrivate: [] })), A.join()).to.include(forbidden);
      }
    for (const address of ['::1', '::ffff:127.0.0.1']) {
      const zone = { ...ONE_MX, 'mx.example.com': { AAAA: [address] } };
      expect(await carry(world.carrier({ zone, allowPrivate: [] })), address).to.include(forbidden);
    }
    for (const exchange of ['localhost', '127.0.0.1', 'a.localhost']) {
      const zone = { 'example.com': { MX: [{ exchange, priority: 10 }] } };
      expect(await carry(world.carrier({ zone, allowPrivate: null })), exchange).to.include(forbidden);
    }
    expect(server.sessions).to.have.length(0);
    // A machine of a developer is another matter.
    expect(await carry(world.carrier({ allowPrivate: null, loopbackOnly: true }))).to.include({ code: 250 });
  });

  describe('with a relay', () => {
    const zone = { 'relay.test': { A: ['127.0.0.1'] } };

    it('are the relay, with name and password, for any recipient', async () => {
      const server = await world.server(undefined, { offers: ['AUTH PLAIN LOGIN'] });
      const carrier = world.carrier({ zone, allowPrivate: [], relay: `smtp://me:p%40ss@relay.test:${server.port}` });
      expect(await carry(carrier, { recipient: 'b@nowhere.example' })).to.include({
        kind: 'answered',
        code: 250,
        host: 'relay.test',
      });
      expect(server.sessions[0]?.commands[1]).to.equal(`AUTH PLAIN ${Buffer.from('\0me\0p@ss').toString('base64')}`);
    });

    it('treat a wrong password and a lost connection after it as temporary', async () => {
      const server = await world.server(undefined, { offers: ['AUTH PLAIN'] });
      for (const said of ['535 5.7.8 wrong', CLOSE] as const) {
        server.say((step) => (step === 'AUTH' ? said : undefined));
        expect(await carry(world.carrier({ zone, relay: `smtp://me:pw@relay.test:${server.port}` }))).to.include({
          kind: 'unanswered',
          permanent: false,
        });
      }
      expect(await carry(world.carrier({ zone: {}, relay: 'smtp://relay.test' }))).to.include({
        kind: 'unanswered',
        permanent: false,
        reason: 'the relay relay.test has no address (outbound.relay)',
      });
      expect(() => world.carrier({ relay: 'relay.test' })).to.throw('outbound.relay is not an smtp:// or smtps:// URL');
    });
  });
});

describe('the connection to a relay', () => {
  const exchanges = [{ host: 'relay.test', addresses: ['192.0.2.1', '127.0.0.1'] }];
  const tlsOf = (url: string, wish: 'any' | 'encrypted' | 'none') => {
    const relay = parseRelay(url);
    return relay && [...hopsToRelay(exchanges, relay, wish)].map(({ tls }) => tls);
  };

  it('must be encrypted and verified for a password, or local', () => {
    for (const wish of ['any', 'encrypted', 'none'] as const) {
      expect(tlsOf('smtp://me:pw@relay.test', wish)?.[0], wish).to.equal('verified');
      expect(tlsOf('smtps://relay.test', wish)?.[0], wish).to.equal('verified');
      expect(tlsOf('smtp://relay.test', wish)?.[0], wish).to.equal(wish);
    }
    expect(tlsOf('smtp://me:pw@relay.test', 'encrypted')?.[1]).to.equal('any');
  });
});
