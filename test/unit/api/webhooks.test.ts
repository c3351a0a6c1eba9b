import { expect } from 'chai';
import { SpoolFull } from '../../../src/queue/disk/faults.ts';
import { ACCOUNT, type ApiWorld, OTHER_KEY, startApi } from '../../support/api.ts';
import { queued } from '../../support/shared-spool.ts';
import { putBatch } from '../../support/webhooks.ts';

const ALL = [
  'send',
  'hard_bounce',
  'soft_bounce',
  'open',
  'click',
  'spam',
  'unsub',
  'reject',
  'blacklist',
  'whitelist',
];
const URL = 'https://app.example.com/hooks/new';

describe('webhooks', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const ok = async (path: string, params: object = {}): Promise<any> => {
    const { status, body } = await world.call(path, params);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  };
  const fault = async (path: string, params: object): Promise<unknown> => {
    const { status, body } = await world.call(path, params);
    expect(body).to.include({ name: 'ValidationError', code: -2 });
    expect(status).to.equal(422);
    return JSON.parse(body.message.slice('Validation error: '.length));
  };

  it('subscribe to every event of the interface, once each, if they name none', async () => {
    expect((await ok('/webhooks/add', { url: URL })).events).to.deep.equal(ALL);
    expect((await ok('/webhooks/add', { url: URL, events: [] })).events).to.deep.equal(ALL);
    expect(
      (await ok('/webhooks/add', { url: URL, events: ['open', 'click', 'open', 'deferral'] })).events,
    ).to.deep.equal(['open', 'click', 'deferral']);
  });

  it('are numbered per account, and numbers are never reused', async () => {
    const { id: first } = await ok('/webhooks/add', { url: URL });
    const { id: others } = await ok('/webhooks/add', { url: URL, key: OTHER_KEY });
    await ok('/webhooks/delete', { id: first });
    const { id: second } = await ok('/webhooks/add', { url: URL });
    expect(new Set([4, first, others, second]).size).to.equal(4);
    expect(second).to.be.greaterThan(first);
  });

  it('reject unknown events, an invalid URL, and a URL that does not answer', async () => {
    expect(await fault('/webhooks/add', { url: URL, events: ['send', 'sent'] }))
      .to.have.property('events')
      .that.contains('[1]: ');
    expect(await fault('/webhooks/add', { url: 'ftp://app.example.com/' })).to.have.property('url');
    world.missingUrls.add(URL);
    const missing = { url: "We can't verify that the URL exists. Cause: nothing is there" };
    expect(await fault('/webhooks/add', { url: URL })).to.deep.equal(missing);
    expect(await fault('/webhooks/update', { id: 4, url: URL })).to.deep.equal(missing);
    expect(await ok('/webhooks/list')).to.have.length(1);
  });

  it('keep fields missing in an update, and send waiting mail to a new URL', async () => {
    const before = await ok('/webhooks/info', { id: 4 });
    const { id: delivery } = await ok('/webhooks/test', { id: 4 });
    const url = async () => (await world.spool.delivery(delivery))?.url;
    expect(await ok('/webhooks/update', { id: 4, url: before.url, description: null, events: null })).to.deep.equal(
      before,
    );
    expect(await url()).to.equal(before.url);
    const after = await ok('/webhooks/update', { id: 4, url: URL, description: '' });
    expect(after).to.deep.include({
      url: URL,
      description: '',
      events: before.events,
      batches_sent: before.batches_sent,
    });
    expect(await url()).to.equal(URL);
  });

  it('keep their events when an update names an empty list, as the official client sends it by default', async () => {
    const { events } = await ok('/webhooks/info', { id: 4 });
    expect((await ok('/webhooks/update', { id: 4, url: URL, events: [] })).events)
      .to.deep.equal(events)
      .and.to.not.deep.equal(ALL);
    expect((await ok('/webhooks/update', { id: 4, url: URL, events: ALL })).events).to.deep.equal(ALL);
  });

  it('keep their key at a new URL, because their consumer knows no other; a URL with its own key keeps that', async () => {
    const { auth_key: key } = await ok('/webhooks/info', { id: 4 });
    expect((await ok('/webhooks/update', { id: 4, url: URL })).auth_key).to.equal(key);
    expect((await ok('/webhooks/info', { id: 4 })).auth_key).to.equal(key);
    expect((await ok('/webhooks/key', { id: 4 })).auth_key).to.equal(key);
    const { auth_key: other } = await ok('/webhooks/add', { url: `${URL}/other` });
    expect(other).to.not.equal(key);
    expect((await ok('/webhooks/update', { id: 4, url: `${URL}/other` })).auth_key).to.equal(other);
    const { auth_key: ofRoute } = await ok('/inbound/route-key', { id: '1.1' });
    await ok('/inbound/update-route', { id: '1.1', url: `${URL}/mail` });
    expect((await ok('/inbound/route-key', { id: '1.1' })).auth_key, 'of a route likewise').to.equal(ofRoute);
  });

  it('are deleted with their waiting events and counters', async () => {
    const before = await ok('/webhooks/info', { id: 4 });
    const { id: delivery } = await ok('/webhooks/test', { id: 4 });
    expect(await ok('/webhooks/delete', { id: 4 })).to.deep.equal(before);
    expect((await world.spool.delivery(delivery))?.state).to.equal('dropped');
    expect(await world.store.webhookTallies.many({})).to.deep.equal([]);
    expect((await world.call('/webhooks/info', { id: 4 })).body).to.include({
      name: 'Unknown_Webhook',
      message: 'Unknown hook ID 4',
      code: 3,
    });
    expect((await world.call('/webhooks/delete', { id: 4 })).status).to.equal(404);
  });

  it('notify the outbox of every change, before the answer', async () => {
    await ok('/webhooks/add', { url: URL });
    await ok('/webhooks/update', { id: 4, url: URL });
    await ok('/webhooks/delete', { id: 4 });
    expect(world.forgotten).to.deep.equal([ACCOUNT, ACCOUNT, ACCOUNT]);
  });

  it('show the sum over all hosts, and the latest success and error of any', async () => {
    await world.store.webhookTallies.insert({
      id: '4 three',
      account: ACCOUNT,
      webhook: '4',
      batchesSent: 1,
      eventsSent: 5,
      lastSentAt: new Date('2026-01-05T11:45:10Z'),
      lastError: 'POST to https://app.example.com/hooks/events failed with 500: Oh',
      lastErrorAt: new Date('2026-01-05T11:40:00Z'),
    });
    await world.store.webhookTallies.change(
      { id: '4 one' },
      { lastError: 'an older one', lastErrorAt: new Date('2026-01-05T11:00:00Z') },
    );
    const numbers = {
      batches_sent: 43,
      events_sent: 1897,
      last_sent_at: '2026-01-05 11:45:10',
      last_error: 'POST to https://app.example.com/hooks/events failed with 500: Oh',
    };
    expect(await ok('/webhooks/info', { id: 4 })).to.include(numbers);
    expect((await ok('/webhooks/list'))[0]).to.include(numbers);
  });

  it('sign with the key of account and URL, shared with a route to the same URL', async () => {
    const { id, auth_key: key } = await ok('/webhooks/add', { url: 'https://app.example.com/hooks/mail' });
    expect((await ok('/inbound/route-key', { id: '1.1' })).auth_key).to.equal(key);
    const { auth_key: rotated, signing_secret: secret } = await ok('/webhooks/key', { id, rotate: true });
    expect(rotated).to.not.equal(key);
    expect(Buffer.from(secret.replace('whsec_', ''), 'base64').toString()).to.equal(rotated);
    expect((await ok('/webhooks/info', { id })).auth_key).to.equal(rotated);
    expect((await ok('/webhooks/key', { id })).auth_key).to.equal(rotated);
  });

  it('are all listed, however many there are', async () => {
    const createdAt = new Date('2026-01-05T11:00:00Z');
    for (let number = 1001; number <= 2050; number++) {
      await world.store.webhooks.insert({
        id: String(number),
        account: ACCOUNT,
        number,
        url: URL,
        description: null,
        events: [],
        createdAt,
      });
    }
    expect((await ok('/webhooks/list')).map(({ id }: { id: number }) => id)).to.deep.equal([
      4,
      ...Array.from({ length: 1050 }, (_, n) => 1001 + n),
    ]);
  }).timeout(60_000);

  it('are listed from a given id on, the oldest first', async () => {
    const more = [];
    for (let i = 0; i < 3; i++) more.push((await ok('/webhooks/add', { url: URL })).id);
    const ids = async (params: object) => (await ok('/webhooks/list', params)).map(({ id }: { id: number }) => id);
    expect(await ids({})).to.deep.equal([4, ...more]);
    expect(await ids({ after: more[0] })).to.deep.equal(more.slice(1));
    expect(await ids({ after: more[2] })).to.deep.equal([]);
    expect(await ok('/webhooks/list', { key: OTHER_KEY })).to.deep.equal([]);
  });

  it('post an example of each subscribed event', async () => {
    const { id } = await ok('/webhooks/add', { url: URL, events: [...ALL, 'deferral', 'delivered'] });
    expect(await ok('/webhooks/test', { id })).to.include({ events: 12 });
    const [batch] = await queued(world.spool);
    expect(batch?.deliveries[0]).to.deep.include({
      kind: 'events',
      account: ACCOUNT,
      url: URL,
      batch: { webhook: String(id), events: 12 },
    });
    const events: any[] = JSON.parse(batch?.text ?? '');
    expect(events.map(({ event, type }) => event ?? type)).to.deep.equal([...ALL, 'deferral', 'delivered']);
    for (const { msg } of events.filter(({ event }) => event !== undefined)) {
      expect(msg).to.deep.include({
        subject: 'This an example webhook message',
        tags: ['webhook-example'],
        metadata: { user_id: 111 },
      });
      expect(msg._id)
        .to.match(/^example/)
        .and.to.have.length(32);
    }
    expect(events.find(({ event }) => event === 'click')).to.include({ url: 'https://example.com/', ip: '127.0.0.1' });
    expect(events.find(({ event }) => event === 'hard_bounce').msg).to.include({
      bounce_description: 'bad_mailbox',
      bgtools_code: 10,
    });
    expect(events.find(({ type }) => type === 'blacklist')).to.include({ action: 'add' });
    expect(events.find(({ type }) => type === 'whitelist').entry).to.include({ email: 'example.email@example.com' });
  });

  it('return ServiceUnavailable when the spool cannot accept an example', async () => {
    world.spool.events.send = () => Promise.reject(new SpoolFull('no room for events'));
    expect((await world.call('/webhooks/test', { id: 4 })).body).to.include({ name: 'ServiceUnavailable' });
  });

  it('keep their batches apart from inbound mail', async () => {
    const delivered = await putBatch(world.spool, ACCOUNT);
    expect(await ok('/inbound/deliveries')).to.deep.equal([]);
    expect((await ok('/inbound/replay', { from: '2020-01-01', state: 'delivered' })).matched).to.equal(0);
    expect((await ok('/inbound/replay', { id: delivered })).matched).to.equal(0);
    const [batch] = await ok('/webhooks/deliveries', { id: 4 });
    expect(batch).to.include({
      id: delivered,
      webhook: 4,
      events: 3,
      state: 'delivered',
    });
    expect(await ok('/webhooks/deliveries', { id: 4, state: 'dead' })).to.deep.equal([]);
    expect(await ok('/webhooks/deliveries', { id: 4, delivery: 'another' })).to.deep.equal([]);
    const { id } = await ok('/webhooks/add', { url: URL });
    expect(await ok('/webhooks/deliveries', { id })).to.deep.equal([]);
  });

  it('keep each of fifty concurrent changes', async () => {
    const added = await Promise.all(Array.from({ length: 50 }, (_, n) => ok('/webhooks/add', { url: `${URL}/${n}` })));
    expect(new Set(added.map(({ id }) => id)).size).to.equal(50);
    const deleted = await Promise.all(
      Array.from({ length: 50 }, () => world.call('/webhooks/delete', { id: added[0].id })),
    );
    expect(deleted.filter(({ status }) => status === 200)).to.have.length(1);
    expect(await ok('/webhooks/list')).to.have.length(50);
  });
});
