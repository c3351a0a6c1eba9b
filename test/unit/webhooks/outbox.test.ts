import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { HookEvent } from '../../../src/store/rows/webhooks.ts';
import type { Store } from '../../../src/store/store.ts';
import { createOutbox } from '../../../src/webhooks/outbox.ts';
import { events } from '../../support/batch-world.ts';
import { NO_EVENT_COPIES } from '../../support/copies.ts';
import { freshSpool, type OpenedSpool } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';

describe('the outbox', () => {
  let opened: OpenedSpool;
  let store: Store;
  let outbox: ReturnType<typeof createOutbox>;
  let away = false;
  beforeEach(async () => {
    opened = await freshSpool();
    away = false;
    store = await openTestStore();
    const webhooks = {
      ...store.webhooks,
      many: (...args: Parameters<Store['webhooks']['many']>) =>
        away ? Promise.reject(new StoreAway('away')) : store.webhooks.many(...args),
    };
    outbox = createOutbox({ store: { webhooks }, spool: opened.spool, copies: NO_EVENT_COPIES, clock: opened.clock });
  });
  afterEach(() => store.close());

  const hook = (number: number, names: readonly HookEvent[] = [], account = 'acme') =>
    store.webhooks.insert({
      id: String(number),
      account,
      number,
      url: `https://h${number}.example/`,
      description: null,
      events: names,
      createdAt: new Date(0),
    });
  const pending = async () =>
    Object.fromEntries(
      (await opened.spool.events.pending(100)).map(({ webhook, pending }) => [webhook, pending.events]),
    );

  it('queues events before it resolves, for every subscribed webhook of the account', async () => {
    await hook(1);
    await hook(2, ['open', 'click']);
    await hook(3, [], 'another');
    await outbox.publish('acme', [...events(2, { event: 'send' }), ...events(1, { event: 'click', from: 5 })]);
    expect(await pending()).to.deep.equal({ 1: 3, 2: 1 });
  });

  it('sends deferral only to subscribers of it', async () => {
    await hook(1);
    await hook(2, ['deferral']);
    await outbox.publish('acme', events(1, { event: 'deferral' }));
    expect(await pending()).to.deep.equal({ 2: 1 });
  });

  it('does not use the spool without subscribers', async () => {
    await hook(1, ['click']);
    await opened.spool.close();
    await outbox.publish('acme', events(3));
    await outbox.publish('nobody', events(3));
    await outbox.publish('acme', []);
  });

  it('throws when the spool rejects them, so that the row keeps them', async () => {
    await hook(1);
    await opened.spool.close();
    const failure = await outbox.publish('acme', events(1)).then(
      () => undefined,
      (error: Error) => error.name,
    );
    expect(failure).to.equal('SpoolFault');
  });

  it('throws when the store is unavailable, and reads it again the next time', async () => {
    await hook(1);
    away = true;
    expect(
      await outbox.publish('acme', events(1)).then(
        () => undefined,
        (error: Error) => error.name,
      ),
    ).to.equal('StoreAway');
    away = false;
    await outbox.publish('acme', events(1));
    expect(await pending()).to.deep.equal({ 1: 1 });
  });

  it('notices changes of another host within a second, and own changes at once', async () => {
    await hook(1);
    await outbox.publish('acme', events(1));
    await hook(2);
    await outbox.publish('acme', events(1, { from: 1 }));
    expect(await pending()).to.deep.equal({ 1: 2 });
    await opened.clock.advance(1000);
    await outbox.publish('acme', events(1, { from: 2 }));
    expect(await pending()).to.deep.equal({ 1: 3, 2: 1 });
    await store.webhooks.remove({ id: '2' });
    outbox.forget('acme');
    await outbox.publish('acme', events(1, { from: 3 }));
    expect(await pending()).to.deep.equal({ 1: 4, 2: 1 });
  });

  it('reads the webhooks once for many concurrent events', async () => {
    let reads = 0;
    await hook(1);
    const webhooks = {
      ...store.webhooks,
      many: (...args: Parameters<Store['webhooks']['many']>) => {
        reads++;
        return store.webhooks.many(...args);
      },
    };
    const counting = createOutbox({
      store: { webhooks },
      spool: opened.spool,
      copies: NO_EVENT_COPIES,
      clock: opened.clock,
    });
    await Promise.all(events(50).map((event) => counting.publish('acme', [event])));
    expect(reads).to.equal(1);
    expect(await pending()).to.deep.equal({ 1: 50 });
  });
});
