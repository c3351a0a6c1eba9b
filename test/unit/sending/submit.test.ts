import { expect } from 'chai';
import { createIds, deliveryId } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createLists } from '../../../src/events/lists.ts';
import { createRecorder, type Recorder } from '../../../src/events/record.ts';
import { sentId } from '../../../src/mail/addresses/return-address.ts';
import { createOwnDomains } from '../../../src/sending/domains/own-domains.ts';
import { createSendingQuota } from '../../../src/sending/sending-quota.ts';
import { createSubmitting } from '../../../src/sending/submit.ts';
import type { Submission, SubmitOutcome } from '../../../src/sending/types.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createSureTime } from '../../support/clock.ts';
import { NO_COPIES } from '../../support/copies.ts';
import { subaccountRow } from '../../support/lists.ts';
import { ALL_SIGNED, PLAIN_OUTGOING } from '../../support/messages.ts';
import { freshSpool } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';

const ACCOUNT = 'acme';
const NOTHING: Recorder = {
  begin: () => Promise.reject(new StoreAway('away')),
  record: () => Promise.reject(new StoreAway('away')),
};

/** What was accepted; fails when nothing was. */
function recipientsOf(outcome: SubmitOutcome) {
  if (outcome.outcome !== 'accepted') throw new Error(outcome.outcome);
  return outcome.recipients;
}

describe('the submission of a message', () => {
  let store: Store;
  let world: Awaited<ReturnType<typeof start>>;

  async function start() {
    const opened = await freshSpool();
    const { clock, log, spool } = opened;
    store = await openTestStore(log, opened.dir);
    const ids = createIds(clock);
    const published: string[] = [];
    const outbox = {
      publish: async (_: string, events: readonly { event: string }[]) => {
        published.push(...events.map(({ event }) => event));
      },
    };
    const lists = createLists({ store, outbox, clock, ids, log });
    const recorder = createRecorder({ store, lists, outbox, clock, log });
    const deps = {
      store,
      spool,
      lists,
      copies: NO_COPIES,
      recorder,
      sendingQuota: createSendingQuota({ quota: true }, { store, ids, time: createSureTime(clock) }),
      ownDomains: createOwnDomains(
        { fromOwnDomains: 'auto', returnDomain: 'bounces.postern.test', signingDomain: '' },
        { store },
      ),
      signing: ALL_SIGNED,
      clock,
      ids,
      log,
      metrics: NO_METRICS,
    };
    const submitting = (other: Partial<typeof deps> = {}) =>
      createSubmitting({ hostname: 'mx.postern.test', returnDomain: 'bounces.postern.test' }, { ...deps, ...other });
    const submit = (
      recipients: readonly string[],
      change: Partial<Submission> = {},
      other: Partial<typeof deps> = {},
    ) =>
      submitting(other).submit({
        account: ACCOUNT,
        outgoing: PLAIN_OUTGOING,
        otherAuthors: [],
        bytes: Buffer.from('{"html":null}'),
        recipients,
        sendAt: null,
        client: null,
        ...change,
      });
    return { ...deps, published, submit, queued: () => spool.list({ account: ACCOUNT }, 10_000) };
  }
  beforeEach(async () => {
    world = await start();
  });
  afterEach(() => store.close());

  it('queues one message with a delivery for each recipient, and creates a row for each', async () => {
    const sent = recipientsOf(await world.submit(['Ann@Example.com', 'bob@bücher.example']));
    expect(sent.map(({ email, status, rejectReason }) => [email, status, rejectReason])).to.deep.equal([
      ['Ann@Example.com', 'queued', null],
      ['bob@bücher.example', 'queued', null],
    ]);
    const deliveries = (await world.queued()).toReversed();
    expect(
      deliveries.map(({ url, recipient, routeId, pattern, state }) => ({ url, recipient, routeId, pattern, state })),
    ).to.deep.equal([
      { url: 'smtp://example.com', recipient: 'Ann@example.com', routeId: '', pattern: '', state: 'waiting' },
      {
        url: 'smtp://xn--bcher-kva.example',
        recipient: 'bob@xn--bcher-kva.example',
        routeId: '',
        pattern: '',
        state: 'waiting',
      },
    ]);
    const [first] = deliveries;
    expect(new Set(deliveries.map(({ messageId }) => messageId)).size).to.equal(1);
    expect(first?.id).to.equal(deliveryId(first?.messageId ?? '', 'out', 'Ann@example.com'));
    expect(sent.map(({ id }) => id)).to.deep.equal(deliveries.map(({ id }) => sentId(id)));
    const kept = await world.spool.message(first?.messageId ?? '');
    expect(kept?.message.envelope).to.deep.equal({
      mailFrom: '',
      client: { address: null, helo: null, tls: null },
      outgoing: { ...PLAIN_OUTGOING, host: 'mx.postern.test' },
    });
    expect(kept?.message.trace, 'the API is no transport').to.equal('');
    const rows = await store.messages.many({ account: ACCOUNT });
    expect(
      rows.map(({ id, email, sender, state, delivery }) => ({ id, email, sender, state, delivery })),
    ).to.have.deep.members(
      deliveries.map(({ id, recipient }) => ({
        id: sentId(id),
        email: recipient,
        sender: 'news@example.com',
        state: 'queued',
        delivery: id,
      })),
    );
    expect(
      await store.senderDomains.one({ account: ACCOUNT, domain: 'example.com' }),
      'the domain of the sender is noted',
    ).to.not.equal(undefined);
  });

  it('removes duplicate addresses, in any case', async () => {
    expect(
      recipientsOf(await world.submit(['ann@example.com', ' ANN@EXAMPLE.COM ', 'ann@example.com'])),
    ).to.have.length(1);
    expect(await world.queued()).to.have.length(1);
  });

  it('returns invalid for bad addresses, address literals and our return addresses, and sends the rest', async () => {
    const wrong = [
      'nobody',
      'a@b@',
      '',
      'x@[192.0.2.1]',
      'token@bounces.postern.test',
      'a@exa mple.com',
      'a\r\nRCPT TO:<x@y>@example.com',
    ];
    const sent = recipientsOf(await world.submit([...wrong, 'ann@example.com']));
    expect(sent.map(({ status, rejectReason }) => [status, rejectReason])).to.deep.equal([
      ...wrong.map(() => ['invalid', 'invalid']),
      ['queued', null],
    ]);
    expect(new Set(sent.map(({ id }) => id)).size).to.equal(sent.length);
    expect(await store.messages.many({})).to.have.length(1);
  });

  it('rejects recipients on the list of the account or of the subaccount, with the reason, a row and an event', async () => {
    await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust'));
    const entry = { account: ACCOUNT, detail: null, sender: null, at: new Date(world.clock.now()) };
    await world.lists.reject({ ...entry, email: 'gone@example.com', subaccount: '', reason: 'hard-bounce' });
    await world.lists.reject({ ...entry, email: 'out@example.com', subaccount: 'cust', reason: 'unsub' });
    world.published.length = 0;
    const people = ['Gone@example.com', 'out@example.com', 'ann@example.com'];
    const sent = recipientsOf(await world.submit(people, { outgoing: { ...PLAIN_OUTGOING, subaccount: 'cust' } }));
    expect(sent.map(({ status, rejectReason }) => [status, rejectReason])).to.deep.equal([
      ['rejected', 'hard-bounce'],
      ['rejected', 'unsub'],
      ['queued', null],
    ]);
    expect((await world.queued()).map(({ recipient }) => recipient)).to.deep.equal(['ann@example.com']);
    expect((await store.messages.one({ id: sent[0]?.id ?? '' }))?.state).to.equal('rejected');
    const events = await store.messageEvents.many({ account: ACCOUNT, message: sent[1]?.id ?? '' });
    expect(events.map(({ kind, detail }) => [kind, detail])).to.deep.equal([['reject', { reason: 'unsub' }]]);
    expect(
      recipientsOf(await world.submit(people)).map(({ status }) => status),
      'without the subaccount',
    ).to.deep.equal(['rejected', 'queued', 'queued']);
  });

  it('queues nothing if all are rejected', async () => {
    await world.lists.reject({
      account: ACCOUNT,
      email: 'gone@example.com',
      subaccount: '',
      reason: 'custom',
      detail: null,
      sender: null,
      at: new Date(),
    });
    expect(recipientsOf(await world.submit(['gone@example.com']))[0]?.status).to.equal('rejected');
    expect(await world.queued()).to.deep.equal([]);
  });

  it('rejects an unknown subaccount, and that of another account', async () => {
    await store.subaccounts.insert(subaccountRow('other', 'theirs'));
    for (const subaccount of ['nobody', 'theirs'])
      expect(await world.submit(['ann@example.com'], { outgoing: { ...PLAIN_OUTGOING, subaccount } })).to.deep.equal({
        outcome: 'unknown-subaccount',
      });
    expect(await store.messages.many({})).to.deep.equal([]);
  });

  it('schedules for a future time, and sends at once for a past one', async () => {
    const sendAt = new Date(world.clock.now() + 3_600_000);
    const [later] = recipientsOf(await world.submit(['ann@example.com'], { sendAt }));
    expect(later?.status).to.equal('scheduled');
    const [delivery] = await world.queued();
    expect({ dueAt: delivery?.dueAt, budgetFrom: delivery?.budgetFrom }).to.deep.equal({
      dueAt: sendAt.getTime(),
      budgetFrom: sendAt.getTime(),
    });
    expect(await store.scheduled.one({ id: later?.id ?? '' })).to.deep.include({
      account: ACCOUNT,
      sendAt,
      email: 'ann@example.com',
      delivery: delivery?.id,
      state: null,
    });
    expect(
      recipientsOf(await world.submit(['bob@example.com'], { sendAt: new Date(world.clock.now() - 1000) }))[0]?.status,
    ).to.equal('queued');
    expect(await store.scheduled.many({})).to.have.length(1);
  });

  it('writes a Received line for mail by SMTP, without recipients that another must not see', async () => {
    const client = { address: '192.0.2.9', helo: 'laptop.example', tls: 'TLSv1.3' };
    await world.submit(['ann@example.com', 'bob@example.com'], { client });
    const [delivery] = await world.queued();
    const trace = (await world.spool.message(delivery?.messageId ?? ''))?.message.trace ?? '';
    expect(trace)
      .to.match(
        /^Received: from laptop\.example \(\[192\.0\.2\.9\]\)\r\n\tby mx\.postern\.test \(Postern\) with ESMTPSA id \w+\r\n/,
      )
      .and.to.not.include('ann@');
  });

  it('accepts queued mail although no row could be written, and logs it once', async () => {
    const sent = recipientsOf(
      await world.submit(['ann@example.com', 'bob@example.com'], {}, { recorder: { ...world.recorder, ...NOTHING } }),
    );
    expect(sent.map(({ status }) => status)).to.deep.equal(['queued', 'queued']);
    expect(await world.queued()).to.have.length(2);
    expect(world.log.of('message.unrecorded')).to.have.length(1);
  });

  it('stores nothing while the store is unavailable', async () => {
    const away = { ...world.lists, suppression: () => Promise.reject(new StoreAway('away')) };
    expect(await world.submit(['ann@example.com'], {}, { lists: away })).to.deep.equal({ outcome: 'fault' });
    expect(await world.queued()).to.deep.equal([]);
    expect(world.log.of('message.fault'), 'that it is away is said elsewhere').to.have.length(0);
  });

  it('stores nothing when the spool is full or fails, and removes scheduled rows', async () => {
    const sendAt = new Date(world.clock.now() + 60_000);
    expect(
      await world.submit(['ann@example.com'], {}, { spool: { ...world.spool, hasRoom: () => false } }),
    ).to.deep.equal({ outcome: 'full' });
    for (const outcome of ['full', 'fault'] as const) {
      expect(
        await world.submit(['ann@example.com'], { sendAt }, { spool: { ...world.spool, accept: async () => outcome } }),
      ).to.deep.equal({ outcome });
    }
    expect(
      await world.submit(
        ['ann@example.com'],
        { sendAt },
        { spool: { ...world.spool, accept: () => Promise.reject(new Error('broken')) } },
      ),
    ).to.deep.equal({ outcome: 'fault' });
    expect(await store.messages.many({})).to.deep.equal([]);
    expect(await store.scheduled.many({})).to.deep.equal([]);
    expect(world.log.of('message.fault')).to.have.length(1);
  });

  it('handles a thousand recipients, looking up a few at a time', async () => {
    let now = 0;
    let most = 0;
    const lists = {
      ...world.lists,
      async suppression() {
        most = Math.max(most, ++now);
        await new Promise((done) => setImmediate(done));
        now--;
        return undefined;
      },
    };
    const people = Array.from({ length: 1000 }, (_, n) => `person${n}@example.com`);
    expect(recipientsOf(await world.submit(people, {}, { lists }))).to.have.length(1000);
    expect(await world.queued()).to.have.length(1000);
    expect(await store.messages.many({ account: ACCOUNT }, { limit: 2000 })).to.have.length(1000);
    expect(most).to.be.within(2, 32);
  });

  it('keeps the metadata of each recipient in its row', async () => {
    const outgoing = {
      ...PLAIN_OUTGOING,
      metadata: { site: 'a', user: '0' },
      rcptMetadata: { 'ann@example.com': { user: '1' } },
      tags: ['welcome'],
    };
    await world.submit(['Ann@example.com', 'bob@example.com'], { outgoing });
    const rows = await store.messages.many({ account: ACCOUNT });
    expect(Object.fromEntries(rows.map(({ email, metadata }) => [email, metadata]))).to.deep.equal({
      'Ann@example.com': { site: 'a', user: '1' },
      'bob@example.com': { site: 'a', user: '0' },
    });
    expect(await store.messageTags.many({ account: ACCOUNT, tag: 'welcome' })).to.have.length(2);
  });
});
