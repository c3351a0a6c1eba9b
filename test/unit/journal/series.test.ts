import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import { createSeries, SERIES_NAMES, type SeriesName } from '../../../src/journal/series.ts';
import { afterTest } from '../../support/cleanup.ts';
import { createTestClock } from '../../support/clock.ts';
import { startJournal } from '../../support/journal.ts';
import { until } from '../../support/until.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOON = Date.UTC(2026, 0, 5, 12);

const open: { stop(): Promise<void> }[] = [];
afterTest(async () => {
  for (const one of open.splice(0)) await one.stop();
});

/** Series over a clock that the test moves, from the metrics that it counts. */
async function start({
  clock = createTestClock(),
  file,
}: {
  clock?: ReturnType<typeof createTestClock>;
  file?: string;
} = {}) {
  const journal = await startJournal(file === undefined ? {} : { file }, { clock });
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  const series = createSeries({
    figures: metrics,
    notes: journal.journal,
    ask: journal.journal.ask,
    clock,
    log: journal.log,
  });
  await series.start();
  open.unshift(series);
  const read = async (name: SeriesName, from: number, to: number, step: number) =>
    (await series.read([name], { from, to, step })).series[0]?.values;
  return {
    journal,
    metrics,
    series,
    clock,
    accepted: metrics.counter('postern_messages_accepted_total', { source: 'smtp' }),
    post: metrics.histogram('postern_attempt_seconds', { class: 'inbound' }),
    read,
    /** As `read`, once everything that was noted is written. */
    async written(name: SeriesName, from: number, to: number, step: number) {
      await journal.journal.flush();
      return read(name, from, to, step);
    },
  };
}

describe('the metrics history of a host', () => {
  it('counts events per ten seconds, with no values before its start', async () => {
    const { clock, accepted, read } = await start();
    accepted.add(3);
    await clock.advance(10 * SECOND);
    await clock.advance(10 * SECOND);
    accepted.add(2);
    await clock.advance(10 * SECOND);
    expect(await read('accepted', NOON - 20 * SECOND, NOON + 40 * SECOND, 10 * SECOND)).to.deep.equal([
      null,
      null,
      3,
      0,
      2,
      null,
    ]);
  });

  it('counts from its start only, ignoring earlier totals', async () => {
    const clock = createTestClock();
    const metrics = createPrometheus({ clock }, { ofProcess: false });
    metrics.counter('postern_messages_accepted_total', { source: 'smtp' }).add(100);
    const { journal } = await startJournal({}, { clock });
    const series = createSeries({
      figures: metrics,
      notes: journal,
      ask: journal.ask,
      clock,
      log: (await startJournal()).log,
    });
    await series.start();
    open.unshift(series);
    await clock.advance(10 * SECOND);
    const {
      series: [one],
    } = await series.read(['accepted'], { from: NOON, to: NOON + 10 * SECOND, step: 10 * SECOND });
    expect(one?.values).to.deep.equal([0]);
  });

  it('splits by label: refusals by code, webhook answers without those of mail servers', async () => {
    const { clock, metrics, series } = await start();
    const refuse = (code: string) =>
      metrics.counter('postern_smtp_refusals_total', { listener: 'smtp', code, reason: 'x' });
    refuse('450').add(2);
    refuse('550').add(5);
    refuse('554').add(1);
    const attempt = (of: string, code: string) =>
      metrics.counter('postern_attempts_total', { class: of, outcome: 'deferred', code });
    attempt('inbound', '5xx').add(4);
    attempt('events', '5xx').add(1);
    attempt('outbound', '5xx').add(70);
    attempt('inbound', '3xx').add(2);
    attempt('inbound', 'none').add(9);
    await clock.advance(10 * SECOND);
    const names = ['refused_4xx', 'refused_5xx', 'attempts_5xx', 'attempts_other', 'attempts_none'] as const;
    const plot = await series.read(names, { from: NOON, to: NOON + 10 * SECOND, step: 10 * SECOND });
    expect(plot.series.map(({ values }) => values[0])).to.deep.equal([2, 6, 5, 2, 9]);
  });

  it('shows attempt durations within a step: nothing without attempts', async () => {
    const { clock, post, read } = await start();
    for (let n = 0; n < 90; n++) post.observe(0.02);
    for (let n = 0; n < 10; n++) post.observe(0.4);
    await clock.advance(10 * SECOND);
    await clock.advance(10 * SECOND);
    const [p50, none] = (await read('attempt_p50', NOON, NOON + 20 * SECOND, 10 * SECOND)) ?? [];
    const [p95] = (await read('attempt_p95', NOON, NOON + 20 * SECOND, 10 * SECOND)) ?? [];
    expect(p50).to.be.within(10, 25);
    expect(p95).to.be.within(250, 500);
    expect(none).to.equal(null);
  });

  it('keeps an hour of ten-second steps', async () => {
    const { clock, accepted, read } = await start();
    accepted.add(7);
    await clock.advance(10 * SECOND);
    accepted.add(1);
    await clock.advance(HOUR);
    const steps = await read('accepted', NOON, NOON + HOUR + 10 * SECOND, 10 * SECOND);
    expect([steps?.length, steps?.[0], steps?.[1], steps?.[2]]).to.deep.equal([361, null, 1, 0]);
  });

  it('is written every minute: sums of counts, maxima of levels, the current minute included', async () => {
    const { clock, metrics, accepted, written } = await start();
    let waiting = 5;
    metrics.gauge('postern_spool_waiting', () => [[{ endpoint: 'webhook' }, waiting]]);
    let free = 900;
    metrics.gauge('postern_spool_disk_free_bytes', () => free);
    for (let n = 0; n < 6; n++) {
      accepted.add(n);
      if (n === 3) [waiting, free] = [50, 100];
      if (n === 4) [waiting, free] = [1, 800];
      await clock.advance(10 * SECOND);
    }
    accepted.add(4);
    await clock.advance(20 * SECOND);
    const range = [NOON, NOON + 2 * MINUTE, MINUTE] as const;
    expect(await written('accepted', ...range)).to.deep.equal([15, 4]);
    expect(await written('waiting', ...range)).to.deep.equal([50, 1]);
    expect(await written('disk_free', ...range)).to.deep.equal([100, 800]);
  });

  it('is merged into longer steps', async () => {
    const { clock, accepted, post, written } = await start();
    for (let n = 0; n < 10; n++) {
      accepted.add(n);
      post.observe(n === 7 ? 2 : 0.003);
      await clock.advance(MINUTE);
    }
    expect(await written('accepted', NOON, NOON + 10 * MINUTE, 5 * MINUTE)).to.deep.equal([10, 35]);
    const [first, second] = (await written('attempt_p95', NOON, NOON + 10 * MINUTE, 5 * MINUTE)) ?? [];
    expect(first).to.be.below(5);
    expect(second).to.be.above(1000);
  });

  it('survives a restart, without damaged entries', async () => {
    const before = await start();
    before.accepted.add(8);
    await before.clock.advance(2 * MINUTE);
    await before.journal.journal.flush();
    await before.series.stop();
    await before.journal.stop();
    const db = new DatabaseSync(before.journal.file);
    db.prepare('INSERT INTO minutes VALUES (?, ?), (?, ?)').run(
      NOON - MINUTE,
      'no JSON',
      NOON - 2 * MINUTE,
      '{"accepted":"x"}',
    );
    db.close();
    const after = await start({ clock: before.clock, file: before.journal.file });
    expect(await after.written('accepted', NOON - 2 * MINUTE, NOON + 2 * MINUTE, MINUTE)).to.deep.equal([
      null,
      null,
      8,
      0,
    ]);
  });

  it('is kept for 32 days', async () => {
    const clock = createTestClock();
    const { journal, file } = await startJournal({}, { clock });
    for (const days of [40, 33, 31, 1])
      journal.note({ what: 'minute', at: NOON - days * DAY, figures: `{"accepted":${days}}` });
    await journal.flush();
    await until('old ones are forgotten', async () => {
      await clock.advance(MINUTE);
      const db = new DatabaseSync(file, { readOnly: true });
      const kept = db
        .prepare('SELECT figures FROM minutes ORDER BY at')
        .all()
        .map(({ figures }) => figures);
      db.close();
      return kept.length === 2 && kept[0] === '{"accepted":31}';
    });
  });

  it('reads a month in steps without delaying others', async () => {
    const { journal, clock, written } = await start();
    const all = Object.fromEntries(SERIES_NAMES.map((name, i) => [name, 1000 + i]));
    for (let n = 1; n <= 32 * 24 * 60; n++) {
      journal.journal.note({ what: 'minute', at: NOON - n * MINUTE, figures: JSON.stringify(all) });
      if (n % 4000 === 0) await journal.journal.flush();
    }
    const began = performance.now();
    const days = await written('accepted', NOON - 32 * DAY, NOON, 12 * HOUR);
    expect(days).to.deep.equal(Array.from({ length: 64 }, () => 720_000));
    expect(performance.now() - began).to.be.below(3000);
    expect(clock.now()).to.equal(NOON);
  });

  it('continues after the clock is set back, replacing old values', async () => {
    const { clock, accepted, read } = await start();
    accepted.add(5);
    await clock.advance(60 * SECOND);
    clock.jump(-40 * SECOND);
    accepted.add(1);
    await clock.advance(10 * SECOND);
    const steps = await read('accepted', NOON, NOON + MINUTE, 10 * SECOND);
    expect(steps).to.deep.equal([5, 0, 1, null, null, null]);
  });
});
