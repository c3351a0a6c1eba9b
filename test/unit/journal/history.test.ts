import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { parsed, startJournal, type TestJournal } from '../../support/journal.ts';
import { attempt, freshSpool, mail as message, put, settled } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

/** A journal that watches a real queue in the same data folder, with one clock. */
async function watching() {
  const dir = await tempDir();
  mkdirSync(join(dir, 'spool'));
  const queue = await freshSpool(join(dir, 'spool'));
  const { clock } = queue;
  const file = join(dir, 'journal.db');
  const journal = await startJournal({ file }, { clock });
  return { dir, file, queue, clock, journal, watched: journal.watch(queue.spool) };
}

/** Starts the comparison with the queue and waits for what it brings. */
async function compared<T>(one: TestJournal, start: () => void, probe: () => Promise<T | false>): Promise<T> {
  start();
  await one.clock.advance(5000);
  return (await until('the journal to agree with the queue', probe)) as T;
}

describe('the history of mail', () => {
  it('shows sender, recipient, subject, verdicts, endpoint answers and result', async () => {
    const { journal, watched, clock } = await watching();
    const { delivery, message: sent } = await put(watched.spool, clock, { recipients: ['jo@example.com'] });
    journal.journal.note({ what: 'arrived', messageId: sent.id, session: 'session-1', transaction: 1 });
    journal.journal.note(parsed(delivery.id, 'Your order', { from: 'Sam <sam@shop.example>', messageId: '<7@shop>' }));
    await watched.spool.settle(
      settled(clock, delivery, { attempt: { ...attempt(clock, 503), answer: 'later' }, state: 'waiting' }),
    );
    await clock.advance(1000);
    await watched.spool.settle(settled(clock, delivery));
    const [one] = await journal.mail();
    expect(one).to.deep.include({
      id: delivery.id,
      session: 'session-1',
      kind: 'inbound',
      account: 'acme',
      sender: 'sam@sender.example',
      recipient: 'jo@example.com',
      from: 'Sam <sam@shop.example>',
      subject: 'Your order',
      headerId: '<7@shop>',
      url: 'https://hooks.example.com/in',
      size: 1500,
      client: '192.0.2.1',
      helo: 'mail.sender.example',
      tls: 'TLSv1.3',
      spf: 'pass',
      dkim: 'pass',
      dmarc: 'pass',
      state: 'delivered',
      attempts: 2,
      lastStatus: 200,
      lastError: null,
      endedAt: clock.now(),
    });
    expect(
      one?.story.map((entry) => ('status' in entry ? [entry.what, entry.status, entry.answer] : entry.what)),
    ).to.deep.equal([['attempt', 503, 'later'], ['attempt', 200, 'ok'], 'delivered']);
  });

  it('is the same whether a delivery ends within a write batch or later', async () => {
    const { journal, watched, clock } = await watching();
    const [now, later] = [await put(watched.spool, clock), await put(watched.spool, clock)];
    const end = async ({ delivery }: typeof now) => {
      journal.journal.note(parsed(delivery.id, 'Hello'));
      await watched.spool.settle(settled(clock, delivery, { attempt: attempt(clock, null), state: 'dead' }));
    };
    await end(now);
    await journal.journal.flush();
    await end(later);
    const [b, a] = await journal.mail();
    const { id: idOfA, n: nOfA, ...restOfA } = a ?? {};
    const { id: idOfB, n: nOfB, ...restOfB } = b ?? {};
    expect([idOfA, idOfB]).to.deep.equal([now.delivery.id, later.delivery.id]);
    expect(restOfA).to.deep.equal(restOfB);
    expect(restOfA).to.deep.include({ state: 'dead', attempts: 1, lastStatus: null, lastError: 'timeout' });
  });

  it('shows waiting mail within a second', async () => {
    const { journal, watched, clock } = await watching();
    const { delivery } = await put(watched.spool, clock);
    await clock.advance(1000);
    const rows = await until('the row', async () => {
      const page = await journal.journal.history.mail({}, 10);
      return page.rows.length > 0 && page.rows;
    });
    expect(rows.map(({ id, state }) => [id, state])).to.deep.equal([[delivery.id, 'waiting']]);
  });

  it('survives a restart', async () => {
    const { file, journal, watched, clock } = await watching();
    const { delivery } = await put(watched.spool, clock);
    await journal.stop();
    const next = await startJournal({ file });
    expect((await next.mail()).map(({ id }) => id)).to.deep.equal([delivery.id]);
  });

  it('keeps mail that the queue has deleted, and reports mail that was lost while it waited', async () => {
    const { journal, watched, clock, queue } = await watching();
    const [done, gone] = [await put(watched.spool, clock), message(clock)];
    await watched.spool.settle(settled(clock, done.delivery));
    await queue.spool.purge({ deliveredBefore: clock.now() + 1, deadBefore: 0, deliveredBytes: 0 });
    for (const delivery of gone.deliveries)
      journal.journal.deliveries.accepted({ delivery, receivedAt: clock.now(), size: 1, envelope: undefined });
    const states = await compared(journal, watched.start, async () => {
      const rows = await journal.mail();
      return (
        rows.some(({ state }) => state === 'unknown') && Object.fromEntries(rows.map(({ id, state }) => [id, state]))
      );
    });
    expect(states).to.deep.equal({ [done.delivery.id]: 'delivered', [gone.deliveries[0]?.id ?? '']: 'unknown' });
  });

  it('is restored from the queue after its file was deleted, with sender, client, size and attempts', async () => {
    const { file, journal, watched, queue, clock } = await watching();
    const waiting = await put(watched.spool, clock);
    const dead = await put(watched.spool, clock);
    const delivered = await put(watched.spool, clock);
    await watched.spool.settle(settled(clock, waiting.delivery, { attempt: attempt(clock, 503), state: 'waiting' }));
    await watched.spool.settle(settled(clock, dead.delivery, { attempt: attempt(clock, 410), state: 'dead' }));
    await watched.spool.settle(settled(clock, delivered.delivery));
    await journal.stop();
    for (const suffix of ['', '-wal', '-shm']) rmSync(file + suffix, { force: true });

    const next = await startJournal({ file }, { clock });
    const rows = await compared(next, next.watch(queue.spool).start, async () => {
      const found = await next.mail();
      return found.length === 3 && found;
    });
    expect(rows.map(({ id, state, lastStatus }) => [id, state, lastStatus]).sort()).to.deep.equal(
      [
        [waiting.delivery.id, 'waiting', 503],
        [dead.delivery.id, 'dead', 410],
        [delivered.delivery.id, 'delivered', 200],
      ].sort(),
    );
    for (const row of rows)
      expect(row).to.deep.include({ sender: 'sam@sender.example', client: '192.0.2.1', size: 1500, attempts: 1 });
  });

  it('is corrected after `postern queue drop` from another process', async () => {
    const { dir, journal, watched, clock } = await watching();
    const { delivery } = await put(watched.spool, clock);
    const dead = await put(watched.spool, clock);
    await watched.spool.settle(settled(clock, dead.delivery, { state: 'dead' }));
    await journal.journal.flush();
    watched.start();
    for (const id of [delivery.id, dead.delivery.id]) {
      const { code, err } = await postern(['queue', 'drop', id], { POSTERN_DATA_DIR: dir });
      expect(code, err).to.equal(0);
    }
    const rows = await compared(
      journal,
      () => {},
      async () => {
        await clock.advance(1000);
        const found = await journal.mail();
        return found.every(({ state }) => state === 'dropped') && found;
      },
    );
    expect(rows.map(({ endedAt }) => typeof endedAt)).to.deep.equal(['number', 'number']);
  });

  it('follows mail that is redirected to another URL', async () => {
    const { journal, watched, clock } = await watching();
    await put(watched.spool, clock, { routeId: '1.7' });
    await journal.journal.flush();
    watched.start();
    await watched.spool.redirect('1.7', 'https://new.example.com/in');
    const rows = await compared(
      journal,
      () => {},
      async () => {
        const found = await journal.mail({ url: 'https://new.example.com/in' });
        return found.length > 0 && found;
      },
    );
    expect(rows.map(({ state }) => state)).to.deep.equal(['waiting']);
  });

  it('shows who dropped and replayed mail, for the changed deliveries only', async () => {
    const { journal, watched, clock } = await watching();
    const [one, other] = [await put(watched.spool, clock), await put(watched.spool, clock)];
    const ids = [one.delivery.id];
    await watched.spool.drop({ ids }, clock.now());
    await clock.advance(10);
    await watched.spool.drop({ ids: [...ids, other.delivery.id] }, clock.now());
    await clock.advance(10);
    await watched.spool.replay({ ids }, clock.now());
    const stories = Object.fromEntries(
      (await journal.mail()).map(({ id, state, story }) => [id, [state, ...story.map(({ what }) => what)]]),
    );
    expect(stories).to.deep.equal({
      [one.delivery.id]: ['waiting', 'dropped', 'replayed'],
      [other.delivery.id]: ['dropped', 'dropped'],
    });
  });

  for (const [when, written] of [
    ['in the same moment', false],
    ['later', true],
  ] as const) {
    it(`shows dropped, as the queue does, when a running attempt ends ${when}`, async () => {
      const { journal, watched, queue, clock } = await watching();
      const { delivery } = await put(watched.spool, clock);
      await watched.spool.drop({ ids: [delivery.id] }, clock.now());
      if (written) await journal.journal.flush();
      await watched.spool.settle(settled(clock, delivery));
      const [row] = await journal.mail();
      expect((await queue.spool.delivery(delivery.id))?.state).to.equal('dropped');
      expect([row?.state, row?.attempts, row?.story.map(({ what }) => what)]).to.deep.equal([
        'dropped',
        1,
        ['dropped', 'attempt'],
      ]);
    });
  }

  it('omits From, Subject and Message-ID when subjects are not kept', async () => {
    const queue = await freshSpool();
    const journal = await startJournal({ subjects: false }, { clock: queue.clock });
    const { spool } = journal.watch(queue.spool);
    const { delivery } = await put(spool, queue.clock);
    journal.journal.note(parsed(delivery.id, 'A secret', { from: 'Secret <s@example.org>', messageId: '<secret@x>' }));
    const [row] = await journal.mail();
    expect(row).to.deep.include({
      sender: 'sam@sender.example',
      from: null,
      subject: null,
      headerId: null,
      spf: 'pass',
    });
    expect(await journal.mail({ words: ['secret'] })).to.deep.equal([]);
  });

  it('limits an entry to 64 kB and counts all attempts', async () => {
    const journal = await startJournal();
    const { clock } = journal;
    const one = message(clock).deliveries[0];
    if (!one) throw new Error('no delivery');
    const { deliveries } = journal.journal;
    deliveries.accepted({ delivery: one, receivedAt: clock.now(), size: 1, envelope: undefined });
    for (let i = 0; i < 1000; i++) {
      deliveries.settled(one.id, 'waiting', clock.now(), { ...attempt(clock, 500), answer: 'x'.repeat(512) });
      if (i % 100 === 0) await journal.journal.flush();
    }
    const [row] = await journal.mail();
    expect(row?.attempts).to.equal(1000);
    expect(JSON.stringify(row?.story).length).to.be.within(50_000, 120_000);
    expect(row?.story.every((entry) => !('answer' in entry) || entry.answer.length === 200)).to.equal(true);
  });

  it('hides mail of other accounts', async () => {
    const { journal, watched, clock } = await watching();
    const { delivery } = await put(watched.spool, clock, { account: 'acme' });
    const { history } = journal.journal;
    expect(await journal.mail({ account: 'other' })).to.deep.equal([]);
    expect(await history.one(delivery.id, 'other')).to.equal(undefined);
    expect((await history.one(delivery.id, 'acme'))?.mail.id).to.equal(delivery.id);
  });

  it('includes the session of a mail', async () => {
    const { journal, watched, clock } = await watching();
    const { message: sent, delivery } = await put(watched.spool, clock);
    journal.journal.note({ what: 'arrived', messageId: sent.id, session: 's1', transaction: 1 });
    const session = { id: 's1', at: clock.now(), listener: 'smtp', client: '192.0.2.1', helo: 'a', tls: null } as const;
    const counts = { messages: 1, recipients: 1, refusals: 0, reason: 'QUIT', durationMs: 12 };
    journal.journal.note({ what: 'session', ...session, ...counts });
    await journal.journal.flush();
    const story = await journal.journal.history.one(delivery.id);
    expect(story?.session).to.deep.equal({ ...session, ...counts });
    expect(story?.mail.session).to.equal('s1');
  });

  it('pages without a gap or a duplicate while rows are added', async () => {
    const { journal, watched, clock } = await watching();
    const sent: string[] = [];
    for (let i = 0; i < 25; i++) sent.unshift((await put(watched.spool, clock)).delivery.id);
    await journal.journal.flush();
    const seen: string[] = [];
    let cursor: number | undefined;
    do {
      const page = await journal.journal.history.mail({ account: 'acme' }, 7, cursor);
      seen.push(...page.rows.map(({ id }) => id));
      cursor = page.next ?? undefined;
      await put(watched.spool, clock);
      await journal.journal.flush();
    } while (cursor !== undefined);
    expect(seen).to.deep.equal(sent);
  });
});
