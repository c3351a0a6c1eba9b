import { expect } from 'chai';
import { attempt, freshSpool, put, settled } from '../../support/spool.ts';

describe('rescheduling on the spool', () => {
  it('moves deliveries without attempts, later or sooner, with their retry period, over a restart', async () => {
    const opened = await freshSpool();
    const { clock } = opened;
    const { delivery } = await put(opened.spool, clock);
    const at = clock.now() + 86_400_000;
    expect(await opened.spool.reschedule({ ids: [delivery.id] }, at)).to.equal(1);
    expect(await opened.spool.due('acme', delivery.url, at - 1, 10, [])).to.deep.equal([]);
    const spool = await opened.reopen();
    expect(await spool.delivery(delivery.id)).to.include({ dueAt: at, budgetFrom: at, state: 'waiting', attempts: 0 });
    expect(await spool.due('acme', delivery.url, at, 10, [])).to.have.length(1);
    expect(await spool.reschedule({ ids: [delivery.id] }, clock.now() + 1000)).to.equal(1);
    expect(await spool.due('acme', delivery.url, clock.now() + 1000, 10, [])).to.have.length(1);
  });

  it('does not change those with attempts, ended ones, and others', async () => {
    const { spool, clock } = await freshSpool();
    const [tried, ended, other] = [
      await put(spool, clock),
      await put(spool, clock),
      await put(spool, clock, { account: 'other' }),
    ];
    await spool.settle(
      settled(clock, tried.delivery, { state: 'waiting', dueAt: clock.now() + 5000, attempt: attempt(clock, 500) }),
    );
    await spool.settle(settled(clock, ended.delivery));
    expect(await spool.reschedule({ account: 'acme' }, clock.now() + 9000)).to.equal(0);
    expect((await spool.delivery(tried.delivery.id))?.dueAt).to.equal(clock.now() + 5000);
    expect((await spool.delivery(other.delivery.id))?.dueAt).to.equal(clock.now());
  });

  it('notifies listeners of deliveries', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    let heard = 0;
    spool.onChange(() => {
      heard++;
    });
    await spool.reschedule({ ids: [delivery.id] }, clock.now() + 9000);
    expect(heard).to.equal(1);
  });
});
