import { expect } from 'chai';
import type { DeliveryState } from '../../../src/queue/states.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { clockAt } from '../../support/clock.ts';
import { attempt, put, settled } from '../../support/spool.ts';
import { until } from '../../support/until.ts';

const URL_A = 'https://app.example.com/a';
const URL_B = 'https://app.example.com/b';
const NOON = Date.UTC(2026, 0, 5, 12);
/** More than one call drops. */
const MANY = 1205;

describe('drops of search results', function () {
  this.timeout(60_000);
  let world: ApiWorld;
  let made = 0;
  beforeEach(async () => {
    world = await startApi({ journal: true });
  });
  afterEach(() => world.stop());

  /** Mail in a state; all but what is held was answered with 500. */
  async function putMail(count: number, state: DeliveryState, options: { account?: string; url?: string } = {}) {
    const { account = ACCOUNT, url = URL_A } = options;
    const clock = clockAt(NOON - 60_000);
    const all = await Promise.all(
      Array.from({ length: count }, async () => {
        const id = `01kcmail${String(++made).padStart(18, '0')}`;
        const fate = state === 'held' ? ({ state, note: 'held by route 1.1' } as const) : undefined;
        const { delivery } = await put(world.spool, clock, { id, account, url, recipients: ['box@in.test'], fate });
        if (!fate) await world.spool.settle(settled(clock, delivery, { state, attempt: attempt(clock, 500) }));
        return delivery.id;
      }),
    );
    await world.journal.flush();
    return all;
  }

  const drop = async (params: object) => (await world.call('/inbound/drop', params)).body;
  const states = (account = ACCOUNT) => world.spool.count({ account });
  const actions = async () => {
    await world.journal.flush();
    return (await world.call('/actions/list')).body.actions.map(({ what, count, by, detail }: any) => [
      ...[what, count, by, detail],
    ]);
  };

  it('count first, then drop only failed deliveries, and record the actor', async () => {
    await putMail(3, 'dead');
    await putMail(1, 'dead', { url: URL_B });
    for (const state of ['waiting', 'held', 'delivered'] as const) await putMail(1, state);
    await putMail(2, 'dead', { account: OTHER_ACCOUNT });
    expect(await drop({ url: URL_A, dry_run: true })).to.deep.equal({ matched: 3, dropped: 0, job: null });
    expect(await states()).to.include({ dead: 4, dropped: 0 });
    expect(await drop({ url: URL_A, at_most: 3 })).to.deep.equal({ matched: 3, dropped: 3, job: null });
    expect(await states()).to.deep.equal({ waiting: 1, delivered: 1, dead: 1, dropped: 3, held: 1 });
    expect(await states(OTHER_ACCOUNT)).to.include({ dead: 2, dropped: 0 });
    expect(await actions()).to.deep.equal([['dropped', 3, KEY.slice(0, 4), `url ${URL_A}`]]);
    const { mails } = (await world.call('/inbound/search', { query: 'state:dropped' })).body;
    expect(mails).to.have.length(3);
    const { timeline } = (await world.call('/inbound/info', { id: mails[0].id })).body;
    expect(timeline.at(-1)).to.include({ kind: 'dropped' });
  });

  it('can be undone by a replay', async () => {
    const [id] = await putMail(1, 'dead');
    expect(await drop({ id })).to.include({ dropped: 1 });
    expect((await world.call('/inbound/replay', { id })).body).to.include({ replayed: 1 });
    expect(await states()).to.include({ waiting: 1, dropped: 0 });
  });

  it('drop waiting and held deliveries by id, and keep delivered ones', async () => {
    const [waiting] = await putMail(1, 'waiting');
    const [held] = await putMail(1, 'held');
    const [delivered] = await putMail(1, 'delivered');
    expect(await drop({ ids: [waiting, held, delivered, 'unheard-of'] })).to.include({ matched: 2, dropped: 2 });
    expect(await drop({ id: delivered })).to.deep.equal({ matched: 0, dropped: 0, job: null });
    expect(await drop({ ids: [] })).to.deep.equal({ matched: 0, dropped: 0, job: null });
    expect(await states()).to.include({ waiting: 0, held: 0, delivered: 1, dropped: 2 });
    expect((await world.spool.waitingOf(ACCOUNT)).reduce((sum, one) => sum + one.waiting, 0)).to.equal(0);
  });

  it('drop held or waiting mail of a query, a state, a route or a time', async () => {
    for (const state of ['waiting', 'held', 'dead'] as const) await putMail(2, state);
    const dry = { dry_run: true };
    expect((await drop({ ...dry, query: 'state:held' })).matched).to.equal(2);
    expect((await drop({ ...dry, query: 'to:box state:held state:waiting' })).matched).to.equal(4);
    expect((await drop({ ...dry, query: '*' })).matched).to.equal(2);
    expect((await drop({ ...dry, status: '500', state: 'waiting' })).matched).to.equal(2);
    expect((await drop({ ...dry, from: '2026-01-05 11:00:00', state: 'held' })).matched).to.equal(2);
    expect((await drop({ ...dry, to: '2026-01-05 11:00:00', state: 'held' })).matched).to.equal(0);
    expect((await drop({ ...dry, url: URL_A, route: '9.9' })).matched).to.equal(0);
    expect((await drop({ ...dry, query: '*', except_urls: [URL_A] })).matched).to.equal(0);
    expect(await drop({ query: 'state:held', at_most: 2 })).to.include({ matched: 2, dropped: 2 });
    expect(await drop({ from: '2026-01-05 11:00:00', state: 'waiting', at_most: 2 })).to.include({ dropped: 2 });
    expect(await states()).to.include({ waiting: 0, held: 0, dead: 2, dropped: 4 });
  });

  it('drop nothing if more match than confirmed', async () => {
    const ids = await putMail(3, 'dead');
    for (const params of [{ url: URL_A }, { query: 'state:dead' }, { ids }]) {
      const { status, body } = await world.call('/inbound/drop', { ...params, at_most: 2 });
      expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
      expect(body.message).to.equal(
        'Validation error: {"at_most":"3 deliveries match now (limit 2); nothing was dropped"}',
      );
    }
    expect(await drop({ url: URL_B, at_most: 0 })).to.include({ matched: 0 });
    expect(await states()).to.include({ dead: 3, dropped: 0 });
    expect(await actions()).to.deep.equal([]);
  });

  it('drop no more than `at_most` if more arrive meanwhile', async () => {
    await putMail(3, 'dead');
    const { count } = world.spool;
    Object.assign(world.spool, {
      async count(...args: Parameters<typeof count>) {
        const counted = await count(...args);
        await putMail(1, 'dead');
        return counted;
      },
    });
    expect(await drop({ url: URL_A, at_most: 3 })).to.include({ matched: 3, dropped: 3 });
    Object.assign(world.spool, { count });
    expect(await states()).to.include({ dead: 1, dropped: 3 });
  });

  it('reject requests without a selection or a count, or with contradictions', async () => {
    const [id] = await putMail(1, 'dead');
    for (const [params, field, words] of [
      [{}, 'id', 'Please enter an id, ids, a query, a url, a status, or a time'],
      [{ route: '1.1', state: 'dead', at_most: 5 }, 'id', 'Please enter an id'],
      [{ url: URL_A }, 'at_most', 'the number that a call with dry_run counts'],
      [{ query: '*', dry_run: false }, 'at_most', 'Please enter how many may be dropped'],
      [{ url: URL_A, at_most: -1 }, 'at_most', ''],
      [{ url: URL_A, at_most: 1.5 }, 'at_most', ''],
      [{ url: URL_A, state: 'delivered', at_most: 1 }, 'state', ''],
      [{ query: 'state:dropped', at_most: 1 }, 'query', 'state: takes waiting, dead, held here'],
      [{ query: 'form:x', at_most: 1 }, 'query', ''],
      [{ status: '9', at_most: 1 }, 'status', ''],
      [{ id, query: '*' }, 'id', 'either ids, or a query or a status'],
      [{ url: URL_A, except_urls: [URL_B], at_most: 1 }, 'except_urls', 'Please enter a query or a status with it'],
      [
        { query: 'state:dead', state: 'dead', at_most: 1 },
        'state',
        'Please give state as a parameter or in the query, not both',
      ],
    ] as const) {
      const { status, body } = await world.call('/inbound/drop', params);
      expect(status, JSON.stringify(params)).to.equal(422);
      const faults = JSON.parse(body.message.slice('Validation error: '.length));
      expect(faults, JSON.stringify(params)).to.have.keys(field);
      expect(faults[field]).to.contain(words);
    }
    expect(await states()).to.include({ dead: 1, dropped: 0 });
  });

  for (const [name, params] of [
    ['a search', { query: 'status:5xx' }],
    ['the queue', { url: URL_A }],
  ] as const)
    it(`run as a job above a thousand, selected by ${name}`, async () => {
      await putMail(MANY, 'dead');
      await putMail(1, 'dead', { account: OTHER_ACCOUNT });
      expect(await drop({ ...params, dry_run: true })).to.deep.equal({ matched: MANY, dropped: 0, job: null });
      const answer = await drop({ ...params, at_most: MANY });
      expect(answer).to.include({ matched: MANY, dropped: 0 });
      const info = await until('the job is done', async () => {
        const { body } = await world.call('/jobs/info', { id: answer.job });
        return body.state === 'done' && body;
      });
      expect(info).to.deep.equal({ id: answer.job, state: 'done', done: MANY, of: MANY, error: null });
      expect(await states()).to.include({ dead: 0, dropped: MANY });
      expect(await states(OTHER_ACCOUNT)).to.include({ dead: 1, dropped: 0 });
      expect((await world.call('/jobs/info', { id: answer.job, key: OTHER_KEY })).body.name).to.equal('Unknown_Job');
      expect((await actions()).map(([what, count]: unknown[]) => [what, count])).to.deep.equal([
        ['dropped', MANY],
        ['drop started', MANY],
      ]);
    });

  it('are reported as interrupted if the process ended during the job', async () => {
    const action = { at: NOON, by: 'Exam', account: ACCOUNT, what: 'drop started', count: 2000 };
    world.journal.note({ what: 'action', action: { ...action, detail: 'job 01kcgone: status 500' } });
    await world.journal.flush();
    const { body } = await world.call('/jobs/info', { id: '01kcgone' });
    expect(body).to.include({ state: 'interrupted', done: null, of: 2000 });
  });
});
