import { expect } from 'chai';
import type { MailFilter } from '../../../src/journal/types.ts';
import { parsed, startJournal, type TestJournal } from '../../support/journal.ts';
import { attempt, mail as message } from '../../support/spool.ts';

interface Sent {
  readonly to?: string;
  readonly from?: string;
  readonly subject?: string;
  readonly account?: string;
  readonly status?: number | null;
}

/** Notes mail and answers its ids. */
function note({ journal, clock }: TestJournal, sent: readonly Sent[]): string[] {
  return sent.map(({ to = 'jo@example.com', from, subject = 'Hello', account = 'acme', status }) => {
    const [delivery] = message(clock, { recipients: [to], account }).deliveries;
    if (!delivery) throw new Error('no delivery');
    const client = { address: '192.0.2.1', helo: 'mail.sender.example', tls: null };
    const envelope = { mailFrom: 'sam@sender.example', client };
    journal.deliveries.accepted({ delivery, receivedAt: clock.now(), size: 1, envelope });
    journal.note(
      parsed(delivery.id, subject, { messageId: `<${delivery.id}@x>`, ...(from === undefined ? {} : { from }) }),
    );
    if (status !== undefined)
      journal.deliveries.settled(
        delivery.id,
        status === 200 ? 'delivered' : 'waiting',
        clock.now(),
        attempt(clock, status),
      );
    return delivery.id;
  });
}

const SUBJECTS = [
  'Grüße aus KÖLN',
  '100% off_everything',
  '1000 off-everything',
  `it's "quoted" and (nested) AND NOT`,
  'back\\slash',
  'ΣΊΣΥΦΟΣ, ein Mythos',
  'Привет, мир',
  '领取您的礼品',
  '🎉🎈🎊 party',
];

/** What is looked for, and the subjects that have it. */
const SEARCHES: readonly (readonly [string, readonly number[]])[] = [
  ['grüße', [0]],
  ['GRÜSSE', []],
  ['köln', [0]],
  ['Köl', [0]],
  ['üße aus', [0]],
  ['100%', [1]],
  ['0% o', [1]],
  ['off_every', [1]],
  ['off', [1, 2]],
  ['"quoted"', [3]],
  [`it's "q`, [3]],
  ['(nested) AND', [3]],
  ['and not', [3]],
  ['back\\slash', [4]],
  ['\\slash', [4]],
  ['сивет', []],
  ['ПРИВЕТ', [6]],
  ['您的礼', [7]],
  ['🎉🎈🎊', [8]],
  ['🎈', [8]],
  ['n', [0, 1, 2, 3, 5]],
  ['off nothing', []],
];

describe('history search', () => {
  for (const [when, indexed] of [
    ['before it is indexed', false],
    ['when it is indexed', true],
  ] as const) {
    it(`finds mail by any substring of its subject, ${when}`, async () => {
      const one = await startJournal();
      const ids = note(
        one,
        SUBJECTS.map((subject) => ({ subject, to: 'x@y.z', from: 'x@y.z' })),
      );
      await one.journal.flush();
      if (indexed) expect(await one.journal.ask('index', 2000)).to.equal(0);
      for (const [text, expected] of SEARCHES) {
        const found = (await one.mail({ subject: [text] })).map(({ id }) => ids.indexOf(id));
        expect(found.sort(), `subject: ${text}`).to.deep.equal([...expected]);
      }
    });
  }

  it('pages over both sides of the index boundary, newest first', async () => {
    const one = await startJournal();
    const old = note(
      one,
      Array.from({ length: 5 }, (_, i) => ({ subject: `parcel ${i}` })),
    );
    await one.journal.flush();
    await one.journal.ask('index', 3);
    const fresh = note(one, [{ subject: 'parcel 5' }, { subject: 'no' }]);
    const rows = await one.mail({ words: ['parcel'] });
    expect(rows.map(({ id }) => id)).to.deep.equal([fresh[0], ...old.reverse()]);
    const page = await one.journal.history.mail({ words: ['parcel'] }, 4);
    const rest = await one.journal.history.mail({ words: ['parcel'] }, 4, page.next ?? undefined);
    expect([...page.rows, ...rest.rows]).to.deep.equal(rows);
  });

  it('finds a mail by words added after it was indexed, and not by removed ones', async () => {
    const one = await startJournal();
    const [id = ''] = note(one, [{ subject: 'first draft' }]);
    await one.journal.flush();
    await one.journal.ask('index', 2000);
    one.journal.note(parsed(id, 'second thought'));
    expect((await one.mail({ words: ['second thought'] })).map((row) => row.id)).to.deep.equal([id]);
    expect(await one.mail({ words: ['first draft'] })).to.deep.equal([]);
  });

  it('searches each word in any field, and a word with a field in that field', async () => {
    const one = await startJournal();
    const [a, b] = note(one, [
      { to: 'anna@example.com', from: 'Berta <berta@shop.example>', subject: 'Order' },
      { to: 'berta@example.com', from: 'Anna <anna@shop.example>', subject: 'Order' },
    ]);
    for (const indexed of [false, true]) {
      if (indexed) await one.journal.ask('index', 2000);
      const found = async (filter: MailFilter) => (await one.mail(filter)).map(({ id }) => id);
      expect(await found({ words: ['anna', 'berta'] })).to.deep.equal([b, a]);
      expect(await found({ to: ['anna'] })).to.deep.equal([a]);
      expect(await found({ from: ['anna'] })).to.deep.equal([b]);
      expect(await found({ from: ['sender.example'], words: ['order'] })).to.deep.equal([b, a]);
      expect(await found({ words: [a ?? ''] })).to.deep.equal([a]);
    }
  });

  it('filters by state, status, missing answers, ids, route, endpoint, client and time, combined', async () => {
    const one = await startJournal();
    const [ok, failed, silent] = note(one, [{ status: 200 }, { status: 503 }, { status: null }]);
    await one.journal.flush();
    await one.clock.advance(60_000);
    const [fresh] = note(one, [{ account: 'other' }]);
    const found = async (filter: MailFilter) => (await one.mail(filter)).map(({ id }) => id);
    const at = one.clock.now();
    expect(await found({ states: ['delivered'] })).to.deep.equal([ok]);
    expect(await found({ states: ['waiting'] })).to.deep.equal([fresh, silent, failed]);
    expect(await found({ states: ['dead'] })).to.deep.equal([]);
    expect(await found({ status: { from: 500, to: 599 } })).to.deep.equal([failed]);
    expect(await found({ status: { from: 200, to: 299 } })).to.deep.equal([ok]);
    expect(await found({ unanswered: true })).to.deep.equal([silent]);
    expect(await found({ ids: [ok ?? '', (failed ?? '').slice(0, 26)] })).to.deep.equal([failed, ok]);
    expect(await found({ ids: [] })).to.deep.equal([]);
    expect(await found({ route: '1.1', account: 'other' })).to.deep.equal([fresh]);
    expect(await found({ route: 'nobody' })).to.deep.equal([]);
    expect(await found({ url: 'https://hooks.example.com/in', since: at })).to.deep.equal([fresh]);
    expect(await found({ before: at, client: ['mail.sender'] })).to.deep.equal([silent, failed, ok]);
    expect(await found({ kinds: ['outbound'] })).to.deep.equal([]);
    expect(await found({ account: 'acme', states: ['waiting'], unanswered: true, words: ['hello'] })).to.deep.equal([
      silent,
    ]);
  });

  it('returns nothing for text that no mail can have', async () => {
    const one = await startJournal();
    note(one, [{}]);
    for (const text of ['a\0bc', '\0', '\ud800\ud800\ud800', 'x'.repeat(5000), '***', '""" OR', 'NEAR(a b)'])
      expect(await one.mail({ words: [text] }), JSON.stringify(text.slice(0, 20))).to.deep.equal([]);
    expect(one.log.of('journal.fault')).to.deep.equal([]);
  });

  it('returns the ids of all matching mail', async () => {
    const one = await startJournal();
    const ids = note(
      one,
      Array.from({ length: 30 }, (_, i) => ({ subject: i % 2 ? 'odd one' : 'even one' })),
    );
    await one.journal.flush();
    await one.journal.ask('index', 7);
    const found: string[] = [];
    for await (const page of one.journal.history.ids({ subject: ['odd'] })) found.push(...page);
    expect(found).to.deep.equal(ids.filter((_, i) => i % 2).reverse());
  });
});
