import { expect } from 'chai';
import { duplicates, joinPages } from '../../../src/api/hosts/join-hosts.ts';
import type { AskedHost } from '../../../src/api/operation.ts';

interface Row {
  readonly n: number;
  readonly at: number;
  readonly record: string;
}
interface Part {
  readonly rows: readonly Row[];
  readonly next: number | null;
}

interface MailPart {
  readonly rows: readonly { n: number; at: number; record: { id: string; state: string } }[];
  readonly next: number | null;
}

/** A history of rows with numbers from 1, and these times. */
class History {
  readonly id: string;
  readonly times: number[];
  /** Rows that one answer has at most. */
  most = Number.POSITIVE_INFINITY;
  isSilent = false;
  isLeftOut = false;

  constructor(id: string, times: readonly number[]) {
    this.id = id;
    this.times = [...times];
  }

  /** As a search in the history answers it. */
  page({ limit, before = Number.POSITIVE_INFINITY }: { limit: number; before?: number | undefined }): Part {
    const all = this.times.map((at, i) => ({ n: i + 1, at, record: `${this.id}${i + 1}` }));
    const rows = all.filter(({ n }) => n < before).toReversed();
    const shown = rows.slice(0, Math.min(limit, this.most));
    const last = shown.at(-1)?.n ?? before;
    return { rows: shown, next: shown.length < rows.length ? last : null };
  }

  get asked(): AskedHost<Part> {
    return {
      id: this.id,
      leaveOut: () => {
        this.isLeftOut = true;
      },
      ask: async (change) => {
        if (this.isSilent) {
          this.isLeftOut = true;
          return undefined;
        }
        return this.page(change as { limit: number; before?: number });
      },
    };
  }
}

const toHosts = ([here, ...others]: readonly History[]) => ({
  here: (here as History).asked,
  others: others.map(({ asked }) => asked),
});

/** All records, page by page. */
async function readAll(histories: readonly History[], limit: number, between: (page: number) => void = () => {}) {
  const all: string[] = [];
  let before: number | string | undefined;
  for (let page = 1; ; page++) {
    const { records, next } = await joinPages(toHosts(histories), { before, limit });
    all.push(...(records as string[]));
    if (next === null) return all;
    if (page > 1000) throw new Error('it does not end');
    before = next;
    between(page);
  }
}

/** Numbers that are the same in every run. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

describe('the pages of several hosts', () => {
  it('are one list, newest first, without gaps or repetitions', async () => {
    for (let seed = 1; seed <= 200; seed++) {
      const next = random(seed);
      const histories = ['a', 'b', 'c'].map((id) => {
        let at = 0;
        return new History(
          id,
          Array.from({ length: Math.floor(next() * 30) }, () => (at += Math.floor(next() * 4))),
        );
      });
      for (const history of histories) if (next() < 0.3) history.most = 1 + Math.floor(next() * 4);
      const limit = 1 + Math.floor(next() * 12);
      const all = await readAll(histories, limit);
      const wanted = histories.flatMap(({ times, id }) => times.map((at, i) => ({ at, record: `${id}${i + 1}` })));
      expect(all.toSorted(), `seed ${seed}`).to.deep.equal(wanted.map(({ record }) => record).sort());
      const times = all.map((record) => wanted.find((one) => one.record === record)?.at ?? 0);
      expect(times, `seed ${seed}`).to.deep.equal(times.toSorted((a, b) => b - a));
    }
  });

  it('do not repeat a record when new mail comes in between', async () => {
    const [a, b] = [new History('a', [1, 3, 5, 7]), new History('b', [2, 4, 6, 8])];
    const all = await readAll([a, b], 3, () => {
      a.times.push(100);
      b.times.push(101);
    });
    expect(all).to.deep.equal(['b4', 'a4', 'b3', 'a3', 'b2', 'a2', 'b1', 'a1']);
  });

  it('of one host have its own cursor', async () => {
    const alone = new History('a', [1, 2, 3]);
    expect((await joinPages(toHosts([alone]), { before: undefined, limit: 2 })).next).to.equal(2);
    expect((await joinPages(toHosts([alone]), { before: 2, limit: 2 })).next).to.equal(null);
  });

  it('leave out, to the end, a host that does not answer at the beginning', async () => {
    const [a, b] = [new History('a', [1, 3, 5]), new History('b', [2, 4, 6])];
    b.isSilent = true;
    const first = await joinPages(toHosts([a, b]), { before: undefined, limit: 2 });
    expect(b.isLeftOut).to.equal(true);
    [b.isSilent, b.isLeftOut] = [false, false];
    const second = await joinPages(toHosts([a, b]), { before: first.next ?? undefined, limit: 2 });
    expect([...first.records, ...second.records]).to.deep.equal(['a3', 'a2', 'a1']);
    expect(b.isLeftOut, 'and is named').to.equal(true);
  });

  it('go on with a host that did not answer for one of them', async () => {
    const [a, b] = [new History('a', [1, 3, 5, 7, 9]), new History('b', [2, 4, 6])];
    const all = await readAll([a, b], 2, (page) => {
      b.isSilent = page === 1;
    });
    expect(all.toSorted()).to.deep.equal(['a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'b2', 'b3']);
  });

  it('end although a host that has more does not answer', async () => {
    const [a, b] = [new History('a', [5, 6]), new History('b', [1, 2, 3, 4])];
    const all = await readAll([a, b], 3, () => {
      b.isSilent = true;
    });
    expect(all).to.deep.equal(['a2', 'a1', 'b4']);
  });

  it('list mail that was taken over once, as the host that continued it has it', async () => {
    for (let seed = 1; seed <= 50; seed++) {
      const next = random(seed);
      const taken = (n: number) => n % 3 === 0;
      // A accepted all of it; B has taken over some.
      const old = Array.from({ length: 10 + Math.floor(next() * 20) }, (_, n) => n);
      const of = (host: string, rows: readonly { at: number; id: string; state: string }[]): AskedHost<MailPart> => ({
        id: host,
        leaveOut: () => {},
        ask: async (change) => {
          const { limit, before = Number.POSITIVE_INFINITY } = change as { limit: number; before?: number };
          const all = rows.map(({ at, ...record }, n) => ({ n: n + 1, at, record })).filter(({ n }) => n < before);
          const shown = all.toReversed().slice(0, limit);
          return { rows: shown, next: shown.length < all.length ? (shown.at(-1)?.n ?? 0) : null };
        },
      });
      const states = ['dropped', 'unknown', 'waiting'];
      const stateOf = (n: number) => (taken(n) ? (states[n % states.length] ?? '') : 'delivered');
      const a = of(
        'a',
        old.map((n) => ({ at: 10 * n, id: `m${n}`, state: stateOf(n) })),
      );
      const before = Array.from({ length: 7 }, (_, n) => ({ at: 45 + 10 * n, id: `b${n}`, state: 'delivered' }));
      const since = before.map(({ at, id, state }) => ({ at: at + 1000, id: `${id} since`, state }));
      const b = of('b', [
        ...before,
        ...old.filter(taken).map((n) => ({ at: 10 * n, id: `m${n}`, state: 'delivered' })),
        ...since,
      ]);
      const found: MailPart['rows'][number]['record'][] = [];
      for (let cursor: number | string | undefined, isEnd = false; !isEnd; ) {
        const page = await joinPages({ here: a, others: [b] }, { before: cursor, limit: 1 + (seed % 5) }, duplicates);
        found.push(...page.records);
        isEnd = page.next === null;
        cursor = page.next ?? undefined;
      }
      const all = [...old.map((n) => `m${n}`), ...[...before, ...since].map(({ id }) => id)];
      expect(
        found.map(({ id }) => id),
        `seed ${seed}`,
      ).to.have.members(all);
      expect(
        found.filter(({ state }) => state !== 'delivered'),
        `seed ${seed}`,
      ).to.deep.equal([]);
    }
  });
});
