import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { expect } from 'chai';
import { type Document, MongoClient } from 'mongodb';
import type { Io } from '../../../src/cli/command.ts';
import { createCleanup } from '../../../src/cli/demo/cleanup.ts';
import { openDemoDatabase } from '../../../src/cli/demo/database.ts';
import { postern, type Ran } from '../../support/command.ts';
import { mongoDriver, mongoServer } from '../../support/database.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

/** The rows of the summary: total, delivered, adopted, lost, twice. */
const summary = (out: string) =>
  [...out.matchAll(/^ +(mail received|mail sent|webhook events)\D*?((?: +\d+){5})$/gm)].map(
    ([, name, figures = '']) => [name, ...figures.trim().split(/ +/).map(Number)],
  );
const processes = (out: string) =>
  [...out.matchAll(/^ +mx\d\.demo\.example .* (\d+)$/gm)].map(([, pid]) => Number(pid));
const folderOf = (out: string) => /--config (\S*postern-demo-\w+)\//.exec(out)?.[1] ?? 'none';

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

if (mongoDriver)
  describe('postern demo --hosts', function () {
    this.timeout(240_000 * PATIENCE);
    let env: Record<string, string>;
    let [copied, uncopied]: (Ran | undefined)[] = [];

    before(async () => {
      env = { MONGODB_URL: (await mongoServer()).url('admin') };
      // At the same time: both wait until the lost host has been silent for long enough.
      [copied, uncopied] = await Promise.all([
        postern(['demo', '--hosts', '3', '--once'], env),
        postern(['demo', '--hosts', '2', '--once', '--copies', 'none'], env),
      ]);
    });

    it('loses a host with its folder, and nothing of its mail', () => {
      expect(copied?.code, copied?.err).to.equal(0);
      expect(summary(copied?.out ?? '')).to.deep.equal([
        ['mail received', 18, 18, 3, 0, 0],
        ['mail sent', 18, 18, 3, 0, 0],
        ['webhook events', 18, 18, 3, 0, 0],
      ]);
      expect(copied?.out).to.contain('Nothing is lost');
    });

    it('loses the mail that waited on the host if there are no copies (control)', () => {
      expect(uncopied?.code, uncopied?.err).to.equal(1);
      expect(summary(uncopied?.out ?? '')).to.deep.equal([
        ['mail received', 12, 9, 0, 3, 0],
        ['mail sent', 12, 9, 0, 3, 0],
        ['webhook events', 9, 6, 0, 3, 0],
      ]);
      expect(uncopied?.out).to.contain('9 are lost with the disk of mx2.demo.example');
    });

    it('leaves no process and no folder behind', () => {
      for (const { out } of [copied, uncopied].filter((ran) => ran !== undefined)) {
        expect(processes(out)).to.have.length.above(1);
        expect(processes(out).filter(isRunning)).to.deep.equal([]);
        expect(folderOf(out)).to.match(/postern-demo-/);
        expect(existsSync(folderOf(out))).to.equal(false);
      }
    });

    it('ends everything that it has started when it is told to stop, and when it is killed', async () => {
      await Promise.all([stopAt('SIGTERM'), stopAt('SIGKILL')]);
    });

    /** Ends a demo by a signal while the lost host is adopted. */
    async function stopAt(signal: NodeJS.Signals): Promise<void> {
      const demo = spawn(process.execPath, ['src/main.ts', 'demo', '--hosts', '2'], {
        stdio: ['ignore', 'pipe', 'ignore'],
        env: { ...process.env, ...env },
      });
      let out = '';
      demo.stdout.on('data', (chunk) => {
        out += String(chunk);
      });
      const ended = once(demo, 'exit');
      await until('the takeover to begin', () => out.includes('host adopt'), 120_000 * PATIENCE);
      expect(processes(out).filter(isRunning)).to.have.length(1);
      demo.kill(signal);
      expect((await ended)[0], signal).to.equal(signal === 'SIGTERM' ? 1 : null);
      // Nobody waits for a demo that was killed.
      await until('all of it to end', () => !processes(out).some(isRunning) && !existsSync(folderOf(out)));
    }

    it('says in one sentence what it needs if there is no server', async () => {
      const { code, out, err } = await postern(['demo', '--hosts', '2', '--once'], {
        MONGODB_URL: 'mongodb://127.0.0.1:9/',
      });
      expect([code, out]).to.deep.equal([69, '']);
      expect(err).to.match(/^postern demo: the server of MONGODB_URL does not answer: .*\n$/);
    });

    it('drops the databases of demos that were killed more than an hour ago, and no others', async () => {
      const url = (await mongoServer()).url('admin');
      const client = new MongoClient(url);
      const ago = (minutes: number) => [{ name: 'runs', at: new Date(Date.now() - minutes * 60_000) }];
      const kept = {
        postern_demo_00000000000b: ago(30),
        postern_demo_00000000000c: [{ name: 'other' }],
        postern_demo_of_ann: ago(300),
        postern: ago(300),
      };
      const made: Record<string, Document[]> = { postern_demo_00000000000a: ago(90), ...kept };
      const folder = await tempDir();
      const belongings = createCleanup(folder);
      try {
        for (const [name, rows] of Object.entries(made)) await client.db(name).collection('demo').insertMany(rows);
        const io = { env: { MONGODB_URL: url } } as unknown as Io;
        const opened = await openDemoDatabase(folder, belongings, io, new AbortController().signal);
        const list = async () => (await client.db().admin().listDatabases({ nameOnly: true })).databases;
        const names = (await list()).map(({ name }) => name);
        const own = /postern_demo_[0-9a-f]{12}/.exec(opened.url)?.[0] ?? '';
        expect(names)
          .to.include.members([own, ...Object.keys(kept)])
          .and.not.include('postern_demo_00000000000a');
        await belongings.close();
        expect((await list()).map(({ name }) => name)).to.not.include(own);
      } finally {
        await belongings.close();
        for (const name of Object.keys(made)) await client.db(name).dropDatabase();
        await client.close();
      }
    });
  });
