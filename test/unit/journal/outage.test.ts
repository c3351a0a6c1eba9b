import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import type { Body } from '../../../src/queue/delivery.ts';
import { parsed, refusal, startJournal } from '../../support/journal.ts';
import { freshSpool, mail as message, put, settled } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

/** A journal that watches a real queue, with one clock. */
async function watching({ subjects = true, dir = '' } = {}) {
  const folder = dir || (await tempDir());
  mkdirSync(join(folder, 'spool'), { recursive: true });
  const queue = await freshSpool(join(folder, 'spool'));
  const { clock } = queue;
  const file = join(folder, 'journal.db');
  const journal = await startJournal({ file, subjects }, { clock });
  return { dir: folder, file, queue, clock, journal, watched: journal.watch(queue.spool) };
}

const HEADER =
  'From: =?utf-8?Q?J=C3=B6rg?= <joerg@shop.example>\r\nSubject: =?utf-8?B?R3LDvMOfZSBhdXMgS8O2bG4=?=\r\nMessage-ID: <7@shop>\r\n';
const NAMED = { from: 'Jörg <joerg@shop.example>', subject: 'Grüße aus Köln', headerId: '<7@shop>' };
const inline = (text: string): Body => ({ kind: 'memory', bytes: new Uint8Array(Buffer.from(text)) });

describe('unparsed mail', () => {
  it('has a subject, an author and a Message-ID as soon as it is accepted', async () => {
    const { journal, watched, clock } = await watching();
    await put(watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    const [one] = await journal.mail();
    expect(one).to.deep.include({ ...NAMED, state: 'waiting', attempts: 0 });
  });

  it('has them for each recipient, for returned mail, and for held mail', async () => {
    const { journal, watched, clock } = await watching();
    const body = () => inline(`${HEADER}\r\nHello.\r\n`);
    await put(watched.spool, clock, { body: body(), recipients: ['a@example.com', 'b@example.com'] });
    await put(watched.spool, clock, { body: body(), kind: 'return', task: 'read' });
    await put(watched.spool, clock, { body: body(), fate: { state: 'held', note: 'held by route 1.1' } });
    const all = await journal.mail();
    expect(all.map(({ kind, state, subject }) => [kind, state, subject])).to.deep.equal([
      ['inbound', 'held', NAMED.subject],
      ['return', 'waiting', NAMED.subject],
      ['inbound', 'waiting', NAMED.subject],
      ['inbound', 'waiting', NAMED.subject],
    ]);
  });

  it('has them if it is stored in a file', async () => {
    const { journal, watched, queue, clock } = await watching();
    const { message: sent, deliveries } = message(clock);
    const writer = queue.spool.body(sent.id);
    await writer.write(Buffer.from(`${HEADER}\r\n`));
    for (let i = 0; i < 5; i++) await writer.write(Buffer.alloc(100_000, 'x'));
    await watched.spool.accept({ ...sent, body: await writer.finish() }, deliveries);
    await until('its header is read', async () => (await journal.mail())[0]?.subject === NAMED.subject);
    expect((await journal.mail())[0]).to.deep.include(NAMED);
  });

  it('is found by its subject, its author and its Message-ID', async () => {
    const { journal, watched, clock } = await watching();
    await put(watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    await put(watched.spool, clock, { body: inline('Subject: other\r\n\r\nHello.\r\n') });
    await journal.journal.flush();
    for (const filter of [{ subject: ['köln'] }, { words: ['grüße'] }, { from: ['JÖRG'] }, { words: ['<7@shop>'] }])
      expect(
        (await journal.mail(filter)).map(({ subject }) => subject),
        JSON.stringify(filter),
      ).to.deep.equal([NAMED.subject]);
    // Again once the words are indexed.
    await journal.journal.ask('index', 1000);
    expect(await journal.mail({ subject: ['köln'] })).to.have.length(1);
  });

  it('keeps its summary if parsing fails, and is updated by the parsed one', async () => {
    const { journal, watched, clock } = await watching();
    const { delivery: failed } = await put(watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    const { delivery: found } = await put(watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    await journal.journal.flush();
    journal.journal.note({
      what: 'parsed',
      id: failed.id,
      sender: 'sam@sender.example',
      summary: null,
      verdicts: null,
    });
    journal.journal.note(parsed(found.id, 'Found by parsing'));
    for (const one of [failed, found]) await watched.spool.settle(settled(clock, one));
    expect((await journal.mail()).map(({ subject }) => subject)).to.deep.equal(['Found by parsing', NAMED.subject]);
  });

  it('has an empty subject if it has none, so that it is not read again', async () => {
    const { journal, watched, clock } = await watching();
    await put(watched.spool, clock, { body: inline('nothing of this is a header\r\n') });
    expect((await journal.mail())[0]).to.deep.include({ from: null, subject: '', headerId: null });
  });

  it('has none of them with journal.subjects: false, by any path into the journal', async () => {
    const { dir, journal, watched, queue, clock } = await watching({ subjects: false });
    await put(watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    await put(queue.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    watched.start();
    await clock.advance(5000);
    await until('both are known', async () => (await journal.mail()).length === 2);
    for (const one of await journal.mail()) expect(one).to.include({ from: null, subject: null, headerId: null });
    await journal.stop();
    const db = new DatabaseSync(join(dir, 'journal.db'), { readOnly: true });
    expect(JSON.stringify(db.prepare('SELECT * FROM mail').all())).not.to.match(/shop|Köln/i);
    db.close();
  });

  it('gets its summary from the queue if accepted by an earlier version, whose row may lack it', async () => {
    const first = await watching();
    const { clock } = first;
    const states = [{}, { fate: { state: 'held', note: 'held by route 1.1' } as const }];
    for (const more of states)
      await put(first.watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`), ...more });
    const { delivery } = await put(first.watched.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });
    await first.watched.spool.settle(settled(clock, delivery, { state: 'dead' }));
    await first.journal.stop();
    // What the version before wrote.
    const db = new DatabaseSync(first.file);
    db.exec('UPDATE mail SET header_from = NULL, subject = NULL, header_id = NULL');
    db.close();
    await put(first.queue.spool, clock, { body: inline(`${HEADER}\r\nHello.\r\n`) });

    const journal = await startJournal({ file: first.file }, { clock });
    const watched = journal.watch(first.queue.spool);
    watched.start();
    await clock.advance(5000);
    await until('all have names', async () => {
      const all = await journal.mail({ subject: ['köln'] });
      return all.length === 4 && all.every(({ headerId, from }) => headerId === NAMED.headerId && from === NAMED.from);
    });
    // The words of rows that were indexed before are found as well.
    await journal.journal.ask('index', 1000);
    expect(await journal.mail({ words: ['grüße'] })).to.have.length(4);
  });
});

describe('the transaction of a mail', () => {
  it('is separate from others of its session; their refusals are counted', async () => {
    const { journal, watched, clock } = await watching();
    const { message: sent, delivery } = await put(watched.spool, clock, { account: 'acme' });
    const { history } = journal.journal;
    journal.journal.note({ what: 'arrived', messageId: sent.id, session: 's1', transaction: 2 });
    const note = (transaction: number | null, recipient: string, account: string | null = 'acme', seconds = 0) =>
      journal.journal.note(
        refusal({
          at: clock.now() + seconds * 1000,
          session: 's1',
          transaction,
          recipient,
          account,
          client: `192.0.2.${seconds}`,
        }),
      );
    note(1, 'before@example.com');
    note(2, 'own@example.com');
    note(2, 'theirs@other.example', 'other');
    note(null, 'between@example.com', null);
    note(3, 'later@example.com', 'acme', 41);
    await journal.journal.flush();
    const whole = await history.one(delivery.id);
    expect(whole?.refusals.map(({ recipient }) => recipient)).to.deep.equal([
      'own@example.com',
      'theirs@other.example',
    ]);
    expect(whole?.otherRefusals).to.equal(3);
    const own = await history.one(delivery.id, 'acme');
    expect(own?.refusals.map(({ recipient }) => recipient)).to.deep.equal(['own@example.com']);
    expect(own?.otherRefusals).to.equal(3);
  });

  it('is derived for rows of an earlier version: the same sender, before it was accepted', async () => {
    const one = await watching();
    const { message: sent, delivery } = await put(one.watched.spool, one.clock);
    one.journal.journal.note({ what: 'arrived', messageId: sent.id, session: 's1', transaction: 1 });
    for (const [seconds, sender] of [
      [-1, 'sam@sender.example'],
      [-2, 'else@sender.example'],
      [41, 'sam@sender.example'],
    ] as const)
      one.journal.journal.note(
        refusal({ at: one.clock.now() + seconds * 1000, session: 's1', transaction: 1, sender }),
      );
    await one.journal.stop();
    // What the version before wrote: a file without the columns.
    const db = new DatabaseSync(one.file);
    for (const table of ['mail', 'refusals']) db.exec(`ALTER TABLE ${table} DROP COLUMN transaction_n`);
    db.exec('DROP INDEX mail_thread; ALTER TABLE mail DROP COLUMN thread');
    db.close();
    const journal = await startJournal({ file: one.file }, { clock: one.clock });
    const story = await until('the journal is open', () =>
      journal.journal.history.one(delivery.id).catch(() => undefined),
    );
    expect(story?.refusals.map(({ at, sender }) => [at - one.clock.now(), sender])).to.deep.equal([
      [-1000, 'sam@sender.example'],
    ]);
    expect(story?.otherRefusals).to.equal(2);
    expect(await journal.mail()).to.have.length(1);
  });
});
