import { expect } from 'chai';
import { hourlyQuota, NO_COUNTS, reputationOf } from '../../../src/mail/stats.ts';
import { createSendingQuota } from '../../../src/sending/sending-quota.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { counterId } from '../../../src/store/rows/counters.ts';
import type { Store } from '../../../src/store/store.ts';
import { createSureTime } from '../../support/clock.ts';
import { putCounts } from '../../support/counts.ts';
import { subaccountRow } from '../../support/lists.ts';
import { PLAIN_OUTGOING } from '../../support/messages.ts';
import { openTestStore } from '../../support/store.ts';

const ACCOUNT = 'acme';
const NOON = Date.UTC(2026, 0, 5, 12);
const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000];
/** What an account may send in an hour that has sent nothing yet (mail/stats.ts). */
const FIRST_QUOTA = 250;

describe('the release of outgoing mail', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  /** Asks at any time: the time that mail has waited follows. */
  function leaving(quota = true, other: Partial<Store> = {}, jitter = () => 0) {
    let present = NOON;
    const time = createSureTime({ now: () => present });
    const part = createSendingQuota({ quota }, { store: { ...store, ...other }, ids: { jitter }, time });
    const mayLeave: typeof part.mayLeave = (account, outgoing, queuedAt, now) => {
      present = now;
      return part.mayLeave(account, outgoing, queuedAt, now);
    };
    return { ...part, mayLeave };
  }
  const of = (subaccount: string) => ({ ...PLAIN_OUTGOING, subaccount });
  /** How many of `count` may leave at `now`. */
  async function letGo(
    part: ReturnType<typeof leaving>,
    outgoing: typeof PLAIN_OUTGOING,
    count: number,
    now: number,
  ): Promise<number> {
    const said = await Promise.all(Array.from({ length: count }, () => part.mayLeave(ACCOUNT, outgoing, now, now)));
    return said.filter(({ kind }) => kind === 'now').length;
  }

  it('is immediate by default', async () => {
    expect(await leaving().mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON)).to.deep.equal({ kind: 'now' });
  });

  it('allows exactly the hourly quota of the account, for any number of concurrent requests', async () => {
    const part = leaving();
    expect(await letGo(part, PLAIN_OUTGOING, 400, NOON)).to.equal(FIRST_QUOTA);
    expect(await letGo(part, PLAIN_OUTGOING, 10, NOON + SECOND)).to.equal(0);
    const other = await part.mayLeave('another', PLAIN_OUTGOING, NOON, NOON + SECOND);
    expect(other.kind, 'another account has a quota of its own').to.equal('now');
  });

  it('counts earlier mail, of this host or another, and frees the quota as an hour passes', async () => {
    for (const [sent, ago] of [
      [100, 61 * MINUTE],
      [30, 60 * MINUTE],
      [40, 30 * MINUTE],
      [50, 0],
    ] as const) {
      await putCounts(store, ACCOUNT, 'account', ACCOUNT, { sent }, new Date(NOON - ago));
    }
    const months = { ...NO_COUNTS, sent: 220 };
    const quota = hourlyQuota(reputationOf(months), months);
    const part = leaving();
    const first = await letGo(part, PLAIN_OUTGOING, 2000, NOON + 10 * SECOND);
    expect(first, 'to the minute').to.equal(quota - 30 - 40 - 50);
    // The counters have got what was let go.
    await store.counters.change(
      { account: ACCOUNT, kind: 'account', span: 'minute', key: ACCOUNT, start: new Date(NOON) },
      { sent: 50 + first },
    );
    expect(await letGo(part, PLAIN_OUTGOING, 2000, NOON + 40 * SECOND)).to.equal(0);
    expect(await letGo(part, PLAIN_OUTGOING, 2000, NOON + MINUTE - 1)).to.equal(0);
    expect(await letGo(part, PLAIN_OUTGOING, 2000, NOON + MINUTE), 'a minute that is an hour ago').to.equal(30);
    const minute = new Date(NOON + MINUTE);
    const of = { account: ACCOUNT, kind: 'account', span: 'minute', key: ACCOUNT, start: minute } as const;
    await store.counters.insert({
      ...NO_COUNTS,
      ...of,
      id: counterId(ACCOUNT, 'account', 'minute', minute, ACCOUNT),
      firstAt: minute,
      sent: 30,
    });
    const late = await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON + 25 * MINUTE);
    expect(late.kind === 'later' && late.at, 'when the next ones are, and a while for those who wait').to.be.within(
      NOON + 31 * MINUTE,
      NOON + 35 * MINUTE,
    );
    expect(await letGo(part, PLAIN_OUTGOING, 2000, NOON + 31 * MINUTE)).to.equal(40);
  });

  it('limits a subaccount to its own quota, and not the rest of the account', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { customQuota: 5 }));
    const part = leaving();
    expect(await letGo(part, of('cust'), 20, NOON)).to.equal(5);
    expect(await letGo(part, PLAIN_OUTGOING, 20, NOON)).to.equal(20);
  });

  it('does not count mail held back by its subaccount', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { customQuota: 5 }));
    const part = leaving();
    await letGo(part, of('cust'), 1000, NOON);
    expect(await letGo(part, PLAIN_OUTGOING, 1000, NOON)).to.equal(FIRST_QUOTA - 5);
  });

  it('applies only set quotas when it is disabled', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'free'));
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { customQuota: 5 }));
    const part = leaving(false);
    expect(await letGo(part, PLAIN_OUTGOING, 1000, NOON)).to.equal(1000);
    expect(await letGo(part, of('free'), 1000, NOON)).to.equal(1000);
    expect(await letGo(part, of('cust'), 1000, NOON)).to.equal(5);
  });

  it('delays mail above the quota, and sends all of it in the end', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { customQuota: 30 }));
    const part = leaving(true, {}, () => 0.5);
    const waiting = Array.from({ length: 100 }, () => NOON);
    const left: number[] = [];
    while (waiting.length > 0) {
      const now = waiting.sort((a, b) => b - a).pop() ?? 0;
      const said = await part.mayLeave(ACCOUNT, of('cust'), NOON, now);
      if (said.kind === 'later') {
        expect(said.at)
          .to.be.greaterThan(now)
          .and.at.most(now + 30 * MINUTE);
        waiting.push(said.at);
      } else {
        left.push(now);
        // As the reporter would, soon afterwards.
        const minute = Math.floor(now / MINUTE);
        await store.counters.add(`cust ${minute}`, { sent: 1 }, counter('cust', new Date(minute * MINUTE)));
      }
    }
    expect(left).to.have.length(100);
    for (const from of left)
      expect(left.filter((at) => at >= from && at < from + HOUR).length, 'in any 60 minutes').to.be.at.most(30);
    expect(left.at(-1)).to.be.below(NOON + 4.5 * HOUR);
  });

  it('applies a quota that the account raises', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { customQuota: 1 }));
    const part = leaving();
    expect(await letGo(part, of('cust'), 5, NOON)).to.equal(1);
    await store.subaccounts.change({ account: ACCOUNT, slug: 'cust' }, { customQuota: 3 });
    expect(await letGo(part, of('cust'), 5, NOON + 10 * SECOND)).to.equal(2);
  });

  it('holds mail of a paused subaccount, checks every minute, and releases it on resume', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { status: 'paused', pausedAt: new Date(NOON) }));
    const part = leaving(true, {}, () => 0.999);
    const later = await part.mayLeave(ACCOUNT, of('cust'), NOON, NOON + SECOND);
    if (later.kind !== 'later') throw new Error(later.kind);
    expect(later.at).to.be.within(NOON + 30 * SECOND, NOON + SECOND + MINUTE);
    expect(
      (await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON + SECOND)).kind,
      'other mail of the account',
    ).to.equal('now');
    await store.subaccounts.change({ account: ACCOUNT, slug: 'cust' }, { status: 'active', pausedAt: null });
    expect(await part.mayLeave(ACCOUNT, of('cust'), NOON, later.at)).to.deep.equal({ kind: 'now' });
  });

  it('fails mail after 3 days of pause, counted from the pause or from when it was queued', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { status: 'paused', pausedAt: new Date(NOON) }));
    const part = leaving();
    const never = { kind: 'never', reason: 'its subaccount was paused for 3 days' };
    expect((await part.mayLeave(ACCOUNT, of('cust'), NOON - 5 * DAY, NOON + 3 * DAY - 1)).kind).to.equal('later');
    expect(await part.mayLeave(ACCOUNT, of('cust'), NOON - 5 * DAY, NOON + 3 * DAY)).to.deep.equal(never);
    expect((await part.mayLeave(ACCOUNT, of('cust'), NOON + DAY, NOON + 3 * DAY)).kind).to.equal('later');
    const last = await part.mayLeave(ACCOUNT, of('cust'), NOON + DAY, NOON + 4 * DAY - 5);
    expect(last, 'it asks at the end of the third day').to.deep.equal({ kind: 'later', at: NOON + 4 * DAY });
    expect(await part.mayLeave(ACCOUNT, of('cust'), NOON + DAY, NOON + 4 * DAY)).to.deep.equal(never);
  });

  it('never sends for a deleted subaccount', async () => {
    expect(await leaving().mayLeave(ACCOUNT, of('gone'), NOON, NOON)).to.deep.equal({
      kind: 'never',
      reason: 'its subaccount was deleted',
    });
  });

  it('retries while the store is unavailable, and caches no failure', async () => {
    let away = true;
    const counters = {
      ...store.counters,
      many: (...args: Parameters<Store['counters']['many']>) =>
        away ? Promise.reject(new StoreAway('away')) : store.counters.many(...args),
    };
    const part = leaving(true, { counters });
    expect(await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON)).to.deep.equal({
      kind: 'later',
      at: NOON + 30 * SECOND,
    });
    away = false;
    expect((await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON)).kind).to.equal('now');
  });

  it('reads the store once in some seconds, not for every message', async () => {
    let reads = 0;
    const counters = {
      ...store.counters,
      many: (...args: Parameters<Store['counters']['many']>) => {
        reads++;
        return store.counters.many(...args);
      },
    };
    const part = leaving(true, { counters });
    for (let n = 0; n < 50; n++) await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON + n);
    expect(reads).to.equal(2);
    await part.mayLeave(ACCOUNT, PLAIN_OUTGOING, NOON, NOON + 6 * SECOND);
    expect(reads).to.equal(4);
  });

  it('checks less often when very many wait', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust', { status: 'paused', pausedAt: new Date(NOON) }));
    const part = leaving();
    const waits = async (now: number) => {
      const said = await part.mayLeave(ACCOUNT, of('cust'), NOON, now);
      return said.kind === 'later' ? said.at - now : 0;
    };
    for (let n = 0; n < 12_000; n++) await waits(NOON);
    expect(await waits(NOON + MINUTE)).to.equal(5 * MINUTE);
    expect(await waits(NOON + 2 * MINUTE), 'and more often again').to.equal(MINUTE / 2);
  });
});

function counter(key: string, start: Date) {
  return {
    account: ACCOUNT,
    kind: 'subaccount',
    span: 'minute',
    key,
    start,
    firstAt: start,
    sent: 0,
    hardBounces: 0,
    softBounces: 0,
    rejects: 0,
    complaints: 0,
    unsubs: 0,
    opens: 0,
    uniqueOpens: 0,
    clicks: 0,
    uniqueClicks: 0,
  } as const;
}
