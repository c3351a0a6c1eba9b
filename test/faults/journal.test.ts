import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { noDisk, openDisk } from '../support/faults/disk.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { scrape } from '../support/metrics.ts';
import { until } from '../support/until.ts';

/** Messages before, during and after each fault. */
const MESSAGES = size('JOURNAL_MESSAGES', 2000, 100);
const RATE = size('JOURNAL_RATE', 200, 50);
/** The comparison with the queue comes five seconds after the journal is back, and its thread after ten. */
const BACK_MS = 60_000;
const DIES = new URL('../support/faults/journal-dies.ts', import.meta.url);
const OVERLOOKED = new URL('../support/faults/overlook-deletion.ts', import.meta.url);
const WHOLE = { lost: [], mismatched: [], altered: [], waiting: 0, dead: 0, duplicates: 0 };

interface Seen {
  readonly verdict: Verdict;
  /** Replies that were not the one hoped for. */
  readonly refused: number;
  /** Milliseconds from the fault until the next 250. */
  readonly pause: number;
  /** Acknowledged messages that the journal does not say to be delivered, at the end. */
  readonly unknown: number;
  /** Entries that the journal counted as lost. */
  readonly lost: number;
  readonly faults: number;
}

/** Messages that the file of the journal says to be delivered. */
function delivered(file: string): Set<string> {
  try {
    const db = new DatabaseSync(file, { readOnly: true });
    try {
      const rows = db.prepare(`SELECT substr(id, 1, 26) AS id FROM mail WHERE state = 'delivered'`).all();
      return new Set(rows.map(({ id }) => String(id)));
    } finally {
      db.close();
    }
  } catch {
    return new Set();
  }
}

/** Sends mail, causes the fault in the middle, and checks both records and the journal. `mend` ends the fault. */
async function through(
  world: World,
  { hit, mend = () => {}, imports = [] }: { hit: (file: string) => void; mend?: () => void; imports?: readonly URL[] },
  ms = BACK_MS,
): Promise<Seen> {
  const { edge, ledger, sink } = world;
  const file = join(edge.dir, 'journal.db');
  await edge.start({ imports });
  const load = world.load({ connections: 10, perSecond: RATE });
  load.turnTo(edge.daemon().smtp);
  const more = (count: number) => {
    const target = load.acknowledged() + count;
    return until('mail to be taken', () => load.acknowledged() >= target, 120_000);
  };
  await more(MESSAGES);
  const at = Date.now();
  hit(file);
  const before = load.acknowledged();
  await until('the next 250', () => load.acknowledged() > before, 30_000);
  const pause = load.lastAccepted() - at;
  await more(MESSAGES);
  mend();
  await more(MESSAGES);
  await load.stop();
  const verdict = await judgeWhenQuiet(edge.dir, ledger, sink);
  const unknown = () => {
    const known = delivered(file);
    return [...ledger.acknowledged.values()].filter((id) => !known.has(id)).length;
  };
  const lost = async () => (await scrape(edge.daemon().base)).of('postern_journal_lost_total');
  await until('the journal to know the mail', async () => unknown() <= (await lost()), ms).catch(() => {});
  return {
    verdict,
    refused: load.refused.length,
    pause,
    unknown: unknown(),
    lost: await lost(),
    faults: edge.daemon().lines.filter(({ event }) => event === 'journal.fault').length,
  };
}

function show(what: string, { verdict, ...rest }: Seen): void {
  const { lost, unknown, ...figures } = rest;
  tell(what, verdict, { ...figures, 'unknown to the history': unknown, 'lost and counted': lost });
}

describe(`failures of the history file under load, ${MESSAGES} messages before, during and after`, function () {
  this.timeout(600_000);

  for (const [what, said, hit] of [
    ['deleted', 1, (file: string) => rmSync(file)],
    [
      // What it had in memory and in its log is written over it, if it does not notice before.
      'overwritten in its middle',
      0,
      (file: string) => {
        const bytes = readFileSync(file);
        writeFileSync(file, bytes.fill(0xa5, 4096));
      },
    ],
    [
      'replaced by a folder',
      1,
      (file: string) => {
        rmSync(file);
        mkdirSync(file);
      },
    ],
  ] as const) {
    it(`lose no mail when it is ${what}, and queued mail is entered again`, async () => {
      const world = await openWorld();
      try {
        const seen = await through(world, { hit });
        show(what, seen);
        expect(seen.verdict).to.deep.include(WHOLE);
        expect(seen.refused).to.equal(0);
        expect(seen.pause).to.be.below(5000);
        expect(seen.faults).to.be.within(said, 2);
        expect(seen.unknown).to.be.at.most(seen.lost);
      } finally {
        await world.close();
      }
    });
  }

  it('lose no mail when its thread dies: unwritten entries are counted, and another thread continues', async () => {
    const world = await openWorld();
    try {
      const hit = (file: string) => writeFileSync(file.replace(/db$/, 'die'), '');
      const seen = await through(world, { hit, imports: [DIES] });
      show('the thread died', seen);
      expect(seen.verdict).to.deep.include(WHOLE);
      expect(seen.refused).to.equal(0);
      expect(seen.faults).to.equal(1);
      expect(seen.unknown).to.be.at.most(seen.lost);
      expect(world.edge.daemon().lines.map(({ event }) => event)).to.include('journal.resumed');
    } finally {
      await world.close();
    }
  });

  it('lose no mail when its disk is full: unwritten entries are counted until there is space', async function () {
    const reason = noDisk('tmpfs');
    if (reason !== undefined) {
      console.log(`    no disk is filled: ${reason}`);
      return this.skip();
    }
    const disk = openDisk('tmpfs', 32);
    const world = await openWorld();
    try {
      mkdirSync(world.edge.dir, { recursive: true });
      symlinkSync(join(disk.path, 'journal.db'), join(world.edge.dir, 'journal.db'));
      const other = join(disk.path, 'other');
      const hit = () => {
        try {
          writeFileSync(other, Buffer.alloc(32 * 1024 * 1024));
        } catch {
          // It is full now.
        }
      };
      const seen = await through(world, { hit, mend: () => rmSync(other) });
      show('its disk was full', seen);
      expect(seen.verdict).to.deep.include(WHOLE);
      expect(seen.refused).to.equal(0);
      expect(seen.lost).to.be.above(0);
      expect(seen.unknown).to.be.at.most(seen.lost);
      expect(world.edge.daemon().lines.map(({ event }) => event)).to.include('journal.resumed');
    } finally {
      await world.close();
      await disk.remove();
    }
  });

  it('are permanent if the existence of the file is not checked (control)', async () => {
    const world = await openWorld();
    try {
      const seen = await through(world, { hit: (file) => rmSync(file), imports: [OVERLOOKED] }, 10_000);
      show('deleted, control', seen);
      expect(seen.verdict).to.deep.include(WHOLE);
      expect(seen.unknown).to.be.above(seen.lost);
    } finally {
      await world.close();
    }
  });
});
