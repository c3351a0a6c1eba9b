import { expect } from 'chai';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  DuplicateRow,
  type Filter,
  type Row,
  type Value,
} from '../../../src/store/driver/port.ts';
import { drivers, ofItsOwn } from '../../support/database.ts';
import { lacks } from '../../support/mongo-server.ts';
import { failure } from '../../support/store-notes.ts';

interface Thing extends Row {
  readonly account: string;
  readonly label: string | null;
  readonly rank: number | boolean | string | null;
  readonly at: Date | null;
  readonly note?: Value;
  readonly count?: number | null;
}

const things: CollectionSpec<Thing> = {
  name: 'things',
  indexes: [['account', 'rank'], ['label'], ['rank'], ['at']],
  dates: ['at'],
};

interface Seat extends Row {
  readonly room: string;
  readonly number?: number | null;
  readonly guest?: string | null;
  readonly visits?: number;
}

const seats: CollectionSpec<Seat> = { name: 'seats', indexes: [], unique: [['room', 'number']], dates: [] };

const thing = (id: string, fields: Partial<Thing> = {}): Thing => ({
  id,
  account: 'a',
  label: null,
  rank: null,
  at: null,
  ...fields,
});

/** What a person or a machine with bad intent would try where a text is expected. */
const HOSTILE = [
  '',
  ' ',
  '$gt',
  '$where',
  '{"$gt":""}',
  'a.b',
  '.',
  '$',
  '__proto__',
  'constructor',
  'toString',
  `'`,
  `"`,
  `'; DROP TABLE things; --`,
  '%',
  '_',
  '100%',
  'a_c',
  '\\',
  '\\%',
  '*',
  'a*',
  '[a-z]',
  '^a',
  'a$',
  '(a+)+$',
  '.*',
  '?',
  '\n',
  '\r\n',
  '\t',
  '\0',
  'a\0b',
  'a\0',
  '\u2028',
  'é',
  'e\u0301',
  '😀',
  '😀😀',
  '\ud7ff',
  '\ue000',
  '\uffff',
  '\u{10ffff}',
  '\u{10ffff}a',
  'null',
  'true',
  '1',
  '1.0',
  '2026-01-05T12:00:00.000Z',
  'x'.repeat(5000),
];

for (const driver of drivers) {
  describe(`a collection of the store, ${driver.name}`, () => {
    let database: Database;
    let crowded: Database;
    let rows: Collection<Thing>;

    before(async () => {
      database = await driver.open();
      crowded = await driver.open({ crowded: true });
    });
    after(async () => {
      await database.close();
      await crowded.close();
    });
    beforeEach(async () => {
      rows = await database.collection(ofItsOwn(things));
    });
    /** For cases in which many want to write the same row at once. */
    const useCrowded = async () => {
      rows = await crowded.collection(ofItsOwn(things));
    };

    const put = async (...list: Thing[]) => {
      for (const row of list) expect(await rows.insert(row)).to.equal('inserted');
    };
    const ids = async (filter: Filter<Thing>) => (await rows.many(filter, { sort: 'id' })).map(({ id }) => id);

    describe('finds', () => {
      it('a row by its id, as it was inserted', async () => {
        const row = thing('one', { label: 'l', rank: 1.5, at: new Date('2026-01-05T12:00:00.123Z'), count: 3 });
        await put(row, thing('two'));
        expect(await rows.one({ id: 'one' })).to.deep.equal(row);
        expect(await rows.one({ id: 'three' })).to.equal(undefined);
      });

      it('rows for which every named field matches', async () => {
        await put(
          thing('1', { account: 'a', label: 'x' }),
          thing('2', { account: 'a', label: 'y' }),
          thing('3', { account: 'b', label: 'x' }),
        );
        expect(await ids({ account: 'a', label: 'x' })).to.deep.equal(['1']);
        expect(await ids({ account: 'a' })).to.deep.equal(['1', '2']);
        expect(await ids({})).to.deep.equal(['1', '2', '3']);
      });

      it('a field that is null or absent by null, and not by anything else', async () => {
        await put(
          thing('null', { note: null }),
          thing('absent'),
          thing('empty', { note: '' }),
          thing('zero', { note: 0 }),
          thing('false', { note: false }),
        );
        expect(await ids({ note: null })).to.deep.equal(['absent', 'null']);
        expect(await ids({ label: null })).to.have.length(5);
        expect(await ids({ note: { exists: false } })).to.deep.equal(['absent', 'null']);
        expect(await ids({ note: { exists: true } })).to.deep.equal(['empty', 'false', 'zero']);
        expect(await ids({ note: '' })).to.deep.equal(['empty']);
        expect(await ids({ note: 0 })).to.deep.equal(['zero']);
        expect(await ids({ note: false })).to.deep.equal(['false']);
      });

      it('values of the same type only: 1 is not true and not "1"', async () => {
        await put(
          thing('n', { rank: 1 }),
          thing('s', { rank: '1' }),
          thing('t', { rank: true }),
          thing('f', { rank: false }),
          thing('z', { rank: 0 }),
        );
        expect(await ids({ rank: 1 })).to.deep.equal(['n']);
        expect(await ids({ rank: '1' })).to.deep.equal(['s']);
        expect(await ids({ rank: true })).to.deep.equal(['t']);
        expect(await ids({ rank: { in: [1, false] } })).to.deep.equal(['f', 'n']);
      });

      it('members of a list, null included, and nothing by an empty list', async () => {
        await put(thing('1', { label: 'x' }), thing('2', { label: 'y' }), thing('3'), thing('4', { label: 'z' }));
        expect(await ids({ label: { in: ['x', 'z', 'q'] } })).to.deep.equal(['1', '4']);
        expect(await ids({ label: { in: ['x', null] } })).to.deep.equal(['1', '3']);
        expect(await ids({ label: { in: [null] } })).to.deep.equal(['3']);
        expect(await ids({ label: { in: [] } })).to.deep.equal([]);
        expect(await ids({ id: { in: ['4', '2', '9'] } })).to.deep.equal(['2', '4']);
        expect(await ids({ label: { in: Array.from({ length: 2000 }, (_, i) => `l${i}`).concat('y') } })).to.deep.equal(
          ['2'],
        );
      });

      it('a range of numbers, with and without its ends', async () => {
        await put(
          ...[-1, 0, 0.1, 1, 2, 10].map((rank) => thing(`n${rank}`, { rank })),
          thing('text', { rank: '1' }),
          thing('null'),
          thing('true', { rank: true }),
        );
        expect(await ids({ rank: { range: { gt: 0, lt: 2 } } })).to.deep.equal(['n0.1', 'n1']);
        expect(await ids({ rank: { range: { gte: 0, lte: 2 } } })).to.deep.equal(['n0', 'n0.1', 'n1', 'n2']);
        expect(await ids({ rank: { range: { gt: 1 } } })).to.deep.equal(['n10', 'n2']);
        expect(await ids({ rank: { range: { lt: 0 } } })).to.deep.equal(['n-1']);
        expect(await ids({ account: 'a', rank: { range: { gte: 10 } } })).to.deep.equal(['n10']);
      });

      if (!lacks(driver.kind, 'code points'))
        it('a range of text, in the order of code points', async () => {
          await put(...['A', 'B', 'a', 'b', 'é', '\ue000', '😀'].map((label) => thing(label, { label })), thing('A0'));
          expect(await ids({ label: { range: { gte: 'B', lt: 'b' } } })).to.deep.equal(['B', 'a']);
          expect(await ids({ label: { range: { gt: 'b' } } })).to.deep.equal(['é', '\ue000', '😀']);
          expect(await ids({ label: { range: { lte: 'A' } } })).to.deep.equal(['A']);
          expect(await ids({ id: { range: { gt: 'a', lte: 'é' } } })).to.deep.equal(['b', 'é']);
        });

      it('a range of dates and of booleans', async () => {
        const days = ['1969-12-31', '2026-01-05', '2026-01-06'];
        await put(
          ...days.map((day) => thing(day, { at: new Date(day) })),
          thing('false', { rank: false }),
          thing('true', { rank: true }),
          thing('text', { rank: 'x' }),
        );
        expect(await ids({ at: { range: { gte: new Date('2026-01-05'), lt: new Date('2026-01-06') } } })).to.deep.equal(
          ['2026-01-05'],
        );
        expect(await ids({ at: { range: { lt: new Date('2026-01-01') } } })).to.deep.equal(['1969-12-31']);
        expect(await ids({ rank: { range: { gt: false } } })).to.deep.equal(['true']);
        expect(await ids({ rank: { range: { lt: true } } })).to.deep.equal(['false']);
        expect(await ids({ rank: { range: { lt: 'z' } } })).to.deep.equal(['text']);
      });

      it('nothing in a range whose ends are of two types', async () => {
        await put(thing('n', { rank: 5 }), thing('s', { rank: '5' }));
        expect(await ids({ rank: { range: { gt: 1, lt: 'z' } } })).to.deep.equal([]);
      });

      it('a prefix, taken literally', async () => {
        await put(
          ...['ab', 'abc', 'abd', 'aB', 'ac', 'b', 'a', 'xab'].map((label) => thing(label, { label })),
          thing('number', { rank: 1 }),
        );
        expect(await ids({ label: { startsWith: 'ab' } })).to.deep.equal(['ab', 'abc', 'abd']);
        expect(await ids({ label: { startsWith: '' } })).to.have.length(8);
        expect(await ids({ id: { startsWith: 'ab' } })).to.deep.equal(['ab', 'abc', 'abd']);
      });

      if (!lacks(driver.kind, 'code points'))
        it('any hostile text, by equality, list and prefix', async () => {
          await put(...HOSTILE.map((label, i) => thing(`h${i}`, { label, note: label })));
          const found = async (filter: Filter<Thing>) => (await rows.many(filter)).map(({ label }) => label);
          for (const text of HOSTILE) {
            expect(await found({ label: text }), `equality: ${JSON.stringify(text)}`).to.deep.equal([text]);
            expect(await found({ note: text }), `equality without an index: ${JSON.stringify(text)}`).to.deep.equal([
              text,
            ]);
            expect(await found({ label: { in: [text] } }), `list: ${JSON.stringify(text)}`).to.deep.equal([text]);
            const expected = HOSTILE.filter((other) => other.startsWith(text));
            expect(await found({ label: { startsWith: text } }), `prefix: ${JSON.stringify(text)}`).to.have.members(
              expected,
            );
          }
        });

      it('hostile ids', async () => {
        await put(...HOSTILE.map((id) => thing(id)));
        for (const id of HOSTILE) expect(await rows.one({ id })).to.deep.equal(thing(id));
        expect(await rows.many({})).to.have.length(HOSTILE.length);
      });

      it('a lone surrogate as U+FFFD, since no encoding can write it', async () => {
        await put(thing('1', { label: 'a\ud800', note: ['\udc00b'] }));
        expect(await rows.one({ label: 'a\ud800' })).to.deep.equal(thing('1', { label: 'a\ufffd', note: ['\ufffdb'] }));
        expect(await rows.one({ label: { startsWith: 'a\udfff' } })).to.include({ id: '1' });
      });
    });

    describe('sorts', () => {
      const order = async (sort: 'rank' | '-rank' | 'id' | '-id' | '-at', limit?: number) =>
        (await rows.many({ account: 'a' }, { sort, ...(limit === undefined ? {} : { limit }) })).map(({ id }) => id);

      beforeEach(() =>
        put(
          thing('d', { rank: 2 }),
          thing('b', { rank: 1 }),
          thing('c', { rank: 1 }),
          thing('a', { rank: 10 }),
          thing('e'),
          thing('f', { rank: -1, at: new Date(5) }),
          thing('x', { account: 'other', rank: 1 }),
        ),
      );

      it('up, null first, ties by id', async () =>
        expect(await order('rank')).to.deep.equal(['e', 'f', 'b', 'c', 'd', 'a']));
      it('down, null last, ties by id downwards', async () =>
        expect(await order('-rank')).to.deep.equal(['a', 'd', 'c', 'b', 'f', 'e']));
      it('by id both ways', async () => {
        expect(await order('id')).to.deep.equal(['a', 'b', 'c', 'd', 'e', 'f']);
        expect(await order('-id')).to.deep.equal(['f', 'e', 'd', 'c', 'b', 'a']);
      });
      it('by a date', async () => expect((await order('-at'))[0]).to.equal('f'));
      it('and limits: a limit of 0 returns nothing', async () => {
        expect(await order('rank', 2)).to.deep.equal(['e', 'f']);
        expect(await order('-rank', 1)).to.deep.equal(['a']);
        expect(await order('rank', 0)).to.deep.equal([]);
        expect(await order('rank', 100)).to.have.length(6);
      });
      it('more rows than one server batch', async () => {
        await Promise.all(
          Array.from({ length: 250 }, (_, i) =>
            rows.insert(thing(`m${String(i).padStart(3, '0')}`, { account: 'many' })),
          ),
        );
        const found = await rows.many({ account: 'many' }, { sort: 'id' });
        expect(found.map(({ id }) => id)).to.deep.equal(
          Array.from({ length: 250 }, (_, i) => `m${String(i).padStart(3, '0')}`),
        );
      });

      it('ends a page after the row with which it has enough bytes, however small those before it were', async () => {
        const note = (n: number) => (n < 40 ? 'small' : 'x'.repeat(1_000_000));
        for (let n = 0; n < 80; n++)
          await rows.insert(thing(`p${String(n).padStart(3, '0')}`, { account: 'pages', note: note(n) }));
        const pages: number[] = [];
        const ids: string[] = [];
        for (let last = ''; ; last = ids.at(-1) ?? '') {
          const filter = { account: 'pages', id: { range: { gt: last } } };
          const page = await rows.many(filter, { sort: 'id', limit: 60, bytes: 2_000_000 });
          if (page.length === 0) break;
          pages.push(page.filter((row) => row.note !== 'small').length);
          ids.push(...page.map(({ id }) => id));
        }
        expect(ids).to.deep.equal(Array.from({ length: 80 }, (_, n) => `p${String(n).padStart(3, '0')}`));
        // MongoDB sends up to 16 rows at a time.
        if (!lacks(driver.kind, 'getMore'))
          expect(Math.max(...pages)).to.be.within(1, driver.kind === 'embedded' ? 2 : 17);
        expect(await rows.many({ account: 'pages' }, { sort: 'id', bytes: 0 }), 'at least one').to.not.deep.equal([]);
        expect(await rows.many({ account: 'none' }, { bytes: 1 })).to.deep.equal([]);
      });
    });

    describe('keeps', () => {
      it('Dates, at the top and inside a value', async () => {
        const row = thing('1', {
          at: new Date('0001-02-03T04:05:06.789Z'),
          note: { seen: [new Date(0), new Date('9999-12-31T23:59:59.999Z')], $date: '2026-01-05T12:00:00.000Z' },
        });
        await put(row);
        expect(await rows.one({ id: '1' })).to.deep.equal(row);
        expect((await rows.one({ at: new Date('0001-02-03T04:05:06.789Z') }))?.at).to.be.instanceOf(Date);
      });

      it('numbers exactly', async () => {
        const numbers = [
          0,
          -1,
          0.1,
          1e-7,
          1e21,
          1.7976931348623157e308,
          5e-324,
          2 ** 31,
          -(2 ** 31) - 1,
          2 ** 53 - 1,
          -(2 ** 53) + 1,
          123456789.123,
        ];
        await put(...numbers.map((rank, i) => thing(`n${i}`, { rank, note: [rank] })));
        for (const [i, rank] of numbers.entries()) {
          expect(await rows.one({ id: `n${i}` })).to.deep.equal(thing(`n${i}`, { rank, note: [rank] }));
          expect(await ids({ rank }), String(rank)).to.deep.equal([`n${i}`]);
        }
      });

      it('nested values with names that are special to a database or to JavaScript', async () => {
        const note: Value = JSON.parse(
          '{"__proto__":{"polluted":true},"constructor":1,"$gt":"","$set":{"a":1},"a.b":{"c.d":null},"":"empty","%":"%","%24":"x","nul\\u0000":1,"list":[1,"2",null,{"$in":[]}],"deep":{"deep":{"deep":[true]}}}',
        );
        const row = thing('1', { note });
        await put(row);
        const back = await rows.one({ id: '1' });
        expect(back).to.deep.equal(row);
        expect(Object.keys(Object(back?.note))).to.deep.equal(Object.keys(Object(note)));
        expect(({} as { polluted?: boolean }).polluted).to.equal(undefined);
        expect(await rows.change({ id: '1' }, { note: { $inc: { rank: 1 }, 'x.y': 1 } })).to.deep.equal(
          thing('1', { note: { $inc: { rank: 1 }, 'x.y': 1 } }),
        );
      });

      it('lists in lists', async function () {
        if (driver.kind === 'ferretdb') this.skip(); // "nested arrays are not supported"
        await put(thing('1', { note: [[1, ['x']], []] }));
        expect(await rows.one({ id: '1' })).to.deep.equal(thing('1', { note: [[1, ['x']], []] }));
      });
    });

    describe('rejects, as an internal error,', () => {
      // What the compiler would not let through comes in as JSON.
      const wrong: readonly [string, string][] = [
        ['an operator', '{"account":{"$gt":""}}'],
        ['a condition it does not know', '{"account":{"regex":".*"}}'],
        ['two conditions at once', '{"account":{"in":["a"],"exists":true}}'],
        ['an empty condition', '{"account":{}}'],
        ['a list as a value', '{"account":["a"]}'],
        ['an object in a list', '{"account":{"in":[{"$gt":""}]}}'],
        ['an object as a bound', '{"rank":{"range":{"gt":{"$gt":1}}}}'],
        ['a bound it does not know', '{"rank":{"range":{"$gt":1}}}'],
        ['a range without ends', '{"rank":{"range":{}}}'],
        ['null as a bound', '{"rank":{"range":{"gt":null}}}'],
        ['an operator as a field', '{"$where":"1"}'],
        ['a path as a field', '{"note.a":1}'],
        ['a prototype as a field', '{"__proto__":1}'],
        ['the inner id as a field', '{"_id":"1"}'],
        ['a number as an id', '{"id":1}'],
        ['text as a date', '{"at":"2026-01-05"}'],
        ['a prefix of a date', '{"at":{"startsWith":"2"}}'],
        ['a prefix that is no text', '{"label":{"startsWith":{"$gt":""}}}'],
      ];
      for (const [what, json] of wrong) {
        it(`${what} in a filter: ${json}`, async () => {
          await put(thing('1', { label: 'x', rank: 2 }));
          const filter: Filter<Thing> = JSON.parse(json);
          for (const act of [
            rows.one(filter),
            rows.many(filter),
            rows.change(filter, { label: 'y' }),
            rows.remove(filter),
          ])
            expect(await failure(act)).to.be.instanceOf(TypeError);
          expect(await rows.many({})).to.deep.equal([thing('1', { label: 'x', rank: 2 })]);
        });
      }

      it('an undefined field in a filter, which would match everything', async () => {
        const filter: Filter<Thing> = Object.fromEntries([['account', undefined]]);
        expect(await failure(rows.remove(filter))).to.be.instanceOf(TypeError);
      });

      it('values that cannot be stored', async () => {
        const at = new Date(Number.NaN);
        const bad: object[] = [
          { rank: Number.NaN },
          { rank: Infinity },
          { at },
          { at: new Date('+010000-01-01') },
          { at: '2026' },
          { label: new Date() },
          { note: new Map() },
          { note: 1n },
          { rank: [1] },
          { rank: { a: 1 } },
          { $set: 1 },
          { 'a.b': 1 },
          JSON.parse('{"__proto__":1}'),
        ];
        for (const fields of bad) {
          const row: Thing = Object.fromEntries([
            ...Object.entries(thing('1')),
            ...Object.entries(fields),
          ]) as unknown as Thing;
          expect(await failure(rows.insert(row))).to.be.instanceOf(TypeError);
        }
        expect(await rows.many({})).to.deep.equal([]);
      });

      it('values nested without end', async () => {
        let note: Value = 1;
        for (let i = 0; i < 5000; i++) note = { n: note };
        expect(await failure(rows.insert(thing('1', { note })))).to.be.instanceOf(TypeError);
      });

      it('sorting without an index, and invalid limits', async () => {
        expect(await failure(rows.many({}, { sort: 'note' }))).to.be.instanceOf(TypeError);
        expect(await failure(rows.many({}, { limit: -1 }))).to.be.instanceOf(TypeError);
        expect(await failure(rows.many({}, { limit: 1.5 }))).to.be.instanceOf(TypeError);
      });
    });

    describe('inserts', () => {
      it('once: the same id again is a duplicate without effect', async () => {
        await put(thing('1', { label: 'first' }));
        expect(await rows.insert(thing('1', { label: 'second' }))).to.equal('duplicate');
        expect(await rows.one({ id: '1' })).to.include({ label: 'first' });
      });

      it('one of 50 rows with the same id', async () => {
        const outcomes = await Promise.all(
          Array.from({ length: 50 }, (_, i) => rows.insert(thing('same', { rank: i }))),
        );
        expect(outcomes.filter((outcome) => outcome === 'inserted')).to.have.length(1);
        expect((await rows.one({ id: 'same' }))?.rank).to.equal(outcomes.indexOf('inserted'));
      });

      it('inserts other rows besides a duplicate', async () => {
        await put(thing('n25'));
        const outcomes = await Promise.all(Array.from({ length: 50 }, (_, i) => rows.insert(thing(`n${i}`))));
        expect(outcomes.map((outcome, i) => (outcome === 'duplicate' ? i : -1)).filter((i) => i >= 0)).to.deep.equal([
          25,
        ]);
        expect(await rows.many({})).to.have.length(50);
      });

      it('many together, each judged by itself', async () => {
        await put(thing('m1', { label: 'first' }));
        expect(await rows.insertAll([])).to.deep.equal([]);
        expect(await rows.insertAll([thing('m0'), thing('m1'), thing('m2'), thing('m2')])).to.deep.equal([
          'inserted',
          'duplicate',
          'inserted',
          'duplicate',
        ]);
        expect(await ids({})).to.deep.equal(['m0', 'm1', 'm2']);
        expect(await rows.one({ id: 'm1' })).to.include({ label: 'first' });
      });

      it('without undefined fields', async () => {
        const row: Thing = Object.fromEntries([...Object.entries(thing('1')), ['note', undefined]]) as unknown as Thing;
        await put(row);
        expect(await rows.one({ id: '1' })).to.deep.equal(thing('1'));
      });
    });

    describe('changes', () => {
      it('the named fields, and returns the new row', async () => {
        await put(thing('1', { label: 'x', rank: 1, at: new Date(1), note: { a: 1, b: 2 } }));
        expect(await rows.change({ id: '1' }, { label: '$rank', at: new Date(2), note: { c: 3 } })).to.deep.equal(
          thing('1', { label: '$rank', rank: 1, at: new Date(2), note: { c: 3 } }),
        );
        expect(await rows.one({ id: '1' })).to.deep.equal(
          thing('1', { label: '$rank', rank: 1, at: new Date(2), note: { c: 3 } }),
        );
      });

      it('a field to null, and skips an undefined one', async () => {
        await put(thing('1', { label: 'x', rank: 1 }));
        expect(await rows.change({ id: '1' }, { label: null, rank: undefined })).to.deep.equal(thing('1', { rank: 1 }));
        expect(await ids({ label: null })).to.deep.equal(['1']);
      });

      it('nothing by an empty patch, but returns the row', async () => {
        await put(thing('1', { label: 'x' }));
        expect(await rows.change({ id: '1' }, {})).to.deep.equal(thing('1', { label: 'x' }));
      });

      it('nothing where none matches', async () => {
        await put(thing('1'));
        expect(await rows.change({ id: '1', account: 'b' }, { label: 'x' })).to.equal(undefined);
        expect(await rows.one({ id: '1' })).to.deep.equal(thing('1'));
      });

      it('one row of several that match', async () => {
        await put(thing('1'), thing('2'), thing('3'));
        expect(await rows.change({ account: 'a' }, { label: 'x' })).to.include({ label: 'x' });
        expect(await ids({ label: 'x' })).to.have.length(1);
      });

      it('for one of 50 that want the same row', async () => {
        await useCrowded();
        await put(thing('1', { label: 'free' }));
        const got = await Promise.all(
          Array.from({ length: 50 }, (_, i) => rows.change({ id: '1', label: 'free' }, { label: 'taken', rank: i })),
        );
        expect(got.filter((row) => row !== undefined)).to.have.length(1);
        expect(await rows.one({ id: '1' })).to.deep.equal(got.find((row) => row !== undefined));
      });
    });

    describe('adds', () => {
      it('to an existing row, to a missing field, and creates a missing row', async () => {
        const { id: _, ...row } = thing('1', { rank: 5 });
        expect(await rows.add('1', { rank: 2, count: 3 }, row)).to.deep.equal(thing('1', { rank: 7, count: 3 }));
        expect(await rows.add('1', { rank: -1, count: 0.5 }, row)).to.deep.equal(thing('1', { rank: 6, count: 3.5 }));
        expect(await rows.add('1', {}, row)).to.deep.equal(thing('1', { rank: 6, count: 3.5 }));
        expect(await rows.one({ id: '1' })).to.deep.equal(thing('1', { rank: 6, count: 3.5 }));
      });

      it('adds 50 concurrently without losing one, whichever call creates the row', async () => {
        await useCrowded();
        const { id: _, ...row } = thing('1', { rank: 0 });
        const answers = await Promise.all(Array.from({ length: 50 }, () => rows.add('1', { rank: 1, count: 2 }, row)));
        expect(answers.map(({ rank }) => Number(rank)).sort((a, b) => a - b)).to.deep.equal(
          Array.from({ length: 50 }, (_, i) => i + 1),
        );
        expect(await rows.one({ id: '1' })).to.deep.equal(thing('1', { rank: 50, count: 100 }));
      });

      if (!lacks(driver.kind, 'strict sums'))
        it('nothing to a field that is not a number', async () => {
          const { id: _, ...row } = thing('1', { rank: 'text', count: null });
          await put(thing('1', { rank: 'text', count: null }));
          expect(await failure(rows.add('1', { rank: 1 }, { ...row, rank: 0 }))).to.be.instanceOf(Error);
          expect(await failure(rows.add('1', { count: 1 }, { ...row, count: 0 }))).to.be.instanceOf(Error);
          expect(await failure(rows.add('2', { rank: 1 }, row))).to.be.instanceOf(TypeError);
          expect(await rows.many({})).to.deep.equal([thing('1', { rank: 'text', count: null })]);
        });
    });

    describe('removes', () => {
      it('one row and returns it', async () => {
        await put(thing('1', { label: 'x' }), thing('2'));
        expect(await rows.remove({ id: '1' })).to.deep.equal(thing('1', { label: 'x' }));
        expect(await rows.remove({ id: '1' })).to.equal(undefined);
        expect(await ids({})).to.deep.equal(['2']);
        expect(await rows.remove({ account: 'a' })).to.deep.equal(thing('2'));
      });

      it('all that match, and returns how many', async () => {
        await put(thing('1', { label: 'x' }), thing('2'), thing('3', { label: 'x' }), thing('4', { label: 'x' }));
        expect(await rows.removeAll({ id: { in: ['1', '2', '3', 'none'] }, label: 'x' })).to.equal(2);
        expect(await ids({})).to.deep.equal(['2', '4']);
        expect(await rows.removeAll({ id: { in: [] } })).to.equal(0);
        expect(await ids({})).to.deep.equal(['2', '4']);
      });

      it('every row once when 50 remove at once', async () => {
        await useCrowded();
        await put(...Array.from({ length: 20 }, (_, i) => thing(`r${i}`)));
        const got = await Promise.all(Array.from({ length: 50 }, (_, i) => rows.remove({ id: `r${i % 20}` })));
        expect(got.flatMap((row) => row?.id ?? []).sort()).to.deep.equal(
          Array.from({ length: 20 }, (_, i) => `r${i}`).sort(),
        );
        expect(await rows.many({})).to.deep.equal([]);
      });
    });

    describe('with a unique index', () => {
      let rows: Collection<Seat>;
      beforeEach(async () => {
        rows = await database.collection(ofItsOwn(seats));
      });

      it('refuses a second row with the same values', async () => {
        expect(await rows.insert({ id: '1', room: 'r', number: 1 })).to.equal('inserted');
        expect(await rows.insert({ id: '2', room: 'r', number: 1 })).to.equal('duplicate');
        expect(await rows.insert({ id: '3', room: 'r', number: 2 })).to.equal('inserted');
        expect(await rows.insert({ id: '4', room: 's', number: 1 })).to.equal('inserted');
        expect((await rows.many({}, { sort: 'id' })).map(({ id }) => id)).to.deep.equal(['1', '3', '4']);
      });

      it('treats null and absent as one value, as MongoDB does, and keeps absent as null', async () => {
        expect(await rows.insert({ id: '1', room: 'r' })).to.equal('inserted');
        expect(await rows.insert({ id: '2', room: 'r', number: null })).to.equal('duplicate');
        expect(await rows.insert({ id: '3', room: 'r' })).to.equal('duplicate');
        expect(await rows.many({})).to.deep.equal([{ id: '1', room: 'r', number: null }]);
      });

      it('throws when a change or an addition would violate it, and leaves the row', async () => {
        await rows.insert({ id: '1', room: 'r', number: 1 });
        await rows.insert({ id: '2', room: 'r', number: 2 });
        // FerretDB refuses too, but without the code of a duplicate key in this command.
        expect(await failure(rows.change({ id: '2' }, { number: 1 }))).to.be.instanceOf(
          driver.kind === 'ferretdb' ? Error : DuplicateRow,
        );
        expect(await failure(rows.add('3', { visits: 1 }, { room: 'r', number: 1 }))).to.be.instanceOf(DuplicateRow);
        expect(await rows.many({}, { sort: 'id' })).to.deep.equal([
          { id: '1', room: 'r', number: 1 },
          { id: '2', room: 'r', number: 2 },
        ]);
        expect(await rows.change({ id: '2' }, { number: 2, guest: 'g' })).to.deep.equal({
          id: '2',
          room: 'r',
          number: 2,
          guest: 'g',
        });
      });

      it('lets one of 50 have a value', async () => {
        const outcomes = await Promise.all(
          Array.from({ length: 50 }, (_, i) => rows.insert({ id: `s${i}`, room: 'r', number: 7 })),
        );
        expect(outcomes.filter((outcome) => outcome === 'inserted')).to.have.length(1);
        expect(await rows.many({ room: 'r', number: 7 })).to.have.length(1);
      });
    });

    it('can be opened again, with more indexes than before', async () => {
      const spec = ofItsOwn<Thing>({ ...things, indexes: [['label']] });
      await (await database.collection(spec)).insert(thing('1', { label: 'x', rank: 4 }));
      const again = await database.collection<Thing>({ ...spec, indexes: [['label'], ['rank']] });
      expect(await again.many({ rank: 4 }, { sort: '-rank' })).to.deep.equal([thing('1', { label: 'x', rank: 4 })]);
    });

    it('proves by a ping that a write would be durable', async () => {
      await database.ping();
      await database.ping();
    });
  });
}
