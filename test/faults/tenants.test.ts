import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Answer } from '../support/daemon.ts';
import { judgeWhenQuiet } from '../support/faults/checker.ts';
import { type Disk, noDisk, openDisk } from '../support/faults/disk.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { addAccount } from '../support/second-account.ts';

const MEGABYTE = 1024 * 1024;
const DISK = size('TENANTS_MB', 2048, 224);
/** What mail must leave alone. */
const FLOOR = 64 * MEGABYTE;
const TENANTS = size('TENANTS', 8, 3);
/** Mail small enough that the disk is the tenants', however long they take. */
const MAIL_BYTES = 1000;
const CONNECTIONS = size('TENANTS_CONNECTIONS', 40, 12);
const OVERLOOK_ROOM = new URL('../support/faults/overlook-room.ts', import.meta.url);
const CODE = 'x'.repeat(900_000);
const ENV = {
  POSTERN_SMTP__MAX_MESSAGE_BYTES: String(MEGABYTE),
  POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
  POSTERN_SPOOL__MIN_FREE_BYTES: String(FLOOR),
  POSTERN_ACCOUNTS__MAX_CALLS_PER_SECOND: '100000',
  // From one address, as nothing else is meant to stop them.
  POSTERN_HTTP__MAX_CONNECTIONS_PER_ADDRESS: '1000',
};

const freeOf = ({ path }: Disk): number => {
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize;
};

type Tenant = Awaited<ReturnType<typeof addAccount>>;

/** Adds templates over many connections until each of them was refused a few times. Answers names and refusals. */
async function grow({ ask }: Tenant): Promise<{ readonly names: string[]; readonly refused: Answer[] }> {
  const names: string[] = [];
  const refused: Answer[] = [];
  const work = async (connection: number) => {
    for (let n = 0, refusals = 0; refusals < 5; n++) {
      const name = `t${connection}-${n}`;
      // Where one address has too many large bodies on the way: 429, or the connection is closed. It comes again.
      const answer = await ask('/templates/add', { name, code: CODE }).catch(() => undefined);
      if (answer === undefined || answer.status === 429) continue;
      if (answer.status === 200) names.push(name);
      else {
        refusals++;
        refused.push(answer);
      }
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, (_, connection) => work(connection)));
  return { names, refused };
}

describe(`${TENANTS} tenants that write templates at full speed on a disk of ${DISK} MB`, function () {
  this.timeout(900_000);
  let disk: Disk;
  let world: World;
  let watch: NodeJS.Timeout | undefined;

  before(function () {
    const reason = noDisk('tmpfs');
    if (reason === undefined) return;
    console.log(`    no disk is filled: ${reason}`);
    this.skip();
  });
  /** Answers the least space that there was since. */
  function watchLowest(): () => number {
    let lowest = freeOf(disk);
    watch = setInterval(() => {
      lowest = Math.min(lowest, freeOf(disk));
    }, 2);
    return () => lowest;
  }
  beforeEach(async () => {
    disk = openDisk('tmpfs', DISK);
    world = await openWorld({ data: join(disk.path, 'data'), env: ENV });
  });
  afterEach(async () => {
    clearInterval(watch);
    await world.close();
    await disk.remove();
  });

  it('are refused one by one while mail of another is accepted; everything can be deleted', async () => {
    const { edge, ledger, sink } = world;
    await edge.start();
    const load = world.load({ connections: 5, perSecond: 40, bytes: MAIL_BYTES });
    load.turnTo(edge.daemon().smtp);
    const lowest = watchLowest();
    const tenants: Tenant[] = [];
    for (let n = 0; n < TENANTS; n++)
      tenants.push(await addAccount({ dir: edge.dir, base: edge.daemon().base }, `t${n}`));
    const began = freeOf(disk);
    const grown: Awaited<ReturnType<typeof grow>>[] = [];
    const left: number[] = [];
    for (const tenant of tenants) {
      grown.push(await grow(tenant));
      left.push(Math.floor(freeOf(disk) / MEGABYTE));
    }
    const gone: number[] = [];
    for (const [n, { ask }] of tenants.entries()) {
      for (const name of grown[n]?.names ?? []) gone.push((await ask('/templates/delete', { name })).status);
    }
    clearInterval(watch);
    await load.stop();
    const verdict = await judgeWhenQuiet(edge.dir, ledger, sink, 60_000);
    tell('tenants', verdict, {
      'MB free at first': Math.floor(began / MEGABYTE),
      'after each tenant': left.join(' '),
      'least free MB': Math.floor(lowest() / MEGABYTE),
      templates: gone.length,
      'mails refused': load.refused.length,
    });
    // A client that sends for long in one session is told to reconnect.
    expect(load.refused.filter(({ reply }) => !reply.startsWith('421 4.7.0 Too many messages'))).to.deep.equal([]);
    expect(lowest()).to.be.above(FLOOR);
    expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], dead: 0 });
    expect(left[0], 'the first tenant leaves half of what may be used').to.be.above(began / MEGABYTE / 3);
    expect(
      grown.every(({ names }) => names.length > 0),
      'there is something left for each',
    ).to.equal(true);
    const [first] = grown;
    expect(first?.refused[0]?.body).to.deep.include({ name: 'ValidationError' });
    expect(JSON.stringify(first?.refused[0]?.body)).to.contain('delete something first');
    expect(new Set(gone)).to.deep.equal(new Set([200]));
  });

  it('use up the space for mail if it is not reserved (control)', async () => {
    const { edge } = world;
    await edge.start({ imports: [OVERLOOK_ROOM] });
    const lowest = watchLowest();
    const tenants: Tenant[] = [];
    for (const name of ['t0', 't1']) tenants.push(await addAccount({ dir: edge.dir, base: edge.daemon().base }, name));
    for (const tenant of tenants) await grow(tenant);
    console.log(`      tenants, control: least free MB ${Math.floor(lowest() / MEGABYTE)}`);
    expect(lowest()).to.be.below(FLOOR);
  });
});
