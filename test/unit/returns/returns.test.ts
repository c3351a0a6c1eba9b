import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { createLists } from '../../../src/events/lists.ts';
import { createRecorder } from '../../../src/events/record.ts';
import { bounceAddress, RETURN_URL, unsubAddress } from '../../../src/mail/addresses/return-address.ts';
import type { Body, Message, Settlement } from '../../../src/queue/delivery.ts';
import { createFeedback } from '../../../src/returns/returns.ts';
import { createReturnRoad } from '../../../src/returns/road.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { openTestStore } from '../../support/store.ts';
import { tempDir } from '../../support/temp.ts';

const SECRET = 'a secret';
const ACCOUNT = 'ExampleAccountId000001';
const SENT = '0123456789abcdef0123456789abcdef';
const HOUR_MS = 3_600_000;
const fixture = (name: string) =>
  Buffer.from(readFileSync(`test/fixtures/returns/${name}.eml`, 'utf8').replaceAll('\n', '\r\n'));
const inline = (bytes: Buffer): Body => ({ kind: 'memory', bytes });

describe('returned mail becoming an event', () => {
  let store: Store;
  const state = { away: false };
  const clock = createTestClock();
  const log = createTestLog();
  const settled: Settlement[] = [];
  before(async () => {
    store = await openTestStore(log);
    await store.accounts.insert({ id: ACCOUNT, name: 'main', number: 1, createdAt: new Date(0) });
  });
  after(() => store.close());
  beforeEach(() => {
    state.away = false;
    settled.length = 0;
    log.lines.length = 0;
  });

  function parts() {
    const outbox = { publish: async () => {} };
    const lists = createLists({ store, outbox, clock, ids: createIds(clock), log });
    const real = createRecorder({ store, lists, outbox, clock, log });
    const recorder = {
      ...real,
      record: async (event: Parameters<typeof real.record>[0]) =>
        state.away ? Promise.reject(new StoreAway('away')) : real.record(event),
    };
    return {
      lists,
      recorder,
      ...createFeedback({ store, tokenSecret: { read: async () => SECRET }, recorder, lists, clock, log }),
    };
  }

  /** Puts one on its way, as the dispatcher does; answers what became of it. */
  async function carry(
    recipient: string,
    body: Body,
    { receivedAt = clock.now(), attempts = 0, returns = parts().returns, mailFrom = '' } = {},
  ) {
    const message: Message = {
      id: 'm1',
      receivedAt,
      envelope: { mailFrom, client: { address: null, helo: null, tls: null } },
      trace: '',
      verdicts: null,
    };
    const settings = {
      concurrency: 1,
      concurrencyPerEndpoint: 1,
      concurrencyAtStart: 2,
      retryHours: 120,
      postmaster: '',
    };
    const road = createReturnRoad(settings, {
      spool: { message: async () => ({ message, body }) },
      returns,
      clock,
      ids: createIds(clock),
      log,
      time: createRunningTime(clock),
      sendOwn: () => Promise.reject(new Error('nothing is sent')),
    });
    const delivery = {
      id: 'm1-a',
      kind: 'return' as const,
      task: 'read' as const,
      messageId: 'm1',
      account: ACCOUNT,
      url: RETURN_URL,
      routeId: '',
      pattern: '',
      recipient,
    };
    const endpoint = { othersPass: () => false, isUp: () => true, abandoned: () => false };
    const due = { parked: false, alone: false, scheduled: false, timed: false, due: 0, failedAt: Infinity };
    const waiting = { delivery, attempts, budgetFrom: receivedAt, ...due };
    const { outcomes, shipment } = await road.prepare([waiting]);
    const outcome = outcomes.get(waiting) ?? (await shipment?.send(endpoint))?.get(waiting);
    if (!outcome) throw new Error('nothing happened to it');
    if (outcome.kind === 'settled') settled.push(outcome.settled.settlement);
    if ('settlement' in outcome && outcome.settlement) settled.push(outcome.settlement);
    return outcome;
  }

  const begin = (id = SENT, email = 'jo@example.net') =>
    parts().recorder.begin({
      id,
      account: ACCOUNT,
      createdAt: new Date(clock.now()),
      sender: 'news@example.com',
      email,
      subject: 'x',
      tags: [],
      template: null,
      subaccount: null,
      metadata: {},
      apiKey: null,
    });
  const bounce = (id = SENT) => bounceAddress(SECRET, 1, id, 'b.test');
  const events = (id = SENT) => store.messageEvents.many({ account: ACCOUNT, message: id });

  it('waits up to an hour for the row of its message', async () => {
    for (const [age, gap] of [
      [0, 1000],
      [5000, 5000],
      [HOUR_MS / 2, 60_000],
    ] as const) {
      expect(
        await carry(bounce(), inline(fixture('postfix-unknown-user')), { receivedAt: clock.now() - age }),
      ).to.deep.equal({ kind: 'put off', at: clock.now() + gap });
    }
    expect(settled).to.deep.equal([]);
    expect(
      await carry(bounce(), inline(fixture('postfix-unknown-user')), { receivedAt: clock.now() - HOUR_MS }),
    ).to.deep.include({ kind: 'settled', isLogged: true });
    expect(settled[0]).to.deep.include({ state: 'delivered' });
    expect(settled[0]?.attempt?.answer).to.equal('nothing: the message no longer exists');
  });

  it('waits as long as the store is unavailable, and is recorded afterwards', async () => {
    await begin();
    state.away = true;
    for (let i = 0; i < 3; i++)
      expect(
        await carry(bounce(), inline(fixture('postfix-unknown-user')), { receivedAt: clock.now() - 999 * HOUR_MS }),
      ).to.deep.equal({ kind: 'put off' });
    expect(settled).to.deep.equal([]);
    state.away = false;
    expect(await carry(bounce(), inline(fixture('postfix-unknown-user')))).to.deep.include({
      kind: 'settled',
      isLogged: true,
    });
    expect(settled[0]?.attempt).to.deep.include({ status: 200, answer: 'hard_bounce recorded' });
    expect((await events()).map(({ kind, detail }) => [kind, detail['code']])).to.deep.equal([['hard_bounce', 10]]);
  });

  it('counts one bounce of a message, whatever else its recipient sends; delays are reported each time', async () => {
    const other = Buffer.from(
      fixture('postfix-unknown-user').toString().replace('<postfix-unknown-user@', '<another@'),
    );
    for (const body of [fixture('postfix-unknown-user'), other, fixture('exim-failed')])
      await carry(bounce(), inline(body));
    expect(await events()).to.have.length(1);
    for (const name of ['postfix-delayed', 'postfix-delayed', 'exim-delayed'])
      await carry(bounce(), inline(fixture(name)));
    expect((await events()).map(({ kind }) => kind).sort()).to.deep.equal(['deferral', 'deferral', 'hard_bounce']);
  });

  it('is parsed as far as needed if large', async () => {
    await begin('f'.repeat(32));
    const bytes = Buffer.concat([
      fixture('gmail-no-such-user'),
      Buffer.alloc(3_000_000, 'The rest of a message that came back whole.\r\n'),
    ]);
    const path = join(await tempDir(), 'blob');
    await writeFile(path, bytes);
    await carry(bounce('f'.repeat(32)), { kind: 'file', path, size: bytes.length, sha256: '' });
    expect((await events('f'.repeat(32))).map(({ kind }) => kind)).to.deep.equal(['hard_bounce']);
  });

  it('unsubscribes by mail once a day, and records nothing for an account without such a message', async () => {
    await begin('e'.repeat(32), 'ann@example.net');
    for (let i = 0; i < 3; i++)
      await carry(unsubAddress(SECRET, 1, 'e'.repeat(32), 'b.test'), inline(fixture('unsubscribe-mail')));
    expect(settled.map(({ attempt }) => attempt?.answer)).to.deep.equal([
      'unsub recorded',
      'unsub duplicate',
      'unsub duplicate',
    ]);
    expect(
      await carry(unsubAddress(SECRET, 2, 'e'.repeat(32), 'b.test'), inline(fixture('unsubscribe-mail'))),
    ).to.include({ kind: 'put off' });
    expect(await events('e'.repeat(32))).to.have.length(1);
  });

  it('is retried after an internal error, like any delivery, and reports it', async () => {
    const returns = {
      handle: async () => {
        throw new TypeError('ours');
      },
    };
    const carried = await carry(bounce(), inline(fixture('human')), { returns });
    expect(carried).to.deep.include({ kind: 'settled' });
    expect(settled[0]).to.deep.include({ state: 'waiting' });
    expect(settled[0]?.attempt).to.deep.include({ status: 500, answer: 'internal error' });
    expect(log.of('delivery.fault')).to.have.length(1);
  });

  it('is logged without subjects, bodies and addresses', async () => {
    await carry(bounce(), inline(fixture('human')), { mailFrom: 'jo@example.net' });
    const lines = JSON.stringify(log.lines);
    expect(lines)
      .to.contain('not a recognized bounce')
      .and.to.not.contain('news')
      .and.to.not.contain('house')
      .and.to.not.contain(SENT);
  });
});
