import { expect } from 'chai';
import { carry, createCarrierWorld, ONE_MX } from '../../support/carrier-world.ts';
import { hasIPv6 } from '../../support/ipv6.ts';

describe('source addresses of outgoing mail', () => {
  const world = createCarrierWorld();
  afterEach(world.stop);

  it('are the chosen ones, as seen by the receiver', async () => {
    const server = await world.server();
    const carrier = world.carrier();
    for (let i = 2; i <= 9; i++)
      expect(await carry(carrier, { sources: [`127.0.0.${i}`] })).to.include({
        kind: 'answered',
        code: 250,
        source: `127.0.0.${i}`,
      });
    expect(server.sessions.map(({ from }) => from)).to.deep.equal([2, 3, 4, 5, 6, 7, 8, 9].map((i) => `127.0.0.${i}`));
  });

  it('have separate sessions', async () => {
    const server = await world.server();
    const carrier = world.carrier();
    for (const source of ['127.0.0.2', '127.0.0.3', '127.0.0.2', '127.0.0.3'])
      await carry(carrier, { sources: [source] });
    await carry(carrier);
    expect(server.sessions.map(({ from, messages }) => [from, messages.length])).to.deep.equal([
      ['127.0.0.2', 2],
      ['127.0.0.3', 2],
      ['127.0.0.1', 1],
    ]);
  });

  it('are skipped, and logged once, if this machine lacks them', async () => {
    const server = await world.server();
    const carrier = world.carrier();
    expect(await carry(carrier, { sources: ['192.0.2.7', '127.0.0.4'] })).to.include({
      code: 250,
      source: '127.0.0.4',
    });
    expect(await carry(carrier, { sources: ['192.0.2.7'] })).to.include({ code: 250, source: '127.0.0.1' });
    expect(server.sessions.map(({ from }) => from)).to.deep.equal(['127.0.0.4', '127.0.0.1']);
    expect(world.log.of('ip.missing').map(({ fields }) => fields)).to.deep.equal([
      { ip: '192.0.2.7', host: 'mx.example.com' },
    ]);
  });

  it('are of the family of the destination', async () => {
    await world.server();
    expect(await carry(world.carrier(), { sources: ['2001:db8::1', '127.0.0.5'] })).to.include({
      code: 250,
      source: '127.0.0.5',
    });
    expect(await carry(world.carrier(), { sources: ['2001:db8::1'] })).to.include({ code: 250, source: '127.0.0.1' });
  });

  it('decide which family of a host is tried first', async function () {
    if (!hasIPv6()) return this.skip();
    const zone = { ...ONE_MX, 'mx.example.com': { A: ['127.0.0.1'], AAAA: ['::1'] } };
    const server = await world.server(undefined, { address: '::' });
    const open = { zone, allowPrivate: ['127.0.0.0/8', '::1/128'] };
    expect(await carry(world.carrier(open), { sources: ['::1', '127.0.0.5'] })).to.include({
      code: 250,
      address: '::1',
      source: '::1',
    });
    expect(await carry(world.carrier(open), { sources: ['127.0.0.5', '::1'] })).to.include({
      code: 250,
      address: '127.0.0.1',
      source: '127.0.0.5',
    });
    expect(server.sessions).to.have.length(2);
  });

  it('use their reverse DNS name as HELO if it is theirs, otherwise our hostname', async () => {
    const zone = {
      ...ONE_MX,
      '2.0.0.127.in-addr.arpa': { PTR: ['out2.postern.test'] },
      'out2.postern.test': { A: ['127.0.0.2'] },
      '3.0.0.127.in-addr.arpa': { PTR: ['claimed.bank.example'] },
      'claimed.bank.example': { A: ['127.0.0.99'] },
      '4.0.0.127.in-addr.arpa': { PTR: ['not a name\r\nQUIT'] },
      '5.0.0.127.in-addr.arpa': { fails: 'timeout' as const },
    };
    const server = await world.server();
    const carrier = world.carrier({ zone });
    for (const i of [2, 3, 4, 5, 6]) await carry(carrier, { sources: [`127.0.0.${i}`] });
    await carry(carrier);
    expect(server.sessions.map(({ commands }) => commands[0])).to.deep.equal([
      'EHLO out2.postern.test',
      ...Array.from({ length: 5 }, () => 'EHLO out.postern.test'),
    ]);
  });
});
