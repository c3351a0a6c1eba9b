import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { aDelivery } from '../../support/delivery.ts';
import { createBench, settleDown } from '../../support/dispatcher-bench.ts';

const URL = 'https://app.example.com/in';
const SENT = { thread: 't', record: { _id: 'x' } };

describe('the message that a reply answers, while the store is unavailable', () => {
  /** A bench on which looking up what mail answers takes the store. */
  async function open() {
    let isAway = true;
    const of = async () => {
      if (isAway) throw new StoreAway('away');
      return SENT;
    };
    const bench = await createBench({}, { answers: { of, shown: async () => null } });
    await bench.dispatcher.start();
    await bench.put([aDelivery(URL)]);
    await settleDown(bench);
    return { ...bench, back: () => (isAway = false) };
  }

  it('delays the post, without an attempt, until the store is back', async () => {
    const { clock, posts, jobs, back, rows } = await open();
    await clock.advance(60_000);
    expect(posts).to.deep.equal([]);
    expect((await rows())[0]).to.include({ state: 'waiting', attempts: 0 });
    back();
    await clock.advance(10_000);
    expect(posts).to.have.length(1);
    expect(jobs[0]?.mails[0]?.answers).to.deep.equal(SENT);
  });

  it('is omitted after ten minutes: null would mean that none was found', async () => {
    const { clock, posts, jobs } = await open();
    for (let n = 0; n < 59; n++) await clock.advance(10_000);
    expect(posts).to.deep.equal([]);
    for (let n = 0; n < 3; n++) await clock.advance(10_000);
    expect(posts).to.have.length(1);
    expect(jobs[0]?.mails[0]?.answers).to.equal(undefined);
  });
});
