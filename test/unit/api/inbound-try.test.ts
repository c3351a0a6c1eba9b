import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createKey } from '../../../src/store/rows/accounts.ts';
import { mandrillSignature, standardSignature } from '../../../src/webhooks/signing.ts';
import { ACCOUNT, type ApiWorld, OTHER_ACCOUNT, OTHER_KEY, putDeadDelivery, startApi } from '../../support/api.ts';
import { until } from '../../support/until.ts';

const ROUTE_URL = 'https://app.example.com/hooks/mail';
const URL = 'https://staging.example.com/hooks/mail';

describe('a trial of a webhook', () => {
  let world: ApiWorld;
  let id: string;
  beforeEach(async () => {
    world = await startApi();
    id = await putDeadDelivery(world);
  });
  afterEach(() => world.stop());

  const tryAt = (url: string, params: object = {}) => world.call('/inbound/try', { id, url, ...params });
  const keyOf = async (params: object) => (await world.call('/inbound/route-key', params)).body.auth_key;

  it('posts the event of the route, marked as a trial', async () => {
    await tryAt(URL);
    const [post] = world.tried;
    const events = JSON.parse(new URLSearchParams(post?.body).get('mandrill_events') ?? '');
    const [event] = events;
    expect(event).to.deep.equal({ ...(await world.call('/inbound/payload', { id })).body, _id: event._id });
    expect(events).to.have.length(1);
    expect(post?.headers).to.include({ 'X-Postern-Trial': '1' });
    expect(post?.url).to.equal(URL);
  });

  it('has new ids each time, so that receivers that deduplicate drop neither it nor the mail', async () => {
    await tryAt(URL);
    await tryAt(URL);
    const ids = world.tried.map(({ headers, body }) => {
      const [event] = JSON.parse(new URLSearchParams(body).get('mandrill_events') ?? '');
      expect(event._id).to.equal(headers['webhook-id']);
      expect(event._id).to.match(new RegExp(`^${id}-trial-[a-z0-9]{26}$`));
      return event._id;
    });
    expect(new Set(ids).size).to.equal(2);
  });

  it('is signed with the key of the route if its URL has no key, and does not create one', async () => {
    const { body } = await tryAt(URL);
    expect(body.signing_key_url).to.equal(ROUTE_URL);
    const key = await keyOf({ id: '1.1' });
    const [post] = world.tried;
    const value = new URLSearchParams(post?.body).get('mandrill_events') ?? '';
    expect(post?.headers['X-Mandrill-Signature']).to.equal(mandrillSignature(key, URL, { mandrill_events: value }));
    expect(post?.headers['webhook-signature']).to.equal(
      standardSignature(
        [key],
        String(post?.headers['webhook-id']),
        Number(post?.headers['webhook-timestamp']),
        Buffer.from(post?.body ?? ''),
      ),
    );
    expect(await world.store.signingKeys.many({ account: ACCOUNT, url: URL })).to.deep.equal([]);
  });

  it('is signed with the key of its URL if it has one, and with both during a rotation', async () => {
    const { body: route } = await world.call('/inbound/add-route', {
      domain: 'inbound.example.com',
      pattern: 'staging',
      url: URL,
    });
    const old = await keyOf({ id: route.id });
    const fresh = await keyOf({ id: route.id, rotate: true });
    expect((await tryAt(URL)).body.signing_key_url).to.equal(URL);
    const [post] = world.tried;
    expect(post?.headers['webhook-signature']).to.equal(
      standardSignature(
        [fresh, old],
        String(post?.headers['webhook-id']),
        Number(post?.headers['webhook-timestamp']),
        Buffer.from(post?.body ?? ''),
      ),
    );
  });

  it('does not use the key of another account for the URL', async () => {
    await world.call('/inbound/add-domain', { key: OTHER_KEY, domain: 'other.example.com' });
    const route = { key: OTHER_KEY, domain: 'other.example.com', pattern: '*', url: URL };
    const { body } = await world.call('/inbound/add-route', route);
    await keyOf({ key: OTHER_KEY, id: body.id });
    expect(await world.store.signingKeys.many({ account: OTHER_ACCOUNT })).to.have.length(1);
    expect((await tryAt(URL)).body.signing_key_url).to.equal(ROUTE_URL);
  });

  it('leaves no trace: not in the delivery, its attempts, the numbers or the keys', async () => {
    const look = async () => ({
      deliveries: (await world.call('/inbound/deliveries')).body,
      endpoints: await world.spool.endpoints(),
      counters: await world.store.counters.many({ account: ACCOUNT }),
    });
    const before = await look();
    for (const status of [200, 410, 500]) {
      world.outside.answer = () => ({ kind: 'answered', status, retryAfter: '3600', answer: 'x', durationMs: 1 });
      expect((await tryAt(URL)).body).to.include({ status, error: null });
    }
    expect(await look()).to.deep.equal(before);
  });

  it('explains why there was no answer', async () => {
    world.outside.answer = () => ({ kind: 'unanswered', error: 'timeout', connected: true, durationMs: 30_000 });
    const { status, body } = await tryAt(URL);
    expect(status).to.equal(200);
    expect(body).to.include({ status: null, error: 'timeout', answer: '', duration_ms: 30_000 });
  });

  it('reports the same for an unknown name and one in a forbidden network', async () => {
    const words = [];
    for (const error of ['host not found', 'forbidden address'] as const) {
      world.outside.answer = () => ({ kind: 'unanswered', error, connected: false, durationMs: 0 });
      words.push((await tryAt('http://intranet.example.com/')).body);
    }
    expect(words[0]).to.include({ name: 'ValidationError' });
    expect(words[0].message).to.contain('the host has no address that webhooks may reach');
    expect(words[1]).to.deep.equal(words[0]);
  });

  it('lists the allowed ports if the port is the reason', async () => {
    const cause = 'webhooks may use port 80, 443 and those above 1023, not port 25';
    world.outside.answer = () => ({
      ...{ kind: 'unanswered', error: 'forbidden address', cause, connected: false, durationMs: 0 },
    });
    const { body } = await tryAt('http://mail.example.com:25/');
    expect(body).to.include({ name: 'ValidationError' });
    expect(body.message).to.contain(`Nothing was posted: ${cause}`);
  });

  it('rejects a URL that a route could not have', async () => {
    for (const url of [
      'ftp://example.com/',
      'smtp://example.com',
      'file:///etc/passwd',
      '/hooks',
      'http://a/#b',
      'http://a b/',
    ])
      expect((await tryAt(url)).body, url).to.include({ name: 'ValidationError' });
    expect(world.tried).to.deep.equal([]);
  });

  it('returns ServiceUnavailable while no key is available', async () => {
    await world.stop();
    world = await startApi({
      deps: {
        signingKeys: {
          keysFor: async () => undefined,
          keysIfAny: async () => undefined,
          rotate: () => Promise.reject(new Error('unused')),
          carryOver: () => Promise.reject(new Error('unused')),
        },
      },
    });
    await putDeadDelivery(world);
    expect((await tryAt(URL)).status).to.equal(503);
    expect(world.tried).to.deep.equal([]);
  });

  it('is limited to ten a minute per account, and says when to retry', async () => {
    for (let n = 0; n < 10; n++) expect((await tryAt(URL)).status).to.equal(200);
    await world.clock.advance(20_000);
    const { status, body, headers } = await tryAt(URL);
    expect({ status, name: body.name }).to.deep.equal({ status: 429, name: 'RequestLimitExceeded' });
    expect(headers.get('retry-after')).to.equal('40');
    const theirs = await putDeadDelivery(world, OTHER_ACCOUNT, '01kcexamplemessage00000001');
    expect((await tryAt(URL, { key: OTHER_KEY, id: theirs })).status, 'another account').to.equal(200);
    await world.clock.advance(40_000);
    expect((await tryAt(URL)).status).to.equal(200);
    expect(world.tried).to.have.length(12);
  });

  it('is limited to two at a time per account and four for the host, so that a slow receiver does not block others', async () => {
    const held: (() => void)[] = [];
    const answered = { kind: 'answered', status: 200, retryAfter: null, answer: '', durationMs: 1 } as const;
    world.outside.answer = () => new Promise((resolve) => held.push(() => resolve(answered)));
    const waiting = [tryAt(URL), tryAt(URL)];
    await until('both were posted', () => held.length === 2);
    expect((await tryAt(URL)).body).to.include({ name: 'RequestLimitExceeded' });
    const theirs = await putDeadDelivery(world, OTHER_ACCOUNT, '01kcexamplemessage00000001');
    waiting.push(...[0, 1].map(() => tryAt(URL, { key: OTHER_KEY, id: theirs })));
    await until('four were posted', () => held.length === 4);
    const third = 'ThirdAccountId00000003';
    await world.store.accounts.insert({ id: third, name: 'third', number: 3, createdAt: new Date(0) });
    const key = 'ThirdKey00000000000003';
    await createKey(world.store, third, 'third', { clock: world.clock, ids: createIds(world.clock) }, key);
    const another = await putDeadDelivery(world, third, '01kcexamplemessage00000002');
    expect((await tryAt(URL, { key, id: another })).body).to.include({ name: 'RequestLimitExceeded' });
    for (const release of held.splice(0)) release();
    expect((await Promise.all(waiting)).map(({ status }) => status)).to.deep.equal([200, 200, 200, 200]);
    world.outside.answer = () => answered;
    expect((await tryAt(URL, { key, id: another })).status, 'there is room again').to.equal(200);
  });

  it('releases its slot when the message cannot be rendered', async () => {
    const { message } = world.spool;
    world.spool.message = async (...args) => {
      const found = await message(...args);
      return found && { ...found, body: { kind: 'file', path: '/nowhere/at/all', size: 1, sha256: '' } };
    };
    for (let n = 0; n < 3; n++) expect((await tryAt(URL)).status).to.equal(500);
    world.spool.message = message;
    expect((await tryAt(URL)).status).to.equal(200);
  });
});

describe('a sample for a route', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());
  const trySample = (params: object) => world.call('/inbound/try-route', params);

  it('is posted to its URL, signed with its key and marked as a trial, and the answer is shown', async () => {
    world.outside.answer = () => ({ kind: 'answered', status: 418, retryAfter: null, answer: 'teapot', durationMs: 7 });
    const { body } = await trySample({ id: '1.1', address: 'mailbox-7@inbound.example.com' });
    expect(body).to.include({ status: 418, answer: 'teapot', url: ROUTE_URL, email: 'mailbox-7@inbound.example.com' });
    const [post] = world.tried;
    const value = new URLSearchParams(post?.body).get('mandrill_events') ?? '';
    const [event] = JSON.parse(value);
    expect(event.msg).to.include({ subject: 'A sample message', email: 'mailbox-7@inbound.example.com' });
    expect(event._id).to.match(/^sample-trial-/);
    expect(post?.url).to.equal(ROUTE_URL);
    const { auth_key: key } = (await world.call('/inbound/route-key', { id: '1.1' })).body;
    expect(post?.headers).to.include({
      'X-Postern-Trial': '1',
      'webhook-id': event._id,
      'X-Mandrill-Signature': mandrillSignature(key, ROUTE_URL, { mandrill_events: value }),
    });
    expect((await world.call('/inbound/deliveries')).body).to.deep.equal([]);
  });

  it('uses an address that the route matches, and accepts no other', async () => {
    expect((await trySample({ id: '1.1' })).body.email).to.equal('mailbox-sample@inbound.example.com');
    for (const address of ['other@inbound.example.com', 'mailbox-1@elsewhere.example.com'])
      expect((await trySample({ id: '1.1', address })).body.message).to.contain(
        'Please enter an address that the route 1.1 matches: mailbox-*@inbound.example.com',
      );
    expect(world.tried).to.have.length(1);
  });

  it('has the values of pattern names and a reply address, as mail has', async () => {
    await world.call('/inbound/update-route', { id: '1.1', pattern: 'mailbox-{ticket}' });
    const eventOf = (at: number) => {
      const value = new URLSearchParams(world.tried[at]?.body).get('mandrill_events') ?? '';
      return JSON.parse(value)[0].msg;
    };
    expect((await trySample({ id: '1.1' })).body.email).to.equal('mailbox-sample@inbound.example.com');
    expect(eventOf(0)).to.deep.include({ captures: { ticket: 'sample' }, reply_data: null });
    const made = { domain: 'inbound.example.com', mailbox: 'mailbox-7', data: 'ticket 4711' };
    const { email: address } = (await world.call('/inbound/reply-address', made)).body;
    expect((await trySample({ id: '1.1', address })).body).to.include({ status: 200, email: address });
    expect(eventOf(1)).to.deep.include({ captures: { ticket: '7' }, reply_data: 'ticket 4711' });
  });

  it('is not posted for a reply address that is forged or expired: mail to it is refused', async () => {
    const made = { domain: 'inbound.example.com', mailbox: 'mailbox-7', data: 'ticket 4711' };
    const addressOf = async (more = {}) =>
      (await world.call('/inbound/reply-address', { ...made, ...more })).body.email as string;
    const until = new Date(world.clock.now() + 60_000).toISOString().slice(0, 19).replace('T', ' ');
    const expiring = await addressOf({ expires_at: until });
    const good = await addressOf();
    expect((await trySample({ id: '1.1', address: expiring })).status).to.equal(200);
    await world.clock.advance(120_000);
    const last = good.indexOf('@') - 1;
    const forged = `${good.slice(0, last)}${good[last] === 'a' ? 'b' : 'a'}${good.slice(last + 1)}`;
    const messages: string[] = [];
    for (const address of [forged, expiring]) messages.push((await trySample({ id: '1.1', address })).body.message);
    expect(messages[0]).to.contain('would be refused with 550 5.1.1');
    expect(messages[1]).to.contain('would be refused with 550 5.7.1, because this reply address has expired');
    expect(world.tried).to.have.length(1);
    expect((await trySample({ id: '1.1', address: good })).status).to.equal(200);
  });

  it('is not posted for another account, or above the limit of trials', async () => {
    expect((await trySample({ id: '1.1', key: OTHER_KEY })).body.name).to.equal('Unknown_InboundRoute');
    for (let n = 0; n < 10; n++) expect((await trySample({ id: '1.1' })).status).to.equal(200);
    expect((await trySample({ id: '1.1' })).body.name).to.equal('RequestLimitExceeded');
    expect(world.tried).to.have.length(10);
  });

  it('does not reveal what exists in a forbidden network', async () => {
    world.outside.answer = () => ({ kind: 'unanswered', error: 'forbidden address', connected: false, durationMs: 0 });
    expect((await trySample({ id: '1.1' })).body.message).to.contain('no address that webhooks may reach');
  });
});
