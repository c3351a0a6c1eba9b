import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open as openFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { RETURN_URL } from '../../../src/mail/addresses/return-address.ts';
import { mailUrl } from '../../../src/mail/outgoing.ts';
import type { DeliveryKind } from '../../../src/queue/delivery.ts';
import { freshSpool, mail, put, settled, WITHOUT_KINDS } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

const DAY = 86_400_000;
const report = (id: string) => ({ id, body: JSON.stringify({ about: id }) });

describe('reports of outgoing mail', () => {
  it('are stored with the settlement, the oldest first, until they are delivered', async () => {
    const { spool, clock } = await freshSpool();
    for (const id of ['first', 'second', 'third']) {
      const { delivery } = await put(spool, clock, { url: mailUrl('example.com') });
      await spool.settle(settled(clock, delivery, { report: report(id) }));
    }
    expect(await spool.reports(2)).to.deep.equal([report('first'), report('second')]);
    await spool.reported(['first', 'third', 'never heard of']);
    expect(await spool.reports(50)).to.deep.equal([report('second')]);
  });

  it('are stored once when a settlement is repeated', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.settle(settled(clock, delivery, { report: report('one') }));
    await spool.settle(settled(clock, delivery, { report: report('one') }));
    expect(await spool.reports(50)).to.have.length(1);
  });

  it('are kept for a delivery that was dropped meanwhile, because the mail was sent', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.drop({ ids: [delivery.id] }, clock.now());
    await spool.settle(settled(clock, delivery, { report: report('one') }));
    expect(await spool.reports(50)).to.deep.equal([report('one')]);
    expect((await spool.delivery(delivery.id))?.state).to.equal('dropped');
  });

  it('survive a restart', async () => {
    const world = await freshSpool();
    const { delivery } = await put(world.spool, world.clock);
    await world.spool.settle(settled(world.clock, delivery, { report: report('one') }));
    const again = await world.reopen();
    expect(await again.reports(50)).to.deep.equal([report('one')]);
  });

  it('exist after an upgrade of a queue file that lacked their table', async () => {
    const world = await freshSpool();
    const { delivery } = await put(world.spool, world.clock);
    await world.spool.close();
    const old = new DatabaseSync(join(world.dir, 'spool.db'));
    old.exec(
      WITHOUT_KINDS +
        'DROP TABLE time; ALTER TABLE messages DROP COLUMN sum; ALTER TABLE verdicts DROP COLUMN sum; ALTER TABLE deliveries DROP COLUMN sum; DROP TABLE reports; PRAGMA user_version = 2',
    );
    old.close();
    const grown = await world.reopen();
    expect((await grown.delivery(delivery.id))?.state).to.equal('waiting');
    await grown.settle(settled(world.clock, delivery, { report: report('one') }));
    expect(await grown.reports(50)).to.deep.equal([report('one')]);
  });
});

describe('reports of a killed process', function () {
  this.timeout(60_000);

  it('are complete except for delivered ones, one for each settled delivery', async () => {
    const dir = await tempDir();
    const child = spawn(
      process.execPath,
      ['--no-warnings', fileURLToPath(new URL('../../support/reports-child.ts', import.meta.url)), dir],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += String(chunk);
    });
    const ended = once(child, 'close');
    const said = (word: string) =>
      out
        .split('\n')
        .slice(0, -1)
        .filter((line) => line.startsWith(word))
        .map((line) => line.slice(word.length + 1));
    try {
      await until(
        'some are settled, and some told',
        () => said('settled').length > 60 && said('told').length > 10,
        30_000,
      );
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
    const { spool } = await freshSpool(dir);
    const kept = new Set((await spool.reports(100_000)).map(({ id }) => id));
    const told = new Set(said('told'));
    expect(
      said('settled').filter((id) => !kept.has(id) && !told.has(id)),
      'lost',
    ).to.deep.equal([]);
    const delivered = await spool.list({ states: ['delivered'] }, 100_000);
    expect(
      delivered.filter(({ id }) => !kept.has(id) && !told.has(id)),
      'settled without a report',
    ).to.deep.equal([]);
    expect(kept.size + told.size).to.be.at.least(delivered.length);
  });

  it('move to a new queue file when the old one is damaged', async () => {
    const world = await freshSpool();
    for (let i = 0; i < 20; i++) {
      const { delivery } = await put(world.spool, world.clock);
      await world.spool.settle(settled(world.clock, delivery, { report: report(`report ${i}`) }));
    }
    await world.spool.close();
    const path = join(world.dir, 'spool.db');
    const damaged = new DatabaseSync(path);
    const page = Number(
      damaged.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'deliveries_due'").get()?.['rootpage'],
    );
    const size = Number(damaged.prepare('PRAGMA page_size').get()?.['page_size']);
    damaged.close();
    const file = await openFile(path, 'r+');
    await file.write(Buffer.alloc(size, 0xa5), 0, size, (page - 1) * size);
    await file.close();
    const rebuilt = await world.reopen();
    expect((await readdir(world.dir)).some((name) => name.startsWith('spool.db.damaged'))).to.equal(true);
    expect(await rebuilt.reports(50)).to.deep.equal(Array.from({ length: 20 }, (_, i) => report(`report ${i}`)));
  });
});

describe('a scheduled delivery', () => {
  it('is due at its time, when its retry period begins, and accepted now', async () => {
    const { spool, clock } = await freshSpool();
    const {
      message,
      deliveries: [one],
    } = mail(clock, { url: mailUrl('example.com') });
    if (!one) throw new Error('no delivery');
    const later = clock.now() + 2 * DAY;
    await spool.accept(message, [{ ...one, notBefore: later }]);
    expect(await spool.delivery(one.id)).to.include({
      createdAt: clock.now(),
      dueAt: later,
      budgetFrom: later,
      attempts: 0,
    });
    expect(await spool.due(one.account, one.url, later - 1, 10, [])).to.deep.equal([]);
    expect(await spool.due(one.account, one.url, later, 10, [])).to.have.length(1);
  });

  it('stays scheduled when all waiting mail is made due', async () => {
    const { spool, clock } = await freshSpool();
    const {
      message,
      deliveries: [one],
    } = mail(clock, { url: mailUrl('example.com') });
    if (!one) throw new Error('no delivery');
    const later = clock.now() + 2 * DAY;
    await spool.accept(message, [{ ...one, notBefore: later }]);
    await spool.retry({ states: ['waiting'] }, clock.now());
    expect(await spool.delivery(one.id)).to.include({ dueAt: later });
  });

  it('is due at once when that time has passed', async () => {
    const { spool, clock } = await freshSpool();
    const {
      message,
      deliveries: [one],
    } = mail(clock);
    if (!one) throw new Error('no delivery');
    await spool.accept(message, [{ ...one, notBefore: clock.now() - DAY }]);
    expect(await spool.delivery(one.id)).to.include({ dueAt: clock.now(), budgetFrom: clock.now() });
  });
});

describe('a selection by kind', () => {
  it('separates received messages, batches of events, outgoing mail and returned mail', async () => {
    const { spool, clock } = await freshSpool();
    const inbound = await put(spool, clock);
    const outgoing = await put(spool, clock, { kind: 'outbound', url: mailUrl('example.com'), routeId: '' });
    const returned = await put(spool, clock, { kind: 'return', task: 'read', url: RETURN_URL, routeId: '' });
    const batch = await spool.events.send(
      { hook: { id: '1', account: 'acme', url: 'https://a.example/' }, events: [{ id: 'e', body: '{}' }] },
      'b'.repeat(26),
      clock.now(),
    );
    expect([spool.backlog('acme'), spool.backlog('acme', 'in')]).to.deep.equal([4, 3]);
    const ids = async (...kinds: DeliveryKind[]) => (await spool.list({ kinds }, 10)).map(({ id }) => id);
    expect(await ids('inbound')).to.deep.equal([inbound.delivery.id]);
    expect(await ids('outbound')).to.deep.equal([outgoing.delivery.id]);
    expect(await ids('events')).to.deep.equal([batch.id]);
    expect(await ids('return')).to.deep.equal([returned.delivery.id]);
    expect(await ids('return', 'inbound')).to.deep.equal([returned.delivery.id, inbound.delivery.id]);
    expect((await spool.delivery(returned.delivery.id))?.task).to.equal('read');
  });
});
