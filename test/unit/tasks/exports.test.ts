import { randomBytes } from 'node:crypto';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { PAGE } from '../../../src/tasks/exports/contents.ts';
import { drivers } from '../../support/database.ts';
import { type ExportWorld, openExportWorld, rejectRow, THEIRS } from '../../support/export-world.ts';
import { until } from '../../support/until.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

for (const driver of drivers)
  describe(`exports, ${driver.name}`, () => {
    let world: ExportWorld;
    beforeEach(async () => {
      world = await openExportWorld(await driver.open({ crowded: true }));
    });
    afterEach(() => world.close());

    describe('a job', () => {
      it('goes from waiting over working to complete, with an unguessable link', async () => {
        const id = await world.start();
        let seen: string | undefined;
        const hasRoom = () => {
          void world.job(id).then(({ state }) => {
            seen = state;
          });
          return true;
        };
        await world.store.rejects.insert(rejectRow('a@example.org'));
        await world.clock.advance(5000);
        expect(await world.task({}, { hasRoom }).run()).to.deep.equal({ jobs: 1 });
        await until('the look', () => seen !== undefined);
        expect(seen).to.equal('working');
        const job = await world.job(id);
        expect(job).to.include({
          state: 'complete',
          error: null,
          host: 'mx.postern.test',
          holder: null,
          until: null,
          attempts: 1,
          unnotified: null,
        });
        expect(job.finishedAt).to.deep.equal(new Date(world.clock.now()));
        expect(job.resultUrl).to.match(/^https:\/\/mail\.example\.com\/exports\/[\w-]{22}$/);
        expect(await readdir(world.dir), 'and nothing beside it').to.deep.equal([job.file]);
        expect((await stat(join(world.dir, job.file ?? ''))).mode & 0o777, 'for nobody else').to.equal(0o600);
        expect((await stat(world.dir)).mode & 0o777).to.equal(0o700);
        expect(world.log.of('export.complete')).to.have.length(1);
        expect(JSON.stringify(world.log.lines), 'the link is a secret').to.not.contain(
          job.resultUrl?.split('/').at(-1),
        );
        expect(await world.task().run(), 'nothing is left').to.equal(undefined);
      });

      it('is started by one of two hosts', async () => {
        const ids = [await world.start(), await world.start(), await world.start()];
        const hosts = ['one', 'two'].map((name) => world.task({ holder: name, hostname: name }));
        await Promise.all(hosts.map((task) => task.run()));
        for (const id of ids) expect(await world.job(id)).to.include({ state: 'complete', attempts: 1 });
        expect(world.log.of('export.complete')).to.have.length(3);
        expect(await readdir(world.dir)).to.have.length(3);
      });

      it('runs before the second one of another account', async () => {
        const ids = [
          await world.start(),
          await world.start(),
          await world.start({ account: THEIRS, createdAt: new Date(world.clock.now() + 1) }),
        ];
        await world.task().run();
        expect(world.log.of('export.complete').map(({ fields }) => fields.export)).to.deep.equal(
          [0, 2, 1].map((n) => ids[n]?.slice(23)),
        );
      });

      it('whose worker died is restarted when its claim has expired', async () => {
        const id = await world.start({
          state: 'working',
          holder: 'a dead life',
          until: new Date(world.clock.now() + MINUTE_MS),
          attempts: 1,
          host: 'mx.postern.test',
          file: 'half.zip',
        });
        await world.task().run();
        expect((await world.job(id)).state, 'not before').to.equal('working');
        await world.clock.advance(MINUTE_MS + 1);
        await world.task({ holder: 'second life' }).run();
        expect(await world.job(id)).to.include({ state: 'complete', attempts: 2 });
        expect((await world.contents(id)).lines).to.have.length(1);
      });

      it('whose worker died is restarted without extra delay when the clock is set back meanwhile', async () => {
        const id = await world.start({
          state: 'working',
          holder: 'a dead life',
          until: new Date(world.clock.now() + 3 * 86_400_000),
          attempts: 1,
          host: 'mx.postern.test',
          file: 'half.zip',
        });
        const honest = await world.start({
          state: 'working',
          holder: 'another life',
          until: new Date(world.clock.now() + 2 * MINUTE_MS - 1),
          attempts: 1,
          host: 'mx.postern.test',
          file: 'theirs.zip',
        });
        await world.task().run();
        expect(await world.job(id)).to.include({ state: 'complete', attempts: 2 });
        expect((await world.job(honest)).holder, 'a neighbour whose clock is a little ahead').to.equal('another life');
      });

      it('fails after five unfinished starts', async () => {
        const id = await world.start({
          state: 'working',
          holder: 'a dead life',
          until: new Date(world.clock.now() - 1),
          attempts: 5,
          notifyEmail: 'ops@example.org',
          host: 'mx.postern.test',
        });
        await world.task().run();
        expect(await world.job(id)).to.include({
          state: 'error',
          error: 'The export was started 5 times and never finished',
          resultUrl: null,
        });
        expect(world.notices).to.have.length(1);
      });

      it('that takes long renews its claim', async () => {
        const id = await world.start();
        const terms: number[] = [];
        const many: typeof world.store.rejects.many = async () => {
          terms.push((await world.job(id)).until?.getTime() ?? 0);
          await world.clock.advance(21_000);
          return terms.length < 3 ? Array.from({ length: PAGE }, (_, n) => rejectRow(`u${n}@example.org`)) : [];
        };
        await world.task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } }).run();
        expect((await world.job(id)).state).to.equal('complete');
        expect(terms.map((term) => term - (terms[0] ?? 0))).to.deep.equal([0, 21_000, 42_000]);
      });

      it('that another worker took over is left to it', async () => {
        await world.store.rejects.insert(rejectRow('a@example.org'));
        const id = await world.start();
        const many: typeof world.store.rejects.many = async (filter, page) => {
          await world.store.exportJobs.change({ id }, { holder: 'another life', file: 'theirs.zip' });
          await world.clock.advance(MINUTE_MS);
          return world.store.rejects.many(filter, page);
        };
        await world.task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } }).run();
        expect(await world.job(id)).to.include({ state: 'working', holder: 'another life', resultUrl: null });
        expect(await readdir(world.dir)).to.deep.equal([]);
      });

      it('waits again, as if not started, when the process stops', async () => {
        await world.store.rejects.insert(rejectRow('a@example.org'));
        const [id, next] = [await world.start(), await world.start()];
        const ending = new AbortController();
        await world
          .task(
            {},
            {
              hasRoom: () => {
                ending.abort();
                return true;
              },
              store: world.store,
            },
          )
          .run(ending.signal);
        // The room is asked for after the signal: the first page was written, the job is complete, and no other is
        // begun.
        expect((await world.job(id)).state).to.equal('complete');
        expect(await world.job(next)).to.include({ state: 'waiting', attempts: 0 });
        const stopped = new AbortController();
        const many: typeof world.store.rejects.many = (filter, page) => {
          stopped.abort();
          return world.store.rejects.many(filter, page);
        };
        await world
          .task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } })
          .run(stopped.signal);
        expect(await world.job(next)).to.include({
          state: 'waiting',
          attempts: 0,
          holder: null,
          host: null,
          file: null,
        });
        expect(await readdir(world.dir)).to.have.length(1);
      });

      it('waits again when the store becomes unavailable', async () => {
        const id = await world.start();
        let away = true;
        const many: typeof world.store.rejects.many = (filter, page) =>
          away ? Promise.reject(new StoreAway('away')) : world.store.rejects.many(filter, page);
        const task = world.task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } });
        const thrown = await task.run().then(
          () => undefined,
          (error: unknown) => error,
        );
        expect(thrown).to.be.instanceOf(StoreAway);
        expect(await world.job(id)).to.include({ state: 'waiting', attempts: 0 });
        away = false;
        await task.run();
        expect((await world.job(id)).state).to.equal('complete');
      });

      it('fails, without a partial file, when the disk is nearly full', async () => {
        await world.store.rejects.insert(rejectRow('a@example.org'));
        const id = await world.start();
        world.state.room = false;
        await world.task().run();
        expect(await world.job(id)).to.include({
          state: 'error',
          error: 'There is not enough disk space for it; please start it again later',
          resultUrl: null,
        });
        expect((await world.job(id)).finishedAt).to.not.equal(null);
        expect(await readdir(world.dir)).to.deep.equal([]);
        expect(world.log.of('export.failed')).to.have.length(1);
      });

      it('fails when the disk becomes full during the write', async () => {
        const many: typeof world.store.rejects.many = () =>
          Promise.reject(Object.assign(new Error('no space left on device, write'), { code: 'ENOSPC' }));
        const id = await world.start();
        await world.task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } }).run();
        expect(await world.job(id)).to.include({
          state: 'error',
          error: 'There is not enough disk space for it; please start it again later',
        });
        expect(await readdir(world.dir)).to.deep.equal([]);
      });

      it('fails on other errors, with the reason in the log and not in the answer', async () => {
        const id = await world.start();
        await writeFile(world.dir, 'no folder');
        await world.task().run();
        expect(await world.job(id)).to.include({ state: 'error', error: 'An unexpected error of the service' });
        expect(String(world.log.of('export.failed')[0]?.fields.error)).to.contain('EEXIST');
      });

      it('reports its progress', async () => {
        const lines = Array.from({ length: PAGE }, (_, n) => rejectRow(`u${n}@example.org`));
        const limits: unknown[] = [];
        const many: typeof world.store.rejects.many = async (_, page) => {
          limits.push(page?.limit);
          return limits.length > 250_000 / PAGE ? [] : lines;
        };
        await world.start();
        await world.task({}, { store: { ...world.store, rejects: { ...world.store.rejects, many } } }).run();
        expect(world.log.of('export.progress').map(({ fields }) => fields.rows)).to.deep.equal([100_000, 200_000]);
        expect(world.log.of('export.complete')[0]?.fields.rows).to.equal(250_000);
        expect(new Set(limits), 'never more at a time').to.deep.equal(new Set([PAGE]));
      }).timeout(60_000);
    });

    describe('the notification', () => {
      it('is sent to the named address when the job is complete', async () => {
        const id = await world.start({ notifyEmail: 'ops@example.org' });
        await world.start();
        await world.task().run();
        const { resultUrl } = await world.job(id);
        expect(world.notices).to.have.length(1);
        expect(world.notices[0]).to.include({
          account: 'ExampleAccountId000001',
          to: 'ops@example.org',
          subject: 'Your rejection list export is ready',
        });
        expect(world.notices[0]?.text)
          .to.contain(`\n${resultUrl}\n`)
          .and.to.contain('7 days')
          .and.to.contain('2026-01-05 12:00:00 UTC');
      });

      it('is sent when the job has failed, with the reason', async () => {
        await world.store.rejects.insert(rejectRow('a@example.org'));
        await world.start({ notifyEmail: 'ops@example.org' });
        world.state.room = false;
        await world.task().run();
        expect(world.notices.map(({ subject }) => subject)).to.deep.equal(['Your rejection list export has failed']);
        expect(world.notices[0]?.text).to.contain('not enough disk space');
      });

      it('is sent after a crash before the end of the job', async () => {
        const id = await world.start({ notifyEmail: 'ops@example.org' });
        const enqueue = () => Promise.reject(new StoreAway('away'));
        await world
          .task({}, { notices: { enqueue } })
          .run()
          .catch(() => undefined);
        expect(await world.job(id)).to.include({ state: 'complete', unnotified: true });
        await world.task().run();
        await world.task().run();
        expect(world.notices).to.have.length(1);
        expect((await world.job(id)).unnotified).to.equal(null);
      });

      it('is given up for an address that gets no more mail of ours', async () => {
        const id = await world.start({ notifyEmail: 'ops@example.org' });
        await world.task({}, { notices: { enqueue: async () => 'limited' as never } }).run();
        expect((await world.job(id)).unnotified).to.equal(null);
        expect(world.log.of('export.unnotified')[0]?.fields).to.include({ reason: 'limited' });
      });
    });

    describe('the expiry', () => {
      it('removes an archive after its days, with an error for later visitors', async () => {
        const id = await world.start();
        await world.task().run();
        const { tokenHash } = await world.job(id);
        await world.clock.advance(7 * DAY_MS);
        expect(await world.expiry().run()).to.equal(undefined);
        await world.clock.advance(1);
        expect(await world.expiry().run()).to.deep.equal({ expired: 1, forgotten: 0, removed: 1 });
        expect(await world.job(id)).to.include({ state: 'expired', resultUrl: null, tokenHash });
        expect(await readdir(world.dir)).to.deep.equal([]);
        expect(await world.expiry().run(), 'twice is once').to.equal(undefined);
      });

      it('removes files left by a crash, and neither those being written nor foreign ones', async () => {
        const id = await world.start();
        await world.task().run();
        const { file } = await world.job(id);
        await world.start({
          state: 'working',
          holder: 'x',
          until: new Date(world.clock.now() + MINUTE_MS),
          file: 'busy.zip',
        });
        for (const name of ['stray.zip', 'half.zip.tmp', 'busy.zip.tmp', 'notes.txt'])
          await writeFile(join(world.dir, name), randomBytes(8));
        expect(await world.expiry().run()).to.deep.equal({ expired: 0, forgotten: 0, removed: 2 });
        expect((await readdir(world.dir)).toSorted()).to.deep.equal(
          [file ?? '', 'busy.zip.tmp', 'notes.txt'].toSorted(),
        );
      });

      it('deletes a job ninety days after its end', async () => {
        const id = await world.start();
        const failed = await world.start({ state: 'error', finishedAt: new Date(world.clock.now()) });
        await world.task().run();
        await world.clock.advance(8 * DAY_MS);
        await world.expiry().run();
        await world.clock.advance(83 * DAY_MS);
        expect(await world.expiry().run()).to.deep.equal({ expired: 0, forgotten: 2, removed: 0 });
        for (const gone of [id, failed]) expect(await world.store.exportJobs.one({ id: gone })).to.equal(undefined);
      });

      it('waits after a jump of the clock, for an operator to correct it', async () => {
        const id = await world.start();
        await world.task().run();
        const expiry = world.expiry();
        world.clock.jump(40 * DAY_MS);
        await expiry.run();
        expect((await world.job(id)).state).to.equal('complete');
        await world.clock.advance(10 * MINUTE_MS);
        await expiry.run();
        expect((await world.job(id)).state).to.equal('expired');
      });
    });
  });
