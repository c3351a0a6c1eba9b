import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { postern } from '../support/command.ts';
import { createCaller, KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { type HostPort, message, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type How, type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

/** What waits while the one post is held that an endpoint may have. */
const ENV = { POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1' };
const FAST = 60_000;

const subjectsOf = (post: Received): string[] => eventsOf(post).map(({ msg }) => msg.subject);
const idsOf = (post: Received): string[] => eventsOf(post).map(({ _id }) => _id);

/** An endpoint that holds its first post until released; then `then` answers it and all others. */
function held(hook: Receiver, then: (post: Received) => How = () => ({ status: 200 })): { release(): void } {
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  hook.answer(async (request) => {
    if (postsOf([request]).length > 0) await released;
    return then(request);
  });
  return { release: () => release() };
}

async function send(smtp: HostPort, box: string, subjects: readonly string[], text?: string): Promise<void> {
  for (const subject of subjects)
    expect(await sendMail(smtp, { from: 'ada@example.org', to: `${box}@in.test` }, message(subject, text))).to.match(
      /^250/,
    );
}

const numbered = (count: number, from = 1): string[] => Array.from({ length: count }, (_, i) => `mail-${i + from}`);

describe('waiting messages of a route', function () {
  this.timeout(FAST);
  let running: TestDaemon;
  let hook: Receiver;
  let box = 0;
  before(async () => {
    running = await startDaemon(ENV);
    await running.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(() => running.stop());
  beforeEach(async () => {
    hook = await startReceiver();
  });
  afterEach(() => hook.stop());

  /** A route of its own for each test. */
  async function route(params: object = {}): Promise<{ id: string; box: string }> {
    const name = `box-${++box}`;
    const added = await running.api('/inbound/add-route', {
      domain: 'in.test',
      pattern: name,
      url: hook.url,
      ...params,
    });
    return { id: added.id, box: name };
  }
  /** Makes the endpoint hold a post of one message, with this number of messages waiting for it. */
  async function fill(name: string, count: number, text?: string): Promise<void> {
    await send(running.smtp, name, ['first']);
    await until('the first post', () => postsOf(hook.requests).length === 1);
    await send(running.smtp, name, numbered(count), text);
  }
  const deliveries = async (id: string): Promise<any[]> =>
    (await running.api('/inbound/deliveries', { route: id })).reverse();
  const delivered = (id: string, count: number) =>
    until(`${count} deliveries`, async () => {
      const all = await deliveries(id);
      return all.filter(({ state }) => state === 'delivered').length === count && all;
    });

  it('share a POST, up to the limit of the route, in order of arrival', async () => {
    const { id, box } = await route({ batch_events: 5 });
    const { release } = held(hook);
    await fill(box, 12);
    release();
    await delivered(id, 13);
    const posts = postsOf(hook.requests);
    expect(posts.map(subjectsOf)).to.have.deep.members([['first'], numbered(5), numbered(5, 6), numbered(2, 11)]);
  });

  it('keep the id of their delivery; the POST has an id of its own, which the history shows', async () => {
    const { id, box } = await route({ batch_events: 10 });
    const { release } = held(hook);
    await fill(box, 3);
    release();
    const [first, ...others] = await delivered(id, 4);
    const [single, shared] = postsOf(hook.requests);
    if (!single || !shared) throw new Error('two posts');
    expect([single.headers['webhook-id'], idsOf(single)]).to.deep.equal([first.id, [first.id]]);
    expect(idsOf(shared)).to.deep.equal(others.map((one) => one.id));
    expect(shared.headers['webhook-id']).to.match(/^batch-3-[\w-]{20}$/);
    expect(first.attempts[0].batch).to.equal(null);
    for (const { attempts } of others)
      expect(attempts.map(({ status, batch }: any) => [status, batch])).to.deep.equal([
        [200, shared.headers['webhook-id']],
      ]);
    const shown = await postern(['queue', 'show', others[0].id], { POSTERN_DATA_DIR: running.dir });
    expect(shown.out).to.contain(shared.headers['webhook-id']);
    const logged = () => running.log.of('delivery.delivered').map(({ fields }) => fields?.['batch']);
    await until('the log', () => logged().filter((batch) => batch === shared.headers['webhook-id']).length === 3);
  });

  it('follow a change of the route at once', async () => {
    const { id, box } = await route();
    const { release } = held(hook);
    await fill(box, 4);
    expect(await running.api('/inbound/update-route', { id, batch_events: 4 })).to.include({ batch_events: 4 });
    release();
    await delivered(id, 5);
    expect(postsOf(hook.requests).map((post) => eventsOf(post).length)).to.deep.equal([1, 4]);
  });

  for (const status of [500, 413]) {
    it(`are posted again one by one after ${status}, under their own ids`, async () => {
      const { id, box } = await route({ batch_events: 10 });
      const { release } = held(hook, (post) => ({ status: eventsOf(post).length > 1 ? status : 200 }));
      await fill(box, 4);
      release();
      const [, ...others] = await delivered(id, 5);
      const [, shared, ...singles] = postsOf(hook.requests);
      if (!shared) throw new Error('no shared post');
      expect(eventsOf(shared)).to.have.length(4);
      expect(singles.map((post) => eventsOf(post).length)).to.deep.equal([1, 1, 1, 1]);
      expect(singles.map((post) => post.headers['webhook-id'])).to.have.members(idsOf(shared));
      expect(singles.flatMap(idsOf)).to.have.members(idsOf(shared));
      for (const { attempts } of others)
        expect(attempts.map(({ status, batch }: any) => [status, batch])).to.deep.equal([
          [status, shared.headers['webhook-id']],
          [200, null],
        ]);
      // What comes next goes singly for a while: perhaps the endpoint takes nothing else.
      await send(running.smtp, box, numbered(3, 100));
      await delivered(id, 8);
      expect(
        postsOf(hook.requests)
          .slice(-3)
          .map((post) => eventsOf(post).length),
      ).to.deep.equal([1, 1, 1]);
    });
  }

  it('are one failure to the endpoint when their POST fails, and one attempt each in the numbers', async () => {
    const { id, box } = await route({ batch_events: 10 });
    const counted = async () => {
      const seen = await scrape(running.base);
      return {
        attempts: seen.sum('postern_attempts_total', { class: 'inbound' }),
        posts: seen.sum('postern_attempt_seconds_count', { class: 'inbound' }),
        batched: seen.sum('postern_batched_deliveries_total'),
      };
    };
    const before = await counted();
    const downs = running.log.of('endpoint.down').length;
    const { release } = held(hook, () => 'close');
    await fill(box, 8);
    release();
    await until('both failures', async () => (await deliveries(id)).every(({ attempts }) => attempts.length === 1));
    const after = await counted();
    expect(running.log.of('endpoint.down')).to.have.length(downs);
    expect([
      after.attempts - before.attempts,
      after.posts - before.posts,
      after.batched - before.batched,
    ]).to.deep.equal([9, 2, 8]);
  });

  it('are settled separately: one dropped during the POST stays dropped', async () => {
    const { id, box } = await route({ batch_events: 10 });
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    hook.answer(async (request) => {
      await gates[Math.min(postsOf([request]).length === 0 ? 2 : eventsOf(request).length - 1, 1)]?.promise;
      return { status: 200 };
    });
    await fill(box, 3);
    gates[0]?.resolve();
    const shared = await until('the shared post', () => postsOf(hook.requests)[1]);
    const [, dropped = ''] = idsOf(shared);
    expect(await postern(['queue', 'drop', dropped], { POSTERN_DATA_DIR: running.dir })).to.include({ code: 0 });
    gates[1]?.resolve();
    const all = await delivered(id, 3);
    expect(all.map(({ state }) => state)).to.deep.equal(['delivered', 'delivered', 'dropped', 'delivered']);
    expect(all[2].attempts.map(({ status }: any) => status)).to.deep.equal([200]);
  });

  it('go together to the new URL of their route', async () => {
    const { id, box } = await route({ batch_events: 10 });
    const other = await startReceiver();
    const { release } = held(hook);
    await fill(box, 3);
    await running.api('/inbound/update-route', { id, url: other.url });
    await until('the new URL has them', () => postsOf(other.requests).flatMap(eventsOf).length >= 3);
    release();
    await delivered(id, 4);
    expect(postsOf(other.requests).flatMap(subjectsOf)).to.include.members(numbered(3));
    await other.stop();
  });
});

describe('a crash while several messages are in one POST', function () {
  this.timeout(FAST);
  let hook: Receiver;
  let dir: string;
  let daemon: ChildDaemon;
  /** The POST that several messages shared, and that was never answered. */
  let lost: Received;

  beforeEach(async () => {
    hook = await startReceiver();
    dir = await tempDir();
    daemon = await spawnDaemon(dir, ENV);
    const { api } = createCaller(daemon.base, KEY);
    await api('/inbound/add-domain', { domain: 'in.test' });
    await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url, batch_events: 10 });
    const { release } = held(hook, (post) => (eventsOf(post).length > 1 ? 'hang' : { status: 200 }));
    await send(daemon.smtp, 'box', ['first']);
    await until('the first post', () => postsOf(hook.requests).length === 1);
    await send(daemon.smtp, 'box', numbered(4));
    release();
    lost = await until('the shared post', () => postsOf(hook.requests)[1]);
    expect(subjectsOf(lost)).to.deep.equal(numbered(4));
    await daemon.end('SIGKILL');
    hook.answer({ status: 200 });
  });
  afterEach(async () => {
    await daemon.end();
    await hook.stop();
  });

  const again = () => postsOf(hook.requests).slice(2);
  const arrived = (id: string) => again().some((post) => idsOf(post).includes(id));

  it('posts them again, each under its id', async () => {
    daemon = await spawnDaemon(dir, ENV);
    await until('all of them again', () => idsOf(lost).every(arrived));
    expect(again().flatMap(subjectsOf)).to.include.members(numbered(4));
  });

  it('fails the message whose bytes were damaged on the disk, and delivers the others', async () => {
    const [, damaged = '', ...others] = idsOf(lost);
    const db = new DatabaseSync(join(dir, 'spool', 'spool.db'));
    db.prepare('UPDATE messages SET bytes = zeroblob(length(bytes)) WHERE id = ?').run(damaged.slice(0, -13));
    db.close();
    daemon = await spawnDaemon(dir, ENV);
    await until('the others', () => others.every(arrived));
    const { api } = createCaller(daemon.base, KEY);
    const states = async () =>
      new Map((await api('/inbound/deliveries')).map(({ id, state }: any): [string, string] => [id, state]));
    await until('all to end', async () => ![...(await states()).values()].includes('waiting'));
    expect((await states()).get(damaged)).to.equal('dead');
    expect(arrived(damaged)).to.equal(false);
  });
});
