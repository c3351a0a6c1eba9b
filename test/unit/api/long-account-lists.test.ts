import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, startApi } from '../../support/api.ts';

// Lists without a limit are read from the store in pages: no answer and no page of it needs all rows in memory.

const COUNT = 1250;
const numbers = Array.from({ length: COUNT }, (_, n) => n);
const nameOf = (n: number) => `n${String(n).padStart(5, '0')}`;

describe('a list that is longer than a page', () => {
  let world: ApiWorld;
  /** The most rows that one search found. */
  let most: number;

  before(async () => {
    most = 0;
    world = await startApi({
      store: (real) => ({
        ...real,
        of(account) {
          const own = real.of(account);
          const counted = <R extends { many(...args: any[]): Promise<unknown[]> }>(rows: R): R => ({
            ...rows,
            async many(...args: any[]) {
              const found = await rows.many(...args);
              most = Math.max(most, found.length);
              return found;
            },
          });
          return {
            ...own,
            inboundDomains: counted(own.inboundDomains),
            inboundRoutes: counted(own.inboundRoutes),
            trackingDomains: counted(own.trackingDomains),
          };
        },
      }),
    });
    const { store, clock } = world;
    /** Groups of rows share a time, some groups are longer than a page. */
    const at = (n: number) => new Date(clock.now() + (n < 700 ? 0 : n >> 3));
    const common = { account: ACCOUNT, validMx: false, testedAt: null };
    for (const { id } of await store.inboundDomains.many({ account: ACCOUNT }))
      await store.inboundDomains.remove({ id });
    for (const { id } of await store.trackingDomains.many({ account: ACCOUNT }))
      await store.trackingDomains.remove({ id });
    await Promise.all(
      numbers.map(async (n) => {
        const name = `${nameOf(n)}.example.org`;
        // Every fifth is a claim, and every tenth is a claim beside its domain, as while a proof takes effect.
        if (n % 5 !== 0 || n % 10 === 0)
          await store.inboundDomains.insert({ ...common, id: name, domain: name, createdAt: at(n) });
        if (n % 5 === 0)
          await store.inboundDomains.insert({ ...common, id: `${name} ${ACCOUNT}`, domain: name, createdAt: at(n) });
        await store.inboundRoutes.insert({
          ...{ id: `1.${1000 + n}`, account: ACCOUNT, domain: 'n00000.example.org', pattern: nameOf(n), url: 'pull:' },
          createdAt: at(n),
        });
        await store.trackingDomains.insert({
          ...{ id: `${ACCOUNT} ${name}`, account: ACCOUNT, domain: name, createdAt: at(n), lastTestedAt: null },
          ...{ valid: null, validAfter: null, error: null, nextTestAt: at(n), version: 0 },
        });
      }),
    );
  });
  after(() => world.stop());

  const list = async (path: string, params: object, field: string): Promise<string[]> => {
    const { body } = await world.call(path, params);
    return body.map((record: Record<string, string>) => record[field]);
  };

  it('has every inbound domain once, the oldest first', async () => {
    const domains = await list('/inbound/domains', {}, 'domain');
    expect(domains.toSorted()).to.deep.equal(numbers.map((n) => `${nameOf(n)}.example.org`));
    expect(domains.slice(-8).toSorted()).to.deep.equal(numbers.slice(-8).map((n) => `${nameOf(n)}.example.org`));
  });

  it('has every route of a domain once', async () => {
    const patterns = await list('/inbound/routes', { domain: 'n00000.example.org' }, 'pattern');
    expect(patterns.toSorted()).to.deep.equal(numbers.map(nameOf));
  });

  it('has every tracking domain once, by name', async () => {
    expect(await list('/urls/tracking-domains', {}, 'domain')).to.deep.equal(
      numbers.map((n) => `${nameOf(n)}.example.org`),
    );
  });

  it('was read in pages', () => {
    expect(most).to.equal(500);
  });

  it('still answers an unknown domain with its error', async () => {
    const { status, body } = await world.call('/inbound/routes', { domain: 'none.example.org' });
    expect([status, body.name]).to.deep.equal([404, 'Unknown_InboundDomain']);
  });
});
