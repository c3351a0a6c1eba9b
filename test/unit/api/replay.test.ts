import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import type { History } from '../../../src/journal/history.ts';
import { createKey } from '../../../src/store/rows/accounts.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { clockAt } from '../../support/clock.ts';
import { attempt, put, settled } from '../../support/spool.ts';
import { until } from '../../support/until.ts';

const URL_A = 'https://app.example.com/a';
const URL_B = 'https://app.example.com/b';
const NOON = Date.UTC(2026, 0, 5, 12);
/** More than one call replays. */
const MANY = 1205;

/** Mail of one millisecond that was given up after an answer. */
async function putDead(
  world: ApiWorld,
  count: number,
  options: { account?: string; status?: number; url?: string } = {},
) {
  const { account = ACCOUNT, status = 500, url = URL_A } = options;
  const clock = clockAt(NOON - 60_000);
  const ids = Array.from(
    { length: count },
    (_, i) => `01kcdead${account.slice(0, 4)}${url.slice(-1)}${status}${String(i).padStart(10, '0')}`,
  );
  const all = await Promise.all(
    ids.map(async (id) => {
      const { delivery } = await put(world.spool, clock, { id, account, url, recipients: ['box@in.test'] });
      await world.spool.settle(settled(clock, delivery, { state: 'dead', attempt: attempt(clock, status) }));
      return delivery.id;
    }),
  );
  await world.journal.flush();
  return all;
}

describe('replays of search results', function () {
  this.timeout(60_000);
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi({ journal: true });
  });
  afterEach(() => world.stop());
  const replay = async (params: object) => (await world.call('/inbound/replay', params)).body;
  const states = async () => await world.spool.count({ account: ACCOUNT });

  it('replay the messages that still exist, and count deleted ones', async () => {
    const [first = ''] = await putDead(world, 3);
    await putDead(world, 2, { status: 404 });
    await putDead(world, 2, { account: OTHER_ACCOUNT });
    await world.spool.replay({ ids: [first] }, world.clock.now());
    await world.spool.drop({ ids: [first] }, world.clock.now());
    await world.journal.flush();
    expect(await replay({ status: '5xx', dry_run: true })).to.include({ matched: 2, forgotten: 0 });
    expect(await replay({ url: URL_A, dry_run: true })).to.include({ matched: 4, forgotten: 0 });
    // The purge deletes in the queue what ended before; the history keeps it.
    await world.spool.replay({ account: ACCOUNT, states: ['dropped'] }, world.clock.now());
    await world.spool.purge({ deliveredBefore: 0, deadBefore: NOON + 1, deliveredBytes: 1e12 });
    await world.journal.flush();
    expect(await replay({ query: 'state:dead' })).to.deep.equal({ matched: 0, forgotten: 4, replayed: 0, job: null });
    const [mail] = (await world.call('/inbound/search', { query: 'status:404' })).body.mails;
    expect(mail).to.include({ state: 'dead', kept: false });
    const { body } = await world.call('/inbound/info', { id: mail.id });
    expect(body.deliveries).to.deep.equal([]);
    expect(body.timeline.map(({ kind }: { kind: string }) => kind)).to.deep.equal(['accepted', 'attempt', 'given_up']);
  });

  it('exclude named endpoints', async () => {
    await putDead(world, 2);
    await putDead(world, 1, { url: URL_B });
    expect(await replay({ query: 'state:dead', dry_run: true })).to.include({ matched: 3 });
    expect(await replay({ query: 'state:dead', except_urls: [URL_A], dry_run: true })).to.include({ matched: 1 });
    expect(await replay({ query: 'state:dead', except_urls: [URL_A] })).to.include({ matched: 1, replayed: 1 });
    expect((await states()).waiting).to.equal(1);
    const { message } = await replay({ url: URL_A, except_urls: [URL_B] });
    expect(message).to.contain('Please enter a query or a status with it');
  });

  it('change nothing if more match than confirmed', async () => {
    await putDead(world, 3);
    for (const params of [{ url: URL_A }, { query: 'state:dead' }]) {
      const { status, body } = await world.call('/inbound/replay', { ...params, at_most: 2 });
      expect(status).to.equal(422);
      expect(body.message).to.contain('3 deliveries match now (limit 2); nothing was replayed');
    }
    expect(await states()).to.include({ waiting: 0, dead: 3 });
    expect(await replay({ url: URL_A, at_most: 3 })).to.include({ matched: 3, replayed: 3 });
  });

  it('can be grouped by cause first', async () => {
    await putDead(world, 3);
    await putDead(world, 2, { status: 404 });
    await putDead(world, 1, { url: URL_B });
    await putDead(world, 2, { account: OTHER_ACCOUNT });
    const { count, causes } = (await world.call('/inbound/causes', { query: 'state:dead' })).body;
    expect(count).to.equal(6);
    const short = causes.map(({ url, last_status, count }: Record<string, unknown>) => [url, last_status, count]);
    expect(short).to.deep.equal([
      [URL_A, 500, 3],
      [URL_A, 404, 2],
      [URL_B, 500, 1],
    ]);
    expect((await world.call('/inbound/causes', { query: 'status:404' })).body.count).to.equal(2);
    expect((await world.call('/inbound/causes', { query: 'state:delivered' })).body).to.deep.equal({
      count: 0,
      causes: [],
    });
  });

  for (const [name, params] of [
    ['a search', { query: 'status:5xx' }],
    ['the queue', { url: URL_A }],
  ] as const)
    it(`run as a job above a thousand, selected by ${name}`, async () => {
      await putDead(world, MANY);
      await putDead(world, 1, { account: OTHER_ACCOUNT });
      expect(await replay({ ...params, dry_run: true })).to.deep.equal({
        matched: MANY,
        forgotten: 0,
        replayed: 0,
        job: null,
      });
      expect((await states()).waiting).to.equal(0);
      const answer = await replay(params);
      expect(answer).to.include({ matched: MANY, replayed: 0 });
      const info = await until('the job is done', async () => {
        const { body } = await world.call('/jobs/info', { id: answer.job });
        expect(body.done).to.be.within(0, MANY);
        return body.state === 'done' && body;
      });
      expect(info).to.deep.equal({ id: answer.job, state: 'done', done: MANY, of: MANY, error: null });
      expect(await states()).to.include({ waiting: MANY, dead: 0 });
      expect((await world.spool.count({ account: OTHER_ACCOUNT })).waiting).to.equal(0);
      expect((await world.call('/jobs/info', { id: answer.job, key: OTHER_KEY })).body.name).to.equal('Unknown_Job');
      await world.journal.flush();
      const { actions } = (await world.call('/actions/list')).body;
      expect(actions.map(({ what, count, by }: any) => [what, count, by])).to.deep.equal([
        ['replayed', MANY, KEY.slice(0, 4)],
        ['replay started', MANY, KEY.slice(0, 4)],
      ]);
    });

  it('run one job of an account at a time', async () => {
    await putDead(world, MANY);
    const [{ body: first }, second] = await Promise.all([
      world.call('/inbound/replay', { url: URL_A }),
      world.call('/inbound/replay', { url: URL_A }),
    ]);
    const refused = [first, second.body].find(({ name }) => name !== undefined);
    expect(refused).to.include({ name: 'RequestLimitExceeded' });
    const job = first.job ?? second.body.job;
    await until('the job is done', async () => (await world.call('/jobs/info', { id: job })).body.state === 'done');
    expect(await replay({ url: URL_A })).to.include({ matched: 0, job: null });
  });

  it('report how to continue a failed job', async () => {
    await putDead(world, MANY);
    const { replay: real } = world.spool;
    let calls = 0;
    Object.assign(world.spool, {
      replay: (...args: Parameters<typeof real>) =>
        ++calls > 1 ? Promise.reject(new Error('the disk is on fire')) : real(...args),
    });
    const { job } = await replay({ query: 'status:500' });
    const info = await until('it has failed', async () => {
      const { body } = await world.call('/jobs/info', { id: job });
      return body.state === 'failed' && body;
    });
    expect(info).to.include({ done: 500, of: MANY });
    expect(info.error).to.contain('Make the same call again').and.not.to.contain('fire');
    Object.assign(world.spool, { replay: real });
    await world.journal.flush();
    expect(await replay({ query: 'status:500' }), 'what was done is left out').to.include({ matched: MANY - 500 });
  });

  it('are reported as interrupted if the process ended during the job', async () => {
    const action = { at: NOON, by: 'Exam', account: ACCOUNT, what: 'replay started', count: 2000 };
    for (let i = 0; i < 300; i++) {
      if (i === 5) world.journal.note({ what: 'action', action: { ...action, detail: 'job 01kcgone: status 500' } });
      world.journal.note({ what: 'action', action: { ...action, what: 'replayed', detail: `id ${i}` } });
    }
    await world.journal.flush();
    const { body } = await world.call('/jobs/info', { id: '01kcgone' });
    expect(body).to.include({ state: 'interrupted', done: null, of: 2000 });
    expect(body.error).to.contain('Make the same call again');
    expect((await world.call('/jobs/info', { id: '01kc' })).body.name).to.equal('Unknown_Job');
  });

  it('stop with the process between two steps', async () => {
    await putDead(world, MANY);
    const { replay: real } = world.spool;
    const [begun, stopped] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    Object.assign(world.spool, {
      async replay(...args: Parameters<typeof real>) {
        begun.resolve();
        await stopped.promise;
        return real(...args);
      },
    });
    await replay({ url: URL_A });
    await begun.promise;
    const stopping = world.api.stop();
    stopped.resolve();
    await stopping;
    expect(await states()).to.include({ waiting: 500, dead: MANY - 500 });
    expect(world.log.of('api.fault')).to.deep.equal([]);
  });
});

describe('queries of the history', () => {
  it('page through rows of the same time without skipping one', async () => {
    const world = await startApi({ journal: true });
    const ids = await putDead(world, 25);
    const seen: string[] = [];
    for (let before: number | null = 0; before !== null; ) {
      const { body } = await world.call('/inbound/search', { limit: 4, before });
      seen.push(...body.mails.map(({ id }: { id: string }) => id));
      before = body.next;
    }
    expect(seen.toSorted()).to.deep.equal(ids.toSorted());
    await world.stop();
  });

  it('are limited to four at a time per account and twenty in all', async () => {
    const waiting: (() => void)[] = [];
    const mail: History['mail'] = () => new Promise((resolve) => waiting.push(() => resolve({ rows: [], next: null })));
    const never = () => Promise.reject(new Error('not asked here'));
    const history: History = {
      mail,
      async *ids() {},
      causes: never,
      one: never,
      refusals: never,
      refusalsByReason: never,
      actions: never,
      byAccount: never,
    };
    const world = await startApi({ deps: { history } });
    const keys = [KEY];
    for (const [i, id] of ['a', 'b', 'c', 'd', 'e'].entries()) {
      await world.store.accounts.insert({ id, name: id, number: 10 + i, createdAt: new Date(NOON) });
      keys.push(await createKey(world.store, id, id, { clock: world.clock, ids: createIds(world.clock) }));
    }
    const ask = (key: string) => world.call('/inbound/search', { key });
    const refused = async (key: string) => {
      const { status, body, headers } = await ask(key);
      expect({ status, name: body.name }).to.deep.equal({ status: 429, name: 'RequestLimitExceeded' });
      expect(headers.get('retry-after')).to.equal('1');
    };
    const [first = '', ...others] = keys;
    const last = others.pop() ?? '';
    const asked = [first, first, first, first].map(ask);
    await until('four are asked', () => waiting.length === 4);
    await refused(first);
    asked.push(...others.flatMap((key) => [ask(key), ask(key), ask(key), ask(key)]));
    await until('twenty are asked', () => waiting.length === 20);
    await refused(last);
    for (const answer of waiting) answer();
    for (const { status } of await Promise.all(asked)) expect(status).to.equal(200);
    const again = ask(first);
    await until('there is room again', () => waiting.length === 21);
    waiting.at(-1)?.();
    expect((await again).status).to.equal(200);
    await world.stop();
  });

  it('return ServiceUnavailable while the history is unavailable; replays still work', async () => {
    const world = await startApi(); // its journal is not started
    await putDead(world, 1);
    for (const [path, params] of [
      ['/inbound/search', {}],
      ['/inbound/info', { id: 'x' }],
      ['/inbound/refusals', {}],
      ['/inbound/replay', { query: 'x' }],
      ['/actions/list', {}],
      ['/jobs/info', { id: 'x' }],
    ] as const) {
      const { status, body } = await world.call(path, params);
      expect({ status, name: body.name }, path).to.deep.equal({ status: 503, name: 'ServiceUnavailable' });
    }
    expect(world.log.of('api.fault')).to.deep.equal([]);
    expect((await world.call('/inbound/replay', { url: URL_A })).body).to.include({ replayed: 1 });
    await world.stop();
  });
});
