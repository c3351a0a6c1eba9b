import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, readlink, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import type { Clock } from '../../../src/base/clock.ts';
import type { Verdicts } from '../../../src/mail/addresses/envelope.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { freshSpool, given, mail, openOne, put, settled, spoolSettings, WITHOUT_KINDS } from '../../support/spool.ts';
import { killAfter, missing, startSpoolProcess } from '../../support/spool-process.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

async function putLarge(spool: Spool, clock: Clock, id: string) {
  const writer = spool.body(id);
  await writer.write(randomBytes(300_000));
  return put(spool, clock, { id, body: await writer.finish() });
}

async function fault(promise: Promise<unknown>): Promise<{ name: string; message: string }> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('it did not fail');
}

describe('opening the spool', () => {
  it('deletes incomplete mail, and large bodies without a message', async () => {
    const { dir, spool, clock, reopen, log } = await freshSpool();
    const kept = await putLarge(spool, clock, 'kept');
    await spool.close();
    await writeFile(join(dir, 'tmp', 'half'), 'half a message');
    await writeFile(join(dir, 'blobs', 'orphan'), 'nobody waits for me');
    const again = await reopen();
    expect(await readdir(join(dir, 'tmp'))).to.deep.equal([]);
    expect(await readdir(join(dir, 'blobs'))).to.deep.equal(['kept']);
    expect(await again.message(kept.message.id)).to.not.equal(undefined);
    expect(log.of('spool.recovered').at(-1)?.fields).to.include({
      waiting: 1,
      orphans: 1,
      unfinished: 1,
      largeBodies: 1,
    });
  });

  it('fails the deliveries of a message whose large body is missing, truncated or changed, and continues with the others', async () => {
    const { dir, spool, clock, reopen, log } = await freshSpool();
    const [gone, cut, changed, whole] = [
      await putLarge(spool, clock, 'gone'),
      await putLarge(spool, clock, 'cut'),
      await putLarge(spool, clock, 'changed'),
      await putLarge(spool, clock, 'whole'),
    ];
    await spool.close();
    await rm(join(dir, 'blobs', 'gone'));
    await truncate(join(dir, 'blobs', 'cut'), 1000);
    const bytes = await readFile(join(dir, 'blobs', 'changed'));
    bytes[150_000] = (bytes[150_000] ?? 0) ^ 1;
    await writeFile(join(dir, 'blobs', 'changed'), bytes);
    const again = await reopen();
    for (const { message } of [gone, cut, changed]) await again.message(message.id);
    for (const { delivery } of [gone, cut, changed]) {
      const queued = await again.delivery(delivery.id);
      expect(queued?.state).to.equal('dead');
      expect(queued?.lastError).to.match(/^message lost: /);
    }
    expect((await again.delivery(whole.delivery.id))?.state).to.equal('waiting');
    expect(await again.message('whole')).to.not.equal(undefined);
    expect(again.backlog('acme')).to.equal(1);
    expect(log.of('spool.fault').filter(({ level }) => level === 'error')).to.have.length(3);
  });

  it('ignores a torn end of the write-ahead log', async () => {
    const dir = await tempDir();
    const child = startSpoolProcess([dir, 1, 1_000_000]);
    await killAfter(child, 30);
    const wal = join(dir, 'spool.db-wal');
    await writeFile(wal, Buffer.concat([await readFile(wal), randomBytes(5000)]));
    const { spool } = await freshSpool(dir);
    expect(await missing(spool, child.results())).to.deep.equal([]);
  });

  it('rejects a queue written by a newer version, and leaves it unchanged', async () => {
    const { dir, spool } = await freshSpool();
    await spool.close();
    const db = new DatabaseSync(join(dir, 'spool.db'));
    db.exec('PRAGMA user_version = 99');
    db.close();
    const error = await fault(openOne(dir, { clock: createTestClock(), log: createTestLog() }));
    expect(error.name).to.equal('SpoolTooNew');
    expect(error.message).to.contain('format 99');
  });

  it('rejects a second daemon on the same folder, and takes over the folder of one that was killed', async () => {
    const dir = await tempDir();
    const child = startSpoolProcess([dir, 1, 1_000_000]);
    try {
      await until('the first daemon takes mail', () => child.results().length > 0);
      const error = await fault(openOne(dir, { clock: createTestClock(), log: createTestLog() }));
      expect(error.name).to.equal('SpoolInUse');
    } finally {
      child.child.kill('SIGKILL');
      await child.ended;
    }
    const { spool } = await freshSpool(dir);
    expect(await missing(spool, child.results())).to.deep.equal([]);
  });

  it('finishes an interrupted replacement of the queue file', async () => {
    const { dir, spool, clock, reopen } = await freshSpool();
    const { message } = await put(spool, clock);
    await spool.close();
    const old = await readFile(join(dir, 'spool.db'));
    await writeFile(join(dir, 'spool.db.next'), old);
    await writeFile(join(dir, 'spool.db'), 'no longer a queue');
    await writeFile(join(dir, 'spool.db-wal'), 'of the old one');
    const again = await reopen();
    expect(await again.message(message.id)).to.not.equal(undefined);
    expect(existsSync(join(dir, 'spool.db.next'))).to.equal(false);
  });
});

describe('a damaged queue file', () => {
  /** Fills a queue and answers what was put there. */
  async function filled(count: number) {
    const opened = await freshSpool();
    const mails = await Promise.all(Array.from({ length: count }, () => put(opened.spool, opened.clock)));
    await opened.spool.close();
    return { ...opened, mails, file: join(opened.dir, 'spool.db') };
  }

  /** Every delivery waits with its message as it was, or is dead because that was lost, or could not be read at all. */
  async function judge(spool: Spool, mails: Awaited<ReturnType<typeof filled>>['mails']) {
    const counts = { whole: 0, dead: 0, gone: 0, wrong: 0 };
    for (const { message, delivery } of mails) {
      const found = await spool.message(message.id);
      const queued = await spool.delivery(delivery.id);
      const same =
        found?.body.kind === 'memory' &&
        message.body.kind === 'memory' &&
        Buffer.compare(found.body.bytes, message.body.bytes) === 0;
      if (same && queued?.state === 'waiting') counts.whole++;
      else if (found && !same) counts.wrong++;
      else if (queued?.state === 'dead' && queued.lastError?.startsWith('message lost: ')) counts.dead++;
      else counts.gone++;
    }
    return counts;
  }

  it('loses only the message whose bytes have changed', async () => {
    const { mails, file, reopen, log } = await filled(200);
    const bytes = await readFile(file);
    const victim = mails[77]?.message.body;
    const at = victim?.kind === 'memory' ? bytes.indexOf(victim.bytes) : -1;
    expect(at).to.be.greaterThan(0);
    bytes[at + 700] = (bytes[at + 700] ?? 0) ^ 0xff;
    await writeFile(file, bytes);
    const spool = await reopen();
    expect(await judge(spool, mails)).to.deep.equal({ whole: 199, dead: 1, gone: 0, wrong: 0 });
    expect(log.of('spool.fault').map(({ fields }) => fields['message'])).to.deep.equal([mails[77]?.message.id]);
  });

  /** Puts a message whose every text is its own. */
  async function putNamed(spool: Spool, clock: Clock, n: number) {
    const name = (what: string) => `${what}-${String(n).padStart(2, '0')}-own`;
    const one = mail(clock, { routeId: name('route'), recipients: [name('recipient')] });
    const message = {
      ...one.message,
      trace: name('trace'),
      envelope: { ...one.message.envelope, mailFrom: name('sender') },
    };
    expect(await spool.accept(given(message), one.deliveries)).to.equal('accepted');
    const [delivery] = one.deliveries;
    if (!delivery) throw new Error('no delivery');
    return { message, delivery };
  }

  /** Changes one bit of the queue file, as a disk would: in the end of a text that is found there once. */
  async function flip(file: string, text: string): Promise<void> {
    const bytes = await readFile(file);
    const at = bytes.indexOf(text);
    expect(at, text).to.be.greaterThan(0);
    bytes[at + text.length - 1] = (bytes[at + text.length - 1] ?? 0) ^ 1;
    await writeFile(file, bytes);
  }

  for (const [what, of] of [
    ['the sender', ({ message }) => message.envelope.mailFrom],
    ['the trace', ({ message }) => message.trace],
    ['the recipient', ({ delivery }) => delivery.recipient],
    ['the route', ({ delivery }) => delivery.routeId],
  ] satisfies readonly (readonly [string, (mail: Awaited<ReturnType<typeof putNamed>>) => string])[]) {
    it(`loses only the message with a changed bit of ${what}`, async () => {
      const opened = await freshSpool();
      const mails = [];
      for (let n = 0; n < 20; n++) mails.push(await putNamed(opened.spool, opened.clock, n));
      await opened.spool.close();
      const victim = mails[7];
      if (!victim) throw new Error('no mail');
      await flip(join(opened.dir, 'spool.db'), of(victim));
      const spool = await opened.reopen();
      const due = await spool.due('acme', victim.delivery.url, opened.clock.now(), 100, []);
      const found = await Promise.all(
        due.map(async ({ id, messageId }) => ({ id, message: await spool.message(messageId, id) })),
      );
      expect(found.filter(({ message }) => message).map(({ id }) => id)).to.have.members(
        mails.filter((mail) => mail !== victim).map(({ delivery }) => delivery.id),
      );
      expect(await spool.delivery(victim.delivery.id)).to.include({
        state: 'dead',
        lastError: 'message lost: its row was damaged on disk',
      });
      expect(
        opened.log.of('spool.fault').map(({ level, fields }) => [level, fields['reason'], fields['deliveries']]),
      ).to.deep.equal([['error', 'message lost: its row was damaged on disk', 1]]);
      expect(spool.backlog('acme')).to.equal(19);
    });
  }

  it('loses a message whose id was changed, with a report', async () => {
    const { mails, file, dir, clock, log } = await filled(20);
    const victim = mails[7];
    if (!victim) throw new Error('no mail');
    const db = new DatabaseSync(file);
    db.prepare("UPDATE messages SET id = 'changed' WHERE id = ?").run(victim.message.id);
    db.close();
    const spool = await openOne(dir, { clock, log });
    expect(await spool.message(victim.message.id, victim.delivery.id)).to.equal(undefined);
    expect((await spool.delivery(victim.delivery.id))?.state).to.equal('dead');
    expect(log.of('spool.fault')).to.have.length(1);
    expect(await spool.message('nobody', 'nothing'), 'what is gone is gone').to.equal(undefined);
    expect(log.of('spool.fault')).to.have.length(1);
  });

  it('loses only changed verdicts, which are computed again', async () => {
    const opened = await freshSpool();
    const { message, delivery } = await put(opened.spool, opened.clock);
    const verdicts: Verdicts = {
      spf: { result: 'pass', detail: 'as-it-was' },
      dkim: { signed: false, valid: false },
      dmarc: { result: 'none', policy: null, aligned: false },
      arc: { result: 'none' },
    };
    await opened.spool.settle(settled(opened.clock, delivery, { state: 'waiting' }), verdicts);
    expect((await (await opened.reopen()).message(message.id))?.message.verdicts).to.deep.equal(verdicts);
    await opened.spool.close();
    await flip(join(opened.dir, 'spool.db'), 'as-it-was');
    const found = await (await opened.reopen()).message(message.id);
    expect(found?.message).to.deep.include({ id: message.id, verdicts: null });
  });

  it('of an older version is upgraded; its rows have no checksum and are read as they are', async () => {
    const { mails, file, dir, clock, log } = await filled(20);
    const db = new DatabaseSync(file);
    db.exec('DROP TABLE time; PRAGMA user_version = 4');
    db.exec(WITHOUT_KINDS);
    for (const table of ['messages', 'verdicts', 'deliveries']) db.exec(`ALTER TABLE ${table} DROP COLUMN sum`);
    db.close();
    const spool = await openOne(dir, { clock, log });
    expect(await judge(spool, mails)).to.deep.equal({ whole: 20, dead: 0, gone: 0, wrong: 0 });
    const due = await spool.due('acme', mails[0]?.delivery.url ?? '', clock.now(), 100, []);
    expect(due).to.have.length(20);
    await put(spool, clock);
    const look = new DatabaseSync(file);
    expect(look.prepare('SELECT count(*) AS n FROM messages WHERE sum IS NULL').get()).to.deep.include({ n: 20 });
    look.close();
  });

  for (const share of [0.2, 0.5, 0.8, 0.97]) {
    it(`is salvaged into a new one when pages at ${share * 100}% of it are damaged, and kept aside when its structure was hit`, async () => {
      const { mails, file, dir, reopen, clock } = await filled(1000);
      const bytes = await readFile(file);
      const at = Math.floor((bytes.byteLength * share) / 4096) * 4096;
      bytes.set(randomBytes(2 * 4096), at);
      await writeFile(file, bytes);
      const spool = await reopen();
      const { whole, dead, gone, wrong } = await judge(spool, mails);
      expect(wrong).to.equal(0);
      expect(whole + dead + gone).to.equal(1000);
      expect(whole).to.be.greaterThan(900);
      if (gone > 0) expect((await readdir(dir)).some((name) => name.startsWith('spool.db.damaged-'))).to.equal(true);
      await put(spool, clock);
      expect(spool.backlog('acme')).to.equal((await spool.count({ states: ['waiting'] })).waiting);
    });
  }

  it('is moved to a new one while the daemon runs, when a read fails', async () => {
    const { mails, file, dir, spool: closed, clock, log } = await filled(1000);
    await closed.close();
    const root = new DatabaseSync(file);
    const page = Number(
      root.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_messages_1'").get()?.['rootpage'],
    );
    root.close();
    const bytes = await readFile(file);
    bytes.fill(0xee, (page - 1) * 4096, page * 4096);
    await writeFile(file, bytes);
    const spool = await openOne(dir, { clock, log });
    const told: number[] = [];
    spool.onChange((fresh) => {
      told.push(fresh.length);
    });
    expect(await judge(spool, mails)).to.deep.equal({ whole: 1000, dead: 0, gone: 0, wrong: 0 });
    expect((await readdir(dir)).some((name) => name.startsWith('spool.db.damaged-'))).to.equal(true);
    expect(told).to.contain(0);
    expect(spool.hasRoom()).to.equal(true);
    expect(log.of('spool.fault')).to.have.length(1);
  });

  it('that cannot be opened is kept with its large bodies, with an error in the log, and mail continues', async () => {
    const opened = await freshSpool();
    await putLarge(opened.spool, opened.clock, 'large');
    await opened.spool.close();
    await writeFile(join(opened.dir, 'spool.db'), randomBytes(20_000));
    const spool = await opened.reopen();
    expect(
      opened.log
        .of('spool.fault')
        .some(({ level, fields }) => level === 'error' && String(fields['aside']).includes('damaged-')),
    ).to.equal(true);
    await put(spool, opened.clock);
    await opened.reopen();
    const names = await readdir(opened.dir, { recursive: true });
    expect(names.filter((name) => name.endsWith('large'))).to.have.length(1);
  });

  it('that cannot be opened is not left open', async () => {
    const opened = await freshSpool();
    await opened.spool.close();
    await writeFile(join(opened.dir, 'spool.db'), Buffer.alloc(8192, 'x'));
    await opened.reopen();
    const descriptors = await readdir('/proc/self/fd');
    const files = await Promise.all(descriptors.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
    expect(files.filter((file) => file.startsWith(opened.dir) && file.endsWith(' (deleted)'))).to.deep.equal([]);
  });
});

describe('the command line while a daemon runs', () => {
  it('changes the queue, and the daemon notices within a second', async () => {
    const { dir, spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    const visitor = await openOne(dir, { clock, log: createTestLog(), role: 'visitor' });
    let noticed = 0;
    spool.onChange((fresh) => {
      if (fresh.length === 0) noticed++;
    });
    expect(await visitor.drop({ ids: [delivery.id] }, clock.now())).to.equal(1);
    for (let i = 0; i < 200 && noticed === 0; i++) {
      await clock.advance(1000);
      await spool.check();
    }
    expect(noticed).to.equal(1);
    expect(spool.backlog('acme')).to.equal(0);
    await put(spool, clock);
    expect(spool.backlog('acme')).to.equal(1);
    expect(await visitor.count({})).to.deep.equal({ waiting: 1, delivered: 0, dead: 0, dropped: 1, held: 0 });
  });

  it('leaves incomplete mail alone', async () => {
    const { dir, spool, clock } = await freshSpool();
    const writer = spool.body('arriving');
    await writer.write(randomBytes(600_000));
    expect(await readdir(join(dir, 'tmp'))).to.deep.equal(['arriving']);
    await mkdir(join(dir, 'blobs'), { recursive: true });
    const visitor = await openOne(dir, { clock, log: createTestLog(), role: 'visitor' }, spoolSettings(dir));
    await visitor.close();
    const body = await writer.finish();
    const visitor2 = await openOne(dir, { clock, log: createTestLog(), role: 'visitor' });
    await visitor2.close();
    await put(spool, clock, { id: 'arriving', body });
    expect((await spool.message('arriving'))?.body).to.deep.equal(body);
  });
});
