import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createRouting } from '../../../src/inbound/routing.ts';
import { type SealScope, sealReplyAddress, toFullMinute } from '../../../src/mail/addresses/reply-address.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

describe('the routing table', () => {
  const clock = createTestClock();
  const ids = createIds(clock);
  let store: Store;
  let number = 0;

  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  async function domain(id: string) {
    await store.inboundDomains.insert({
      id,
      account: 'a',
      domain: id,
      createdAt: new Date(clock.now()),
      validMx: false,
      testedAt: null,
    });
    await changed();
  }
  async function route(domain: string, pattern: string) {
    number++;
    const row = {
      id: `1.${number}`,
      account: 'a',
      domain,
      pattern,
      url: `https://hook.test/${number}`,
      createdAt: new Date(clock.now() + number),
    };
    await store.inboundRoutes.insert(row);
    await changed();
    return row.id;
  }
  const changed = () => store.revisions.add('routing', { count: 1 }, { count: 0 });
  const create = (over: Store = store) =>
    createRouting({ refreshMs: 1000 }, { store: over, clock, ids, log: createTestLog() });
  const hit = (routing: ReturnType<typeof create>, mailbox: string, at = 'in.test') => {
    const found = routing.lookup(mailbox, at);
    return found.kind === 'matched' ? found.match.pattern : found.kind;
  };

  describe('asked to read the store again', () => {
    /** One that would look by itself in an hour. */
    const second = async (over?: Store) => {
      const routing = createRouting(
        { refreshMs: 3_600_000 },
        { store: over ?? store, clock, ids, log: createTestLog() },
      );
      await routing.start();
      return routing;
    };

    it('gets additions and deletions of another process', async () => {
      await domain('in.test');
      const routing = await second();
      expect(hit(routing, 'new')).to.equal('no-route');
      const id = await route('in.test', 'new');
      await routing.refresh();
      expect(hit(routing, 'new')).to.equal('new');
      await store.inboundRoutes.remove({ id });
      await changed();
      await routing.refresh();
      expect(hit(routing, 'new')).to.equal('no-route');
      await routing.stop();
    });

    it('shares a read that has not begun, but not one that began earlier', async () => {
      let looks = 0;
      const counting: Store = {
        ...store,
        revisions: {
          ...store.revisions,
          async one(filter) {
            looks++;
            return store.revisions.one(filter);
          },
        },
      };
      const routing = await second(counting);
      looks = 0;
      const first = routing.refresh();
      await until('the look to begin', () => looks === 1);
      await domain('late.test');
      await route('late.test', 'box');
      await Promise.all([first, ...Array.from({ length: 500 }, () => routing.refresh())]);
      expect(hit(routing, 'box', 'late.test')).to.equal('box');
      expect(looks).to.be.at.most(3);
      await routing.stop();
    });

    it('keeps its contents while the store is unavailable, and does not wait for it again', async () => {
      await domain('in.test');
      await route('in.test', 'box');
      let asked = 0;
      let away = false;
      const failing: Store = {
        ...store,
        revisions: {
          ...store.revisions,
          async one(filter) {
            asked++;
            if (away) throw new StoreAway('revisions');
            return store.revisions.one(filter);
          },
        },
      };
      const routing = await second(failing);
      away = true;
      asked = 0;
      await routing.refresh();
      for (let n = 0; n < 10; n++) await routing.refresh();
      expect([hit(routing, 'box'), asked]).to.deep.equal(['box', 1]);
      await routing.stop();
    });

    it('waits two seconds at most for a store that does not answer', async () => {
      const never = new Promise<never>(() => {});
      let hangs = false;
      const hanging: Store = {
        ...store,
        revisions: { ...store.revisions, one: (filter) => (hangs ? never : store.revisions.one(filter)) },
      };
      const routing = await second(hanging);
      hangs = true;
      const waiting = routing.refresh();
      await clock.advance(2000);
      await waiting;
      await routing.stop();
    });
  });

  it('checks reply addresses without the store: forged ones have no route, expired ones had one', async () => {
    await domain('in.test');
    await route('in.test', 'reply');
    await route('in.test', 'other-*');
    await store.inboundDomains.change({ id: 'in.test' }, { replyKey: 'new', previousReplyKey: 'old' });
    const routing = create();
    await routing.start();
    await routing.stop();
    const until = toFullMinute(clock.now() + 60_000);
    const seal = (change: Partial<SealScope>, key = 'new') =>
      sealReplyAddress(
        key,
        { account: 'a', domain: 'in.test', mailbox: 'reply', ...change },
        { data: 'x', expiresAt: until },
      );
    const found = (local: string, at?: string) => hit(routing, local, at);
    expect(routing.lookup(seal({}), 'IN.test')).to.have.nested.property('match.replyData', 'x');
    expect([seal({}), seal({}, 'old'), seal({ mailbox: 'other-1' })].map((local) => found(local))).to.deep.equal([
      'reply',
      'reply',
      'other-*',
    ]);
    const forged = [seal({}, 'guessed'), seal({ account: 'b' }), seal({ domain: 'b.test' }), seal({ mailbox: 'none' })];
    expect(forged.map((local) => found(local))).to.deep.equal(forged.map(() => 'no-route'));
    clock.jump(until - 1 - clock.now());
    expect(found(seal({}))).to.equal('reply');
    clock.jump(1);
    expect([found(seal({})), found(seal({}, 'old')), found(seal({}, 'guessed'))]).to.deep.equal([
      'expired',
      'expired',
      'no-route',
    ]);
  });

  it('distinguishes an unknown domain from an unknown mailbox', async () => {
    await domain('in.test');
    await route('in.test', 'support');
    const routing = create();
    await routing.start();
    expect(hit(routing, 'support')).to.equal('support');
    expect(hit(routing, 'sales')).to.equal('no-route');
    expect(hit(routing, 'support', 'other.test')).to.equal('not-ours');
    expect(hit(routing, 'support', 'sub.in.test')).to.equal('not-ours');
    await routing.stop();
  });

  it('prefers exact text, then the most literal characters, then the oldest', async () => {
    await domain('in.test');
    for (const pattern of ['*', 'support-*', 'support-v*', '*-vip', 'Support-VIP']) await route('in.test', pattern);
    const first = await route('in.test', 'a*d');
    await route('in.test', 'ab*');
    const routing = create();
    await routing.start();
    expect(hit(routing, 'support-vip')).to.equal('Support-VIP');
    expect(hit(routing, 'support-volume')).to.equal('support-v*');
    expect(hit(routing, 'support-1')).to.equal('support-*');
    expect(hit(routing, 'x-vip')).to.equal('*-vip');
    expect(hit(routing, 'whatever')).to.equal('*');
    expect(routing.lookup('abcd', 'in.test')).to.have.nested.property('match.routeId', first);
    await routing.stop();
  });

  it('returns how many messages may share a POST of a route: one by default', async () => {
    await domain('in.test');
    const [old, fresh] = [await route('in.test', 'old'), await route('in.test', 'fresh')];
    await store.inboundRoutes.change({ id: fresh }, { batchEvents: 10 });
    await changed();
    const routing = create();
    await routing.start();
    await routing.stop();
    expect(routing.routeOf(old, 'IN.test')).to.deep.equal({
      url: 'https://hook.test/' + old.slice(2),
      batchEvents: 1,
      format: 'mandrill',
      raw: true,
      attachments: 'auto',
      linkOver: 0,
      facts: false,
      password: null,
    });
    expect(routing.routeOf(fresh, 'in.test')?.batchEvents).to.equal(10);
    expect(routing.routeOf('1.999', 'in.test')).to.equal(undefined);
  });

  it('compares domains in any case, as U-label or A-label', async () => {
    await domain('xn--mnchen-3ya.test');
    await route('xn--mnchen-3ya.test', '*');
    const routing = create();
    await routing.start();
    expect(hit(routing, 'x', 'MÜNCHEN.test')).to.equal('*');
    expect(hit(routing, 'x', 'XN--MNCHEN-3YA.TEST')).to.equal('*');
    await routing.stop();
  });

  it('applies API changes before the answer', async () => {
    const routing = create();
    await routing.start();
    await routing.change('in.test', async () => {
      await domain('in.test');
      await route('in.test', '*');
    });
    expect(hit(routing, 'x')).to.equal('*');
    await routing.change('IN.test', () => store.inboundDomains.remove({ id: 'in.test' }));
    expect(hit(routing, 'x')).to.equal('not-ours');
    await routing.stop();
  });

  it('notices changes of another host within its interval', async () => {
    const routing = create();
    await routing.start();
    expect(hit(routing, 'x')).to.equal('not-ours');
    await domain('in.test');
    await route('in.test', '*');
    await clock.advance(1000);
    await until('the new domain', () => hit(routing, 'x') === '*');
    await routing.stop();
  });

  it('answers unknown, never "not ours", until it was read once; and keeps its table while the store is unavailable', async () => {
    let away = true;
    const one: Store['revisions']['one'] = (filter) =>
      away ? Promise.reject(new StoreAway('away')) : store.revisions.one(filter);
    const routing = create({ ...store, revisions: { ...store.revisions, one } });
    await domain('in.test');
    await route('in.test', '*');
    await routing.start();
    expect([hit(routing, 'x'), routing.ready()]).to.deep.equal(['unknown', false]);
    away = false;
    await clock.advance(1000);
    await until('the table', () => routing.ready());
    away = true;
    await clock.advance(5000);
    expect(hit(routing, 'x')).to.equal('*');
    await routing.stop();
  });
});
