import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { gunzipSync } from 'node:zlib';
import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { namesOf } from '../../../src/base/tables.ts';
import type { Verdicts } from '../../../src/mail/addresses/envelope.ts';
import type { DeliveryKind, QueuedDelivery, Spool } from '../../../src/queue/delivery.ts';
import { createReturnRoad } from '../../../src/returns/road.ts';
import { createOutboundRoad, type OutboundParts, type OutboundRoadDeps } from '../../../src/sending/road.ts';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import { createTestClock } from '../../support/clock.ts';
import { postern } from '../../support/command.ts';
import { NO_COPIES } from '../../support/copies.ts';
import { answered } from '../../support/delivery.ts';
import { createTestLog } from '../../support/log.ts';
import { createWebhookDispatcher, NO_SENDER_REPORTS } from '../../support/roads.ts';
import { attempt, damagePage, freshSpool, mail, openOne, settled } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

/**
 * A queue that the version with format 5 wrote, whose kinds stood in URLs: of each kind deliveries that wait, were
 * tried, are dead, delivered and dropped; batches of events for the URL of a route, pending events, mail for later, and
 * the memory of a destination that is away.
 */
const FIXTURE = 'test/fixtures/queue-format-5.db.gz';

/** What stands in it: the beginning of each message id, without its number, by kind. */
const STORY = {
  inbound: [
    'inbound-waiting waiting',
    'inbound-retried waiting',
    'inbound-dead dead',
    'inbound-done delivered',
    'inbound-drop dropped',
  ],
  events: ['events-dead dead', 'events-done delivered', 'events-waiting waiting', 'events-waiting waiting'],
  outbound: [
    'outbound-waiting waiting',
    'outbound-later waiting',
    'outbound-retried waiting',
    'outbound-dead dead',
    'outbound-sent delivered',
  ],
  return: [
    'return-bounce waiting',
    'return-dead dead',
    'return-read delivered',
    'return-complaint waiting',
    'postmaster-wait waiting',
    'postmaster-dead dead',
    'report-waiting waiting',
    'report-dead dead',
  ],
};

/** The same queue, taken over by the version with format 6, which tried one of its deliveries once more. */
const FORMAT_6 = 'test/fixtures/queue-format-6.db.gz';

/** The same queue, taken over by the version with format 7, which tried that delivery again in a shared POST. */
const FORMAT_7 = 'test/fixtures/queue-format-7.db.gz';

/** The same queue, taken over by the version with format 8, which tried that delivery once more and kept the detail. */
const FORMAT_8 = 'test/fixtures/queue-format-8.db.gz';

/** The same queue, taken over by the version with format 9, which tried that delivery once more and kept a scan. */
const FORMAT_9 = 'test/fixtures/queue-format-9.db.gz';

async function oldQueue(fixture = FIXTURE): Promise<string> {
  const dir = await tempDir();
  await writeFile(join(dir, 'spool.db'), gunzipSync(await readFile(fixture)));
  return dir;
}

const nameOf = ({ messageId }: Pick<QueuedDelivery, 'messageId'>) => messageId.replace(/-\d+$/, '');

async function storyOf(spool: Spool, kind: DeliveryKind): Promise<string[]> {
  const rows = await spool.list({ kinds: [kind] }, 100);
  return rows.reverse().map((row) => `${nameOf(row)} ${row.state}`);
}

describe('a queue that had the kinds in URLs', () => {
  it('is upgraded with every delivery under its kind', async () => {
    const { spool } = await freshSpool(await oldQueue());
    for (const kind of namesOf(STORY)) expect(await storyOf(spool, kind), kind).to.deep.equal(STORY[kind]);
    expect(await spool.list({}, 100)).to.have.length(Object.values(STORY).flat().length);
  });

  it('stores the action for returned mail', async () => {
    const { spool } = await freshSpool(await oldQueue());
    const tasks = (await spool.list({}, 100)).map((row) => [nameOf(row), row.task]);
    expect(tasks.filter(([, task]) => task === 'read').map(([name]) => name)).to.have.members([
      'return-bounce',
      'return-dead',
      'return-read',
      'return-complaint',
    ]);
    expect(tasks.filter(([, task]) => task === 'forward').map(([name]) => name)).to.have.members([
      'postmaster-wait',
      'postmaster-dead',
    ]);
    expect(tasks.filter(([, task]) => task === 'report').map(([name]) => name)).to.have.members([
      'report-waiting',
      'report-dead',
    ]);
  });

  it('returns due deliveries with valid checksums, and keeps the state of endpoints and pending events', async () => {
    const { spool, clock, log } = await freshSpool(await oldQueue());
    const endpoints = await spool.endpoints();
    expect(endpoints.map(({ url, kind, waiting }) => `${kind} ${url} ${waiting}`)).to.have.members([
      'inbound https://app.example.com/hook 3',
      'events https://other.example.com/events 1',
      'outbound smtp://example.net 3',
      'outbound smtp://away.example.net 0',
      'return return: 1',
      'return return: 1',
      'return postmaster: 1',
      'return report:sender.example 1',
    ]);
    expect(endpoints.find(({ url }) => url === 'smtp://away.example.net')?.memory).to.contain('open');
    const due = await Promise.all(
      endpoints.map(({ account, url }) => spool.due(account, url, clock.now() + 86_400_000, 100, [])),
    );
    const waiting = Object.values(STORY)
      .flat()
      .filter((line) => line.endsWith(' waiting'));
    expect(due.flat().map((row) => `${nameOf(row)} waiting`)).to.have.members(waiting);
    for (const row of due.flat()) expect(await spool.message(row.messageId, row.id), row.id).to.not.equal(undefined);
    expect(log.lines.filter(({ level }) => level === 'error')).to.deep.equal([]);
    expect(spool.backlog('acme', 'in')).to.equal(5);
    expect((await spool.events.pending(10)).map(({ webhook, pending }) => [webhook, pending.events])).to.deep.equal([
      ['hook-1', 1],
    ]);
  });

  it('is delivered, each by the road of its kind', async () => {
    const { spool, clock, log } = await freshSpool(await oldQueue());
    const seen: string[] = [];
    const ids = { ...createIds(clock), jitter: () => 0 };
    const shared = { spool, clock, ids, log, time: createRunningTime(clock), metrics: NO_METRICS };
    const senderReports = NO_SENDER_REPORTS;
    const dispatcher = createWebhookDispatcher(
      {
        concurrency: 8,
        concurrencyPerEndpoint: 8,
        concurrencyAtStart: 2,
        batchBytes: 1024 ** 2,
        retryHours: 120,
        orderHoldMs: 900_000,
      },
      {
        ...shared,
        renderer: {
          async render({ mails: [mail] }) {
            const { id = '', batch } = mail?.delivery ?? {};
            seen.push(`post ${nameOf({ messageId: id.slice(0, -13) })} ${batch?.events ?? ''}`.trim());
            return {
              id,
              body: { kind: 'memory', bytes: new Uint8Array(1) },
              headers: {},
              found: [{ verdicts: VERDICTS, parseError: null, summary: null }],
              linked: 0,
            };
          },
          renderShared: async () => undefined,
          discard: () => undefined,
        },
        poster: { post: async () => answered(200), head: async () => answered(200), async stop() {} },
        destinations: { of: async () => ({ kind: 'here' }), batchEvents: () => 1, target: () => PLAIN_TARGET },
        signingKeys: { keysFor: async () => ['key'] },
      },
      {
        outbound: createOutboundRoad(
          { concurrency: 8, concurrencyPerEndpoint: 8, concurrencyAtStart: 2, maxAgeHours: 120 },
          { ...shared, senderReports, ...outboundParts((recipient) => seen.push(`mail ${recipient}`)) },
        ),
        return: createReturnRoad(
          {
            concurrency: 8,
            concurrencyPerEndpoint: 8,
            concurrencyAtStart: 2,
            retryHours: 120,
            postmaster: 'ops@example.org',
          },
          {
            ...shared,
            returns: {
              async handle({ recipient }) {
                seen.push(`read ${recipient}`);
                return { kind: 'done', words: 'read' };
              },
            },
            async sendOwn({ recipient }) {
              seen.push(`sent ${recipient}`);
              return { ...TOOK, durationMs: 1 };
            },
          },
        ),
      },
    );
    await dispatcher.start();
    await until('all that is due has been carried', async () => {
      await clock.advance(120_000);
      return (await spool.count({ states: ['waiting'] })).waiting === 1;
    });
    expect(seen).to.have.members([
      'post inbound-waiting',
      'post inbound-retried',
      'post events-waiting 2',
      'post events-waiting 2',
      'mail kim@example.net',
      'mail kim@example.net',
      'read 1-token@bounces.postern.test',
      'read fbl@bounces.postern.test',
      'sent ops@example.org',
      'sent sam@sender.example',
    ]);
    expect((await spool.list({ states: ['waiting'] }, 10)).map(nameOf)).to.deep.equal(['outbound-later']);
    await until('what was for later has gone', async () => {
      await clock.advance(600_000);
      return (await spool.count({ states: ['waiting'] })).waiting === 0;
    });
    expect(seen.filter((what) => what.startsWith('mail'))).to.have.length(3);
    const stopped = dispatcher.stop();
    await clock.advance(20_000);
    await stopped;
  });

  it('is unchanged by a second start', async () => {
    const opened = await freshSpool(await oldQueue());
    const before = await opened.spool.list({}, 100);
    expect(await (await opened.reopen()).list({}, 100)).to.deep.equal(before);
  });

  it('lists returned mail as return on the command line, finds it by --kind return, and replays it with --all', async () => {
    const data = await tempDir();
    const dir = join(data, 'spool');
    await mkdir(dir);
    await writeFile(join(dir, 'spool.db'), gunzipSync(await readFile(FIXTURE)));
    const { spool } = await freshSpool(dir);
    const env = { POSTERN_DATA_DIR: data };
    const list = async (...options: string[]): Promise<{ kind: string; state: string }[]> =>
      (await postern(['queue', 'list', '--json', ...options], env)).records();
    const count = async (...args: string[]) => (await postern([...args, '--json'], env)).json()[0].count;

    expect((await list()).filter(({ kind }) => kind === 'return')).to.have.length(7);
    const returned = await list('--kind', 'return');
    expect(returned.map(({ kind }) => kind)).to.deep.equal(Array(7).fill('return'));
    expect((await list('--kind', 'events', '--kind', 'outbound')).map(({ kind }) => kind)).to.have.members([
      ...Array(3).fill('events'),
      ...Array(4).fill('outbound'),
    ]);
    expect(await postern(['queue', 'list', '--kind', 'mail'], env)).to.include({ code: 64 });

    // Dead letters and what was dropped, of every kind but outbound; what was delivered only of what consumers get.
    expect(await count('replay', '--all', '--dry-run')).to.equal(6);
    expect(await count('replay', '--all', '--delivered', '--dry-run')).to.equal(8);
    expect(await count('replay', '--kind', 'return', '--delivered', '--dry-run')).to.equal(4);
    expect(await count('replay', '--all')).to.equal(6);
    expect(await storyOf(spool, 'return')).to.deep.equal(
      STORY.return.map((line) => line.replace('-dead dead', '-dead waiting')),
    );
    expect(await storyOf(spool, 'outbound')).to.deep.equal(STORY.outbound);
    expect(await count('queue', 'drop', '--kind', 'return')).to.equal(7);
    expect((await spool.count({ kinds: ['return'], states: ['dropped'] })).dropped).to.equal(7);
  });

  it('is listed on the command line only through the daemon, which upgrades it', async () => {
    const dir = await oldQueue();
    const visitor = () => openOne(dir, { clock: createTestClock(), log: createTestLog(), role: 'visitor' });
    expect(String(await visitor().catch((error: unknown) => error))).to.contain('start the daemon');
    await freshSpool(dir);
    expect(await storyOf(await visitor(), 'events')).to.deep.equal(STORY.events);
  });

  it('control: without the kinds of its rows, everything is treated as inbound mail', async () => {
    const dir = await oldQueue();
    const db = new DatabaseSync(join(dir, 'spool.db'));
    db.exec(`ALTER TABLE deliveries ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE deliveries ADD COLUMN task INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE endpoints ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
      PRAGMA user_version = 6`);
    db.close();
    const { spool } = await freshSpool(dir);
    expect(await storyOf(spool, 'inbound')).to.have.length(Object.values(STORY).flat().length);
    expect(await storyOf(spool, 'return')).to.deep.equal([]);
  });

  it('keeps its kinds when it cannot be upgraded in place, because its table of batches is damaged', async () => {
    const dir = await oldQueue();
    await damagePage(join(dir, 'spool.db'), 'batches');
    const { spool, log } = await freshSpool(dir);
    expect(log.lines.map(({ fields }) => String(fields?.['reason'] ?? '')).join('\n')).to.contain('damaged');
    for (const kind of ['inbound', 'outbound', 'return'] as const)
      expect(await storyOf(spool, kind), kind).to.deep.equal(STORY[kind]);
    expect(await storyOf(spool, 'events')).to.deep.equal(
      STORY.events.map((line) => line.replace('waiting waiting', 'waiting dead')),
    );
  });
});

/** The attempts at one delivery of the fixtures, as far as each version made them. */
const ATTEMPTS = [
  [503, 'answer', undefined],
  [502, 'Bad Gateway', undefined],
  [500, 'of a shared POST', 'batch-2-fixture'],
  [503, 'busy', undefined],
  [429, 'slow down', undefined],
];

for (const [format, fixture, attempts] of [
  [6, FORMAT_6, ATTEMPTS.slice(0, 2)],
  [7, FORMAT_7, ATTEMPTS.slice(0, 3)],
  [8, FORMAT_8, ATTEMPTS.slice(0, 4)],
  [9, FORMAT_9, ATTEMPTS],
] as const) {
  describe(`a queue of format ${format}`, () => {
    it('is upgraded with every delivery and attempt', async () => {
      const { spool } = await freshSpool(await oldQueue(fixture));
      for (const kind of namesOf(STORY)) expect(await storyOf(spool, kind), kind).to.deep.equal(STORY[kind]);
      const retried = (await spool.list({ kinds: ['inbound'] }, 100)).find((row) => nameOf(row) === 'inbound-retried');
      const made = await spool.attempts(retried?.id ?? '');
      expect(made.map(({ status, answer, batch }) => [status, answer, batch])).to.deep.equal(attempts);
      // Format 8 brought the details.
      expect(made.filter(({ detail }) => detail !== undefined)).to.deep.equal(made.slice(3));
    });

    it('then records the shared POST and the details of an attempt', async () => {
      const { spool, clock, reopen } = await freshSpool(await oldQueue(fixture));
      const [delivery] = await spool.list({ kinds: ['inbound'], states: ['waiting'] }, 1);
      if (!delivery) throw new Error('nothing waits');
      const more = { batch: 'batch-3-x', detail: '{"ms":{}}' };
      await spool.settle(settled(clock, delivery, { attempt: { ...attempt(clock), ...more } }));
      expect((await (await reopen()).attempts(delivery.id)).at(-1)).to.include({ status: 200, ...more });
    });

    it('has no order, and accepts ordered mail', async () => {
      const { spool, clock } = await freshSpool(await oldQueue(fixture));
      const before = await spool.list({ kinds: ['inbound'] }, 100);
      expect(before.filter(({ sequence, behind }) => sequence !== undefined || behind)).to.deep.equal([]);
      for (const id of ['first', 'second']) {
        const { message, deliveries } = mail(clock, { id });
        await spool.accept(
          message,
          deliveries.map((one) => ({ ...one, sequence: 'sender:a' })),
        );
      }
      const added = (await spool.list({ kinds: ['inbound'] }, 2)).map(({ messageId, behind }) => [messageId, behind]);
      expect(added).to.deep.equal([
        ['second', true],
        ['first', undefined],
      ]);
    });

    it('is listed on the command line only through the daemon, which upgrades it', async () => {
      const dir = await oldQueue(fixture);
      const visitor = () => openOne(dir, { clock: createTestClock(), log: createTestLog(), role: 'visitor' });
      expect(String(await visitor().catch((error: unknown) => error))).to.contain('start the daemon');
      await freshSpool(dir);
      expect(await storyOf(await visitor(), 'events')).to.deep.equal(STORY.events);
    });
  });
}

const VERDICTS: Verdicts = {
  spf: { result: 'none', detail: '' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'none', policy: null, aligned: false },
  arc: { result: 'none' },
};

const TOOK = { kind: 'answered', code: 250, diag: 'ok', host: '', address: '', source: '', tls: true } as const;

/** Mail that may go out at once, and is taken by every server. */
function outboundParts(carried: (recipient: string) => void): OutboundParts & Pick<OutboundRoadDeps, 'composer'> {
  return {
    composer: {
      compose: async () => ({ kind: 'composed', composed: { bytes: Buffer.from('x'), links: [], mailFrom: '' } }),
    },
    sendingQuota: { mayLeave: async () => ({ kind: 'now' }) },
    scheduling: { claim: async () => ({ kind: 'ours', first: true }), release: async () => {} },
    copies: NO_COPIES,
    sources: { choose: async () => [] },
    mailCarrier: {
      async send({ recipient }) {
        carried(recipient);
        return { ...TOOK, durationMs: 1 };
      },
      async stop() {},
    },
    signerOf: async () => null,
    mayWriteFrom: async () => true,
    numberOf: async () => 7,
    composing: async () => ({ hostname: 'mx', returnDomain: 'b.example', publicUrl: 'https://mx', secret: 's' }),
    reported: () => {},
  };
}
