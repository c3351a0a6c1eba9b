import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open as openFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import { hook, idsIn, LIMITS, someEvents, wanted } from '../../support/hooks.ts';
import { freshSpool, put, settled, WITHOUT_KINDS } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';

const CHILD = fileURLToPath(new URL('../../support/events-child.ts', import.meta.url));
const ids = createIds(systemClock);

/** Runs events-child.ts until it has killed itself; returns the acknowledged ids. */
async function killed(dir: string, round: number, step: number): Promise<string[]> {
  const child = spawn(process.execPath, ['--no-warnings', CHILD, dir, String(round), String(step)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let out = '';
  child.stdout.on('data', (chunk) => {
    out += String(chunk);
  });
  await once(child, 'close');
  return out.split('\n').filter(Boolean);
}

/** Every event that the queue holds, pending or in a batch, and what its webhook counted. */
async function contents(spool: Spool, now: number) {
  await spool.drop({ kinds: ['events'], states: ['waiting'] }, now); // open ones would stand in the way of new ones
  while ((await spool.events.freeze('4', ids.message(), LIMITS, now)).delivery);
  const batches = await spool.list({ kinds: ['events'] }, 10_000);
  const events = (await Promise.all(batches.map((one) => idsIn(spool, one)))).flat();
  const delivered = batches.filter(({ state }) => state === 'delivered');
  const [tally] = await spool.events.tallies();
  return { events, delivered, tally };
}

describe('the events of a queue file', function () {
  this.timeout(90_000);

  it('are complete and unique after the process was killed in every step: published, frozen, settled and counted', async () => {
    const dir = await tempDir();
    const taken: string[] = [];
    for (let step = 1; step <= 9; step++) taken.push(...(await killed(dir, step, step)));
    const { spool, clock } = await freshSpool(dir);
    const { events, delivered, tally } = await contents(spool, clock.now());
    expect(new Set(events).size, 'an event in two batches').to.equal(events.length);
    expect(
      taken.filter((id) => !events.includes(id)),
      'taken and lost',
    ).to.deep.equal([]);
    expect(events.length).to.be.at.most(taken.length + 9 * 20);
    // Settled and heard of it: none in the rounds 1 to 3, one in each of 4 to 6, two in each of 7 to 9.
    expect(delivered.length).to.be.at.least(9);
    expect(tally).to.include({
      batches: delivered.length,
      events: delivered.reduce((sum, { batch }) => sum + (batch?.events ?? 0), 0),
    });
  });

  it('can be added to a file of an older version, and its mail stays', async () => {
    const { dir, spool, clock, reopen } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.close();
    const old = new DatabaseSync(join(dir, 'spool.db'));
    old.exec(
      WITHOUT_KINDS +
        `DROP TABLE time; ALTER TABLE messages DROP COLUMN sum; ALTER TABLE verdicts DROP COLUMN sum; ALTER TABLE deliveries DROP COLUMN sum; DROP TABLE reports; DROP TABLE hooks; DROP TABLE events; DROP TABLE batches; DELETE FROM meta WHERE name = 'spool'; PRAGMA user_version = 1`,
    );
    old.close();
    const again = await reopen();
    expect(await again.delivery(delivery.id)).to.include({ state: 'waiting' });
    await again.events.publish([wanted(someEvents(3))], clock.now());
    const { delivery: batch } = await again.events.freeze('4', ids.message(), LIMITS, clock.now());
    expect(await idsIn(again, batch)).to.have.length(3);
    await again.settle(settled(clock, delivery));
    expect(await (await reopen()).count({})).to.include({ waiting: 1, delivered: 1 });
  });

  it('move to a new file when the old one is damaged, with their counts', async () => {
    const { dir, spool, clock, reopen } = await freshSpool();
    for (let i = 0; i < 30; i++) await put(spool, clock);
    await spool.events.publish([wanted(someEvents(50)), wanted(someEvents(5, 100), hook('8'))], clock.now());
    const { delivery } = await spool.events.freeze('4', ids.message(), { events: 20, bytes: 1e6 }, clock.now());
    const { delivery: open } = await spool.events.freeze('4', ids.message(), { events: 20, bytes: 1e6 }, clock.now());
    if (!delivery || !open) throw new Error('no batch was made');
    await spool.settle(settled(clock, delivery));
    const [before] = await spool.events.tallies();
    await spool.close();
    const damaged = new DatabaseSync(join(dir, 'spool.db'));
    const page = Number(
      damaged.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'deliveries_due'").get()?.['rootpage'],
    );
    const { page_size: size } = damaged.prepare('PRAGMA page_size').get() ?? {};
    damaged.close();
    const handle = await openFile(join(dir, 'spool.db'), 'r+');
    await handle.write(Buffer.alloc(Number(size), 0xa5), 0, Number(size), (page - 1) * Number(size));
    await handle.close();

    const again = await reopen();
    expect((await readdir(dir)).some((name) => name.startsWith('spool.db.damaged'))).to.equal(true);
    expect(await again.events.tallies()).to.deep.equal([before]);
    expect((await again.events.pending(1000)).map(({ webhook, pending }) => [webhook, pending.events])).to.deep.equal([
      ['4', 10],
      ['8', 5],
    ]);
    expect(await idsIn(again, (await again.delivery(open.id)) ?? null)).to.have.length(20);
    await again.events.publish([wanted(someEvents(50))], clock.now());
    expect((await again.events.pending(1000))[0]?.pending.events, 'known ones stay known').to.equal(10);
    await again.settle(settled(clock, open));
    expect((await again.events.tallies())[0]).to.include({ batches: 2, events: 40, spool: before?.spool });
  });
});
