import { existsSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import type { Note } from '../../../src/journal/types.ts';
import { parsed, refusal, startJournal, type TestJournal } from '../../support/journal.ts';
import { mail as message } from '../../support/spool.ts';
import { until } from '../../support/until.ts';

const DAY_MS = 86_400_000;

function note({ journal, clock }: TestJournal, count: number, subject = 'Hello'): void {
  for (let i = 0; i < count; i++)
    for (const delivery of message(clock).deliveries) {
      journal.deliveries.accepted({ delivery, receivedAt: clock.now(), size: 1, envelope: undefined });
      journal.note(parsed(delivery.id, subject));
    }
}

/** Waits until the journal has deleted what it is to delete; its clock goes on meanwhile. */
async function purged(one: TestJournal, probe: () => Promise<boolean>): Promise<void> {
  await until('the rows to be deleted', async () => {
    await one.clock.advance(61_000);
    return probe();
  });
}

function session(fields: Partial<Extract<Note, { what: 'session' }>>): Note {
  const counts = { messages: 0, recipients: 0, refusals: 0, reason: 'QUIT', durationMs: 1 };
  return {
    what: 'session',
    id: 's',
    at: 0,
    listener: 'smtp',
    client: '192.0.2.1',
    helo: null,
    tls: null,
    ...counts,
    ...fields,
  };
}

/** Counts rows in the file. */
function rowsIn({ file }: TestJournal, table: string): number {
  const db = new DatabaseSync(file, { readOnly: true });
  const count = Number(db.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.['n']);
  db.close();
  return count;
}

describe('the limits of the history', () => {
  it('deletes mail and its index after keep_days, and refusals and sessions after keep_refusals_days', async () => {
    const one = await startJournal({ keepDays: 30, keepRefusalsDays: 7 });
    const { clock, journal } = one;
    note(one, 3, 'an old secret');
    journal.note(refusal({ at: clock.now() }));
    journal.note(session({ at: clock.now(), messages: 1 }));
    await journal.flush();
    await journal.ask('index', 2000);
    clock.jump(8 * DAY_MS);
    await purged(one, async () => (await journal.history.refusals({}, 10)).rows.length === 0);
    expect(rowsIn(one, 'sessions')).to.equal(0);
    expect(await one.mail({ words: ['secret'] })).to.have.length(3);
    note(one, 1, 'a new secret');
    clock.jump(23 * DAY_MS);
    await purged(one, async () => (await one.mail()).length === 1);
    expect((await one.mail({ words: ['secret'] })).map(({ subject }) => subject)).to.deep.equal(['a new secret']);
    expect(rowsIn(one, 'words')).to.be.at.most(1);
  });

  it('deletes mail by its arrival, even if it was added later', async () => {
    const one = await startJournal({ keepDays: 30 });
    note(one, 1, 'young');
    await one.journal.flush();
    const [delivery] = message(one.clock).deliveries;
    if (!delivery) throw new Error('no delivery');
    one.journal.deliveries.accepted({
      delivery,
      receivedAt: one.clock.now() - 29 * DAY_MS,
      size: 1,
      envelope: undefined,
    });
    expect(await one.mail()).to.have.length(2);
    one.clock.jump(2 * DAY_MS);
    await purged(one, async () => (await one.mail()).length < 2);
    expect((await one.mail()).map(({ subject }) => subject)).to.deep.equal(['young']);
  });

  it('keeps the newest within max_bytes, returns the space to the disk, and keeps refusals as long as mail', async () => {
    const maxBytes = 1024 * 1024;
    const one = await startJournal({ maxBytes });
    const { clock, journal } = one;
    for (let hour = 0; hour < 12; hour++) {
      note(one, 500, `in hour ${hour}`);
      journal.note(refusal({ at: clock.now(), sender: `${hour}@sender.example` }));
      await journal.flush();
      clock.jump(3_600_000);
    }
    const size = async () => {
      await journal.ask('index', 0);
      const db = new DatabaseSync(one.file);
      db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
      const pages = Number(db.prepare('PRAGMA page_count').get()?.['page_count']);
      db.close();
      return pages * 4096;
    };
    await purged(one, async () => (await size()) <= maxBytes * 1.1);
    const rows = await one.mail();
    expect(rows.length).to.be.within(100, 5000);
    expect(rows[0]?.subject).to.equal('in hour 11');
    expect(rows.map(({ subject }) => subject)).to.not.include('in hour 0');
    const refusals = await journal.history.refusals({}, 100);
    expect(refusals.rows[0]?.sender).to.equal('11@sender.example');
    expect(refusals.rows.map(({ sender }) => sender)).to.not.include('0@sender.example');
  });

  it('deletes a file that was set aside when its content has expired', async () => {
    const one = await startJournal();
    const aside = `${one.file}.damaged`;
    writeFileSync(aside, 'old');
    await one.clock.advance(61_000);
    one.clock.jump(Date.now() - one.clock.now() + 29 * DAY_MS);
    await one.clock.advance(61_000);
    await one.journal.ask('index', 0);
    expect(existsSync(aside)).to.equal(true);
    one.clock.jump(2 * DAY_MS);
    await purged(one, async () => !existsSync(aside));
  });

  it('keeps 60 refusals of a network a minute, and counts the others', async () => {
    const one = await startJournal();
    const { journal, clock } = one;
    const at = clock.now();
    for (let i = 0; i < 1000; i++) journal.note(refusal({ at, client: '192.0.2.7', recipient: `${i}@example.com` }));
    for (let i = 0; i < 200; i++) journal.note(refusal({ at, client: `2001:db8::${i.toString(16)}` }));
    for (let i = 0; i < 10; i++) journal.note(refusal({ at, client: '192.0.2.8' }));
    await journal.flush();
    expect((await journal.history.refusals({}, 1000)).rows).to.have.length(130);
    await clock.advance(60_000);
    const rows = await until('the counted ones', async () => {
      await clock.advance(1000);
      const found = (await journal.history.refusals({}, 1000)).rows;
      return found.length > 130 && found;
    });
    const of = (client: string) => rows.filter((row) => row.client.startsWith(client));
    const times = (client: string) => of(client).reduce((sum, row) => sum + row.times, 0);
    expect([of('192.0.2.7').length, times('192.0.2.7')]).to.deep.equal([61, 1000]);
    expect([of('2001:db8::').length, times('2001:db8::')]).to.deep.equal([61, 200]);
    expect([of('192.0.2.8').length, times('192.0.2.8')]).to.deep.equal([10, 10]);
    expect(await journal.history.refusalsByReason({})).to.deep.equal([{ reason: 'noMailbox', count: 1210 }]);
    for (let i = 0; i < 60; i++) journal.note(refusal({ at: clock.now() }));
    await journal.flush();
    expect(await journal.history.refusalsByReason({})).to.deep.equal([{ reason: 'noMailbox', count: 1270 }]);
  });

  it('finds refusals by account, reason, domain, words and time', async () => {
    const { journal, clock } = await startJournal();
    const at = clock.now();
    journal.note(refusal({ at, account: 'acme', reason: 'noMailbox', recipient: 'a@example.com' }));
    journal.note(refusal({ at: at + 1000, account: null, reason: 'relayDenied', recipient: 'b@elsewhere.example' }));
    journal.note(refusal({ at: at + 2000, account: 'acme', reason: 'mailboxFull', sender: 'MÜLLER@sender.example' }));
    await journal.flush();
    const found = async (filter: object) =>
      (await journal.history.refusals(filter, 10)).rows.map(({ reason }) => reason);
    expect(await found({})).to.deep.equal(['mailboxFull', 'relayDenied', 'noMailbox']);
    expect(await found({ account: 'acme' })).to.deep.equal(['mailboxFull', 'noMailbox']);
    expect(await found({ reason: 'relayDenied' })).to.deep.equal(['relayDenied']);
    expect(await found({ domain: 'ELSEWHERE.example' })).to.deep.equal(['relayDenied']);
    expect(await found({ words: ['müller'] })).to.deep.equal(['mailboxFull']);
    expect(await found({ since: at + 1000, before: at + 2000 })).to.deep.equal(['relayDenied']);
  });

  it('omits idle sessions, and keeps 60 a minute of a network that only got refusals', async () => {
    const one = await startJournal();
    for (let i = 0; i < 100; i++) {
      one.journal.note(session({ id: `idle-${i}` }));
      one.journal.note(session({ id: `refused-${i}`, refusals: 3 }));
      one.journal.note(session({ id: `sent-${i}`, messages: 1, refusals: 1 }));
    }
    await one.journal.flush();
    expect(rowsIn(one, 'sessions')).to.equal(160);
  });

  it('drops the oldest waiting entries beyond 10,000 and counts them', async () => {
    const one = await startJournal({}, { started: false });
    note(one, 12_345);
    expect(await one.lost()).to.equal(2345);
    await one.journal.start();
    await one.journal.flush();
    expect(await one.journal.ask('mailBounds')).to.deep.equal([1, 10_000]);
    expect(await one.lost()).to.equal(2345);
  });

  it('drops from the most frequent kind, so that a flood of refusals does not cost mail entries', async () => {
    const one = await startJournal({}, { started: false });
    note(one, 1000);
    for (let i = 0; i < 20_000; i++)
      one.journal.note(refusal({ client: `198.51.${Math.floor(i / 50)}.${i % 50}`, at: one.clock.now() }));
    expect(await one.lost()).to.equal(11_000);
    await one.journal.start();
    expect(await one.mail()).to.have.length(1000);
  });

  it('keeps activity for a year, by account', async () => {
    const { journal, clock } = await startJournal();
    const action = { at: clock.now(), by: 'abc…', account: 'acme', what: 'replayed', count: 3, detail: 'state:dead' };
    journal.note({ what: 'action', action });
    await journal.flush();
    expect((await journal.history.actions('other', 10)).rows).to.deep.equal([]);
    expect((await journal.history.actions('acme', 10)).rows).to.deep.equal([{ n: 1, ...action }]);
  });
});
