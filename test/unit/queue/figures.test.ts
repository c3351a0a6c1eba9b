import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { readScrape } from '../../support/metrics.ts';
import { mail, openOne, put, settled, spoolSettings } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';

const HOUR = 3_600_000;

async function start(dir?: string) {
  const folder = dir ?? (await tempDir());
  const clock = createTestClock();
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  const spool = await openOne(folder, { clock, log: createTestLog(), metrics });
  return { dir: folder, clock, spool, read: async () => readScrape(await metrics.text()) };
}

describe('the metrics of the queue', () => {
  it('show waiting mail by endpoint, results, and the age of the oldest', async () => {
    const { clock, spool, read } = await start();
    expect((await read()).of('postern_spool_oldest_waiting_seconds')).to.equal(0);
    const [first, second] = [await put(spool, clock), await put(spool, clock)];
    await clock.advance(HOUR);
    const out = await put(spool, clock, { kind: 'outbound', url: 'smtp://example.org' });
    await put(spool, clock, { kind: 'return', task: 'read', url: 'return:' });
    await clock.advance(HOUR);
    const before = await read();
    expect(
      ['webhook', 'outbound', 'return'].map((endpoint) => before.of(`postern_spool_waiting{endpoint="${endpoint}"}`)),
    ).to.deep.equal([2, 1, 1]);
    expect(before.of('postern_spool_oldest_waiting_seconds')).to.equal(7200);
    await spool.settle(settled(clock, first.delivery));
    await spool.settle(settled(clock, second.delivery, { state: 'dead' }));
    await spool.drop({ ids: [out.delivery.id] }, clock.now());
    await clock.advance(60_000); // what ended is not counted at every scrape
    const { of } = await read();
    expect(
      ['waiting', 'delivered', 'dead', 'dropped'].map((state) => of(`postern_spool_deliveries{state="${state}"}`)),
    ).to.deep.equal([1, 1, 1, 1]);
    expect(of('postern_spool_oldest_waiting_seconds')).to.equal(3660);
  });

  it('count a replayed delivery from its replay on, and exclude scheduled ones', async () => {
    const { clock, spool, read } = await start();
    const dead = await put(spool, clock);
    await spool.settle(settled(clock, dead.delivery, { state: 'dead' }));
    const later = mail(clock, { url: 'smtp://example.org' });
    await spool.accept(
      later.message,
      later.deliveries.map((one) => ({ ...one, notBefore: clock.now() + 10 * HOUR })),
    );
    await clock.advance(HOUR);
    expect((await read()).of('postern_spool_oldest_waiting_seconds')).to.equal(0);
    await spool.replay({ ids: [dead.delivery.id] }, clock.now());
    await clock.advance(1000);
    expect((await read()).of('postern_spool_oldest_waiting_seconds')).to.equal(1);
  });

  it('are correct after a restart', async () => {
    const one = await start();
    for (let i = 0; i < 3; i++) await put(one.spool, one.clock);
    await one.spool.settle(settled(one.clock, (await put(one.spool, one.clock)).delivery));
    await one.spool.close();
    const { of } = await (await start(one.dir)).read();
    expect([
      of('postern_spool_waiting{endpoint="webhook"}'),
      of('postern_spool_deliveries{state="delivered"}'),
    ]).to.deep.equal([3, 1]);
  });

  it('show the disk space, and whether mail is accepted', async () => {
    const { read } = await start();
    const { of } = await read();
    expect(of('postern_spool_disk_bytes')).to.be.greaterThan(of('postern_spool_disk_free_bytes'));
    expect([of('postern_spool_disk_free_bytes') > 0, of('postern_spool_accepts_mail')]).to.deep.equal([true, 1]);
    const full = await tempDir();
    const clock = createTestClock();
    const metrics = createPrometheus({ clock }, { ofProcess: false });
    await openOne(
      full,
      { clock, log: createTestLog(), metrics },
      { ...spoolSettings(full), minFreeBytes: Number.MAX_SAFE_INTEGER },
    );
    expect(readScrape(await metrics.text()).of('postern_spool_accepts_mail')).to.equal(0);
  });

  it('count commits with their writes: concurrent writes share a commit', async () => {
    const { clock, spool, read } = await start();
    await Promise.all(Array.from({ length: 5 }, () => put(spool, clock)));
    const { of } = await read();
    expect(of('postern_spool_commit_messages_sum')).to.equal(5);
    expect(of('postern_spool_commit_writes_sum')).to.equal(5);
    expect(of('postern_spool_commit_seconds_count'))
      .to.equal(of('postern_spool_commit_writes_count'))
      .and.to.be.lessThan(5);
    expect(of('postern_spool_commit_seconds_sum')).to.be.greaterThan(0);
  });

  it('use an index for the oldest, and counters for ended ones, so that a million rows do not matter', async () => {
    const { dir, clock, spool } = await start();
    await put(spool, clock);
    await spool.close();
    const db = new DatabaseSync(join(dir, 'spool.db'), { readOnly: true });
    const plan = (sql: string) =>
      db
        .prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map(({ detail }) => String(detail))
        .join('; ');
    expect(
      plan('SELECT min(budget_from) AS since FROM deliveries INDEXED BY deliveries_since WHERE state = 0'),
    ).to.match(/^SEARCH deliveries USING (?:COVERING )?INDEX deliveries_since$/);
    expect(
      plan('SELECT state, count(*) AS n FROM deliveries INDEXED BY deliveries_ended WHERE state > 0 GROUP BY state'),
    )
      .to.match(/USING COVERING INDEX deliveries_ended/)
      .and.not.to.match(/TEMP/);
    db.close();
  });
});
