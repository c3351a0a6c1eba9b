import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createDestinations, PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import { createTestClock } from '../../support/clock.ts';
import { openTestStore } from '../../support/store.ts';

const [OLD, NEW] = ['https://old.example.com/', 'https://new.example.com/'];
const createdAt = new Date('2026-01-05T12:00:00Z');

describe('the current destination of a delivery', () => {
  let store: Store;
  let clock: ReturnType<typeof createTestClock>;
  /** What the table of routes says of every route. */
  let table: string | undefined;
  beforeEach(async () => {
    store = await openTestStore();
    clock = createTestClock();
    table = undefined;
    await store.webhooks.insert({
      id: '4',
      account: 'a',
      number: 4,
      url: OLD,
      description: null,
      events: [],
      createdAt,
    });
    await store.inboundRoutes.insert({ id: '1.1', account: 'a', domain: 'in.test', pattern: '*', url: OLD, createdAt });
  });
  afterEach(() => store.close());
  const part = (other: Partial<Store> = {}) =>
    createDestinations({
      store: { ...store, ...other },
      clock,
      routing: {
        routeOf: () => (table === undefined ? undefined : { ...PLAIN_TARGET, url: table, batchEvents: 1 }),
        isTooNew: () => false,
      },
    });
  const batch = { url: OLD, routeId: '', recipient: '', batch: { webhook: '4', events: 1 } };
  const mail = { url: OLD, routeId: '1.1', recipient: 'jo@in.test' };

  it('is the stored one, until the webhook moves or is deleted: cached for 5 seconds', async () => {
    const destinations = part();
    expect(await destinations.of(batch)).to.deep.equal({ kind: 'here' });
    await store.webhooks.change({ id: '4' }, { url: NEW });
    await clock.advance(4999);
    expect(await destinations.of(batch)).to.deep.equal({ kind: 'here' });
    await clock.advance(1);
    expect(await destinations.of(batch)).to.deep.equal({ kind: 'there', url: NEW });
    await store.webhooks.remove({ id: '4' });
    await clock.advance(5000);
    expect(await destinations.of(batch)).to.deep.equal({ kind: 'nowhere' });
  });

  it('changes at once on this host, despite the cache', async () => {
    const destinations = part();
    await destinations.of(batch);
    await store.webhooks.change({ id: '4' }, { url: NEW });
    expect(await destinations.of({ ...batch, url: NEW })).to.deep.equal({ kind: 'here' });
    [table] = [OLD];
    await store.inboundRoutes.change({ id: '1.1' }, { url: NEW });
    expect(await destinations.of({ ...mail, url: NEW })).to.deep.equal({ kind: 'here' });
  });

  it('is that of the route now; mail of a deleted route keeps its own', async () => {
    expect(await part().of(mail)).to.deep.equal({ kind: 'here' });
    await store.inboundRoutes.change({ id: '1.1' }, { url: NEW });
    table = NEW;
    expect(await part().of(mail)).to.deep.equal({ kind: 'there', url: NEW });
    await store.inboundRoutes.remove({ id: '1.1' });
    expect(await part().of(mail)).to.deep.equal({ kind: 'here' });
  });

  it('is unknown while the store is unavailable, unless it was known before', async () => {
    let away = false;
    const one = async (filter: Parameters<Store['webhooks']['one']>[0]) => {
      if (away) throw new StoreAway('away');
      return store.webhooks.one(filter);
    };
    const destinations = part({ webhooks: { ...store.webhooks, one } });
    await destinations.of(batch);
    away = true;
    await clock.advance(5000);
    expect(await destinations.of(batch)).to.deep.equal({ kind: 'here' });
    expect(await part({ webhooks: { ...store.webhooks, one } }).of(batch)).to.deep.equal({ kind: 'unknown' });
  });
});
