import { expect } from 'chai';
import type { AttemptResult } from '../../../src/queue/settle.ts';
import { mandrillSignature, standardSignature } from '../../../src/webhooks/signing.ts';
import { answered, type BatchWorld, events, openBatchWorld, type Posted, refused } from '../../support/batch-world.ts';

const MINUTE = 60_000;

describe('events on their way to a webhook', function () {
  this.timeout(90_000);
  let world: BatchWorld;
  const open = async (...args: Parameters<typeof openBatchWorld>) => {
    world = await openBatchWorld(...args);
    await world.start();
  };
  afterEach(() => world.close());

  const idsOf = (posts: readonly Posted[]) => posts.flatMap(({ ids }) => ids);
  const idsFrom = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `m${from + n}`);

  it('make three batches of 2,500: two at once, the rest after a second', async () => {
    await open();
    const { id, url } = await world.hook('a');
    await world.publish(events(2500));
    await world.settle('the full batches', () => world.posts.length === 2);
    expect(world.posts.map(({ ids }) => ids.length)).to.deep.equal([1000, 1000]);
    await world.clock.advance(900);
    expect(world.posts).to.have.length(2);
    await world.clock.advance(100);
    await world.settle('the rest', () => world.posts.length === 3);
    expect(idsOf(world.postsTo(url)).toSorted()).to.deep.equal(idsFrom(2500).toSorted());
    await world.settle('all counted', async () => (await world.tally(id))?.batches === 3);
    expect(await world.tally(id)).to.deep.include({ events: 2500, error: null });
  });

  it('wait a second for others, counted from the first', async () => {
    await open();
    await world.hook('a');
    await world.publish(events(1));
    await world.clock.advance(700);
    await world.publish(events(1, { from: 1 }));
    await world.clock.advance(299);
    expect(world.posts).to.have.length(0);
    await world.clock.advance(1);
    await world.settle('a batch', () => world.posts.length > 0);
    expect(world.posts.map(({ ids }) => ids)).to.deep.equal([['m0', 'm1']]);
  });

  it('are split at the bytes of a batch', async () => {
    await open({ limits: { events: 1000, bytes: 10_000 } });
    await world.hook('a');
    await world.publish(events(25, { size: 1000 }));
    await world.run('all of them', () => idsOf(world.posts).length === 25);
    expect(world.posts.map(({ ids }) => ids.length).sort(), 'posted beside each other').to.deep.equal([7, 9, 9]);
    for (const { body } of world.posts)
      expect(Buffer.byteLength(new URLSearchParams(body).get('mandrill_events') ?? '')).to.be.at.most(10_000);
  });

  it('are posted as a form of one field, which both kinds of consumers can verify', async () => {
    await open();
    const { url } = await world.hook('a');
    await world.publish(events(3));
    await world.run('a batch', () => world.posts.length === 1);
    const [post] = world.posts;
    const [key = ''] = (await world.signingKeys.keysFor('acme', url)) ?? [];
    expect(post?.headers['Content-Type']).to.equal('application/x-www-form-urlencoded');
    const value = new URLSearchParams(post?.body).get('mandrill_events') ?? '';
    expect(value).to.equal(
      `[${events(3)
        .map(({ body }) => body)
        .join(',')}]`,
    );
    expect(post?.headers['X-Mandrill-Signature']).to.equal(mandrillSignature(key, url, { mandrill_events: value }));
    const { 'webhook-id': id = '', 'webhook-timestamp': at = '' } = post?.headers ?? {};
    expect(post?.headers['webhook-signature']).to.equal(
      standardSignature([key], id, Number(at), Buffer.from(post?.body ?? '')),
    );
  });

  it('are published without any webhook', async () => {
    await open();
    await world.publish(events(5));
    await world.hook('later');
    await world.clock.advance(5000);
    expect(world.posts).to.have.length(0);
  });

  it('arrive under the first id of their batch, with the same bytes, after an hour without answers', async () => {
    await open({ limits: { events: 100, bytes: 1_000_000 } });
    const { id, url } = await world.hook('a');
    world.answer(() => refused);
    const began = world.clock.now();
    await world.publish(events(1200));
    await world.run('the first attempts', () => world.posts.length > 3, 5000);
    await world.run('an hour', () => world.clock.now() - began > 60 * MINUTE, MINUTE);
    expect(new Set(world.posts.map(({ headers }) => headers['webhook-id'])).size, 'open batches').to.equal(4);
    expect(await world.tally(id)).to.deep.include({
      batches: 0,
      events: 0,
      sentAt: null,
      error: `POST to ${url} failed: connection refused`,
    });
    await world.restart();
    const tried = world.posts.length;
    world.answer(() => answered(200));
    await world.run('all of it', () => idsOf(world.posts.slice(tried)).length >= 1200, 5000);
    await world.settle('all counted', async () => (await world.tally(id))?.batches === 12);
    expect(await world.tally(id)).to.deep.include({ events: 1200, error: `POST to ${url} failed: connection refused` });
    expect(idsOf(world.posts.slice(tried)).toSorted()).to.deep.equal(idsFrom(1200).toSorted());
    const byId = Map.groupBy(world.posts, ({ headers }) => headers['webhook-id']);
    expect(byId.size).to.equal(12);
    for (const [, posts] of byId)
      expect(new Set(posts.map(({ body }) => body)).size, 'retries with other bytes').to.equal(1);
  });

  it('are not blocked by a batch that fails while others succeed', async () => {
    await open({ limits: { events: 10, bytes: 1_000_000 } });
    await world.hook('a');
    world.answer(({ ids }) => answered(ids.includes('m0') ? 500 : 200));
    await world.publish(events(200));
    await world.run(
      'all others',
      () => new Set(idsOf(world.posts.filter(({ ids }) => !ids.includes('m0')))).size === 190,
      5000,
    );
  });

  it('are not slowed down by another webhook that hangs', async () => {
    await open({ limits: { events: 10, bytes: 1_000_000 } });
    const slow = await world.hook('slow');
    const quick = await world.hook('quick');
    const hanging: ((result: AttemptResult) => void)[] = [];
    world.answer(({ url }) =>
      url === slow.url
        ? new Promise((resolve) => {
            hanging.push(resolve);
          })
        : answered(200),
    );
    await world.publish(events(500));
    await world.settle('all to the quick one', () => idsOf(world.postsTo(quick.url)).length === 500);
    expect(world.postsTo(slow.url).length).to.be.within(1, 4);
    world.answer(() => answered(200));
    for (const release of hanging) release(answered(200));
    await world.run('all to the slow one', () => new Set(idsOf(world.postsTo(slow.url))).size === 500);
  });

  it('wait while the endpoint answers 410, and are delivered when it is back', async () => {
    await open();
    const { url } = await world.hook('a');
    world.answer(() => answered(410, 'gone'));
    await world.publish(events(3));
    await world.run('the pause', () => world.log.of('endpoint.paused').length === 1);
    world.answer(() => answered(200));
    await world.run('the next day', () => world.postsTo(url).length === 2, 60 * MINUTE);
  });

  it('are counted in the store by the next process, if this one could not', async () => {
    await open();
    const { id } = await world.hook('a');
    await world.publish(events(3));
    await world.run('the batch', () => world.posts.length === 1);
    await world.settle('the numbers', async () => (await world.tally(id))?.batches === 1);
    const [row] = await world.store.webhookTallies.many({ webhook: id });
    await world.store.webhookTallies.remove({ id: row?.id ?? '' });
    await world.restart();
    expect(await world.tally(id)).to.deep.include({ batches: 1, events: 3 });
    await world.restart();
    expect(await world.store.webhookTallies.many({ webhook: id })).to.have.length(1);
    expect(await world.tally(id)).to.deep.include({ batches: 1, events: 3 });
  });
});
