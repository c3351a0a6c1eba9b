import { expect } from 'chai';
import type { DeliveryState } from '../../../src/queue/states.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_ACCOUNT, startApi } from '../../support/api.ts';
import { clockAt } from '../../support/clock.ts';
import { attempt, put, settled } from '../../support/spool.ts';
import { until } from '../../support/until.ts';

const URL_A = 'https://app.example.com/a';
const URL_B = 'https://app.example.com/b';
const NOON = Date.UTC(2026, 0, 5, 12);
/** More than one call retries. */
const MANY = 1205;

describe('retries of search results', function () {
  this.timeout(60_000);
  let world: ApiWorld;
  let made = 0;
  beforeEach(async () => {
    world = await startApi({ journal: true });
  });
  afterEach(() => world.stop());

  /** Mail that was answered with 500 and waits for an hour, or that ended. */
  async function putMail(count: number, state: DeliveryState, options: { account?: string; url?: string } = {}) {
    const { account = ACCOUNT, url = URL_A } = options;
    const clock = clockAt(NOON - 60_000);
    await Promise.all(
      Array.from({ length: count }, async () => {
        const id = `01kcmail${String(++made).padStart(18, '0')}`;
        const { delivery } = await put(world.spool, clock, { id, account, url, recipients: ['box@in.test'] });
        const dueAt = clock.now() + 3_600_000;
        await world.spool.settle({ ...settled(clock, delivery, { state, attempt: attempt(clock, 500) }), dueAt });
      }),
    );
    await world.journal.flush();
  }

  const retry = async (params: object) => (await world.call('/inbound/retry', params)).body;
  const dueNow = async (account = ACCOUNT) =>
    (await world.spool.list({ account, states: ['waiting'] }, 5000)).filter(({ dueAt }) => dueAt <= world.clock.now());

  it('count first, then make only waiting mail due, and record the actor', async () => {
    await putMail(3, 'waiting');
    await putMail(1, 'waiting', { url: URL_B });
    await putMail(2, 'waiting', { account: OTHER_ACCOUNT });
    for (const state of ['dead', 'delivered'] as const) await putMail(1, state);
    expect(await retry({ query: `url:${URL_A}`, dry_run: true })).to.deep.equal({ matched: 3, retried: 0, job: null });
    expect(await dueNow()).to.have.length(0);
    expect(await retry({ query: `url:${URL_A}`, at_most: 3 })).to.deep.equal({ matched: 3, retried: 3, job: null });
    expect((await dueNow()).map(({ url }) => url)).to.deep.equal([URL_A, URL_A, URL_A]);
    expect(await dueNow(OTHER_ACCOUNT)).to.have.length(0);
    expect(await world.spool.count({ account: ACCOUNT })).to.include({ waiting: 4, dead: 1, delivered: 1 });
    await world.journal.flush();
    const { actions } = (await world.call('/actions/list')).body;
    expect(actions.map(({ what, count, by }: any) => [what, count, by])).to.deep.equal([
      ['retried', 3, KEY.slice(0, 4)],
    ]);
  });

  it('select by id, by URL, by time, or all waiting mail', async () => {
    await putMail(2, 'waiting');
    await putMail(1, 'waiting', { url: URL_B });
    const [{ id }] = (await world.call('/inbound/search', { query: `url:${URL_B}` })).body.mails;
    expect(await retry({ id, dry_run: true })).to.include({ matched: 1 });
    expect(await retry({ ids: [id, 'nobody'], dry_run: true })).to.include({ matched: 1 });
    expect(await retry({ url: URL_A, dry_run: true })).to.include({ matched: 2 });
    expect(await retry({ status: '5xx', dry_run: true })).to.include({ matched: 3 });
    expect(await retry({ to: '2020-01-01', dry_run: true })).to.include({ matched: 0 });
    expect(await retry({ query: '*' })).to.deep.equal({ matched: 3, retried: 3, job: null });
  });

  it('change nothing if more match than confirmed, or without a selection', async () => {
    await putMail(3, 'waiting');
    const { status, body } = await world.call('/inbound/retry', { query: '*', at_most: 2 });
    expect(status).to.equal(422);
    expect(body.message).to.contain('3 deliveries match now (limit 2); nothing was retried');
    expect((await world.call('/inbound/retry', {})).status).to.equal(422);
    expect((await world.call('/inbound/retry', { query: 'state:dead' })).status).to.equal(422);
    expect(await dueNow()).to.have.length(0);
  });

  it('exclude pulled mail, whose lease would end', async () => {
    await putMail(2, 'waiting', { url: 'pull:mine' });
    await putMail(1, 'waiting');
    expect(await retry({ query: '*', dry_run: true })).to.include({ matched: 1 });
    expect(await retry({ from: '2020-01-01' })).to.include({ matched: 1, retried: 1 });
    expect((await dueNow()).map(({ url }) => url)).to.deep.equal([URL_A]);
  });

  it('run as a job if there are many', async () => {
    await putMail(MANY, 'waiting');
    const { matched, retried, job } = await retry({ query: '*', at_most: MANY });
    expect({ matched, retried }).to.deep.equal({ matched: MANY, retried: 0 });
    await until('the job to end', async () => (await world.call('/jobs/info', { id: job })).body.state === 'done');
    expect(await dueNow()).to.have.length(MANY);
  });
});
