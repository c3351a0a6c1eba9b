import { expect } from 'chai';
import { pauseId } from '../../../src/store/rows/pauses.ts';
import { ACCOUNT, type ApiWorld, NO_RULES, OTHER_ACCOUNT, putDeadDelivery, startApi } from '../../support/api.ts';
import { clockAt } from '../../support/clock.ts';
import { put, settled } from '../../support/spool.ts';

describe('undocumented operations', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  it('route-key returns one key for two routes with one URL, and another after a rotation', async () => {
    const { body: route } = await world.call('/inbound/add-route', {
      domain: 'inbound.example.com',
      pattern: 'b',
      url: 'https://app.example.com/hooks/mail',
    });
    const { body: first } = await world.call('/inbound/route-key', { id: '1.1' });
    const { body: second } = await world.call('/inbound/route-key', { id: route.id });
    expect(second.auth_key).to.equal(first.auth_key);
    expect(Buffer.from(first.signing_secret.slice('whsec_'.length), 'base64').toString()).to.equal(first.auth_key);
    const { body: rotated } = await world.call('/inbound/route-key', { id: '1.1', rotate: true });
    expect(rotated.auth_key).to.not.equal(first.auth_key);
    expect((await world.call('/inbound/route-key', { id: route.id })).body.auth_key).to.equal(rotated.auth_key);
  });

  it('route-key returns ServiceUnavailable while the key is unavailable', async () => {
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
    expect((await world.call('/inbound/route-key', { id: '1.1' })).status).to.equal(503);
  });

  it('test-route shows which route wins and why the others do not', async () => {
    const add = (pattern: string) =>
      world.call('/inbound/add-route', {
        domain: 'inbound.example.com',
        pattern,
        url: `https://app.example.com/${pattern.length}`,
      });
    await add('*');
    await add('mailbox-9');
    const { body } = await world.call('/inbound/test-route', { domain: 'INBOUND.example.com', mailbox: 'mailbox-9' });
    expect(body.route).to.deep.include({ id: '1.3', pattern: 'mailbox-9' });
    expect(body.routes.map((route: { result: string }) => route.result)).to.deep.equal([
      'less specific',
      'less specific',
      'hit',
    ]);
    expect(body.payload[0].msg.email).to.equal('mailbox-9@INBOUND.example.com');
  });

  it('test-route reports when nothing matches, and which facts are missing if it depends on them', async () => {
    const { body } = await world.call('/inbound/test-route', { address: 'nobody@inbound.example.com' });
    expect(body).to.deep.equal({
      email: 'nobody@inbound.example.com',
      route: null,
      payload: null,
      content_type: null,
      routes: [
        {
          id: '1.1',
          pattern: 'mailbox-*',
          url: 'https://app.example.com/hooks/mail',
          batch_events: 1,
          format: 'mandrill',
          raw: true,
          attachments: 'auto',
          link_over: 0,
          facts: false,
          has_password: false,
          order: 'none',
          ...NO_RULES,
          result: 'no match',
          why: 'The pattern does not match the mailbox.',
        },
      ],
    });
    expect((await world.call('/inbound/test-route', { mailbox: 'x' })).body.message).to.equal(
      'Validation error: {"address":"Please enter an address, or a domain and a mailbox"}',
    );
  });

  it('pauses at most a thousand endpoints of an account', async () => {
    const url = (n: number) => `https://app.example.com/hooks/${n}`;
    const until = new Date('2026-01-07');
    for (let n = 0; n < 998; n++)
      await world.store.pauses.insert({
        ...{ id: pauseId(ACCOUNT, url(n)), of: ACCOUNT, url: url(n) },
        ...{ kind: 'inbound', by: 'account', until },
      });
    for (const n of [998, 999, 1000])
      await world.call('/inbound/add-route', { domain: 'inbound.example.com', pattern: `box-${n}`, url: url(n) });
    const pause = (n: number, params: object = {}) => world.call('/endpoints/pause', { url: url(n), ...params });
    expect((await pause(998)).status).to.equal(200);
    expect((await pause(999)).status).to.equal(200);
    expect((await pause(1000)).body.message).to.equal(
      'Validation error: {"url":"At most 1000 endpoints can be paused at a time"}',
    );
    expect((await pause(999, { until: '2026-01-06' })).body.paused_until).to.equal('2026-01-06 00:00:00');
    await world.call('/endpoints/resume', { url: url(999) });
    expect((await pause(1000)).status).to.equal(200);
  });

  describe('deliveries and replay', () => {
    let [delivered, waiting, dead] = ['', '', ''];
    beforeEach(async () => {
      const accept = async (hour: number, routeId: string) =>
        (await put(world.spool, clockAt(Date.UTC(2026, 0, 5, hour)), { account: ACCOUNT, routeId })).delivery;
      const first = await accept(10, '1.9');
      await world.spool.settle(settled(clockAt(Date.UTC(2026, 0, 5, 10, 1)), first));
      const second = await accept(11, '1.1');
      const due = { attempt: null, state: 'waiting', dueAt: Date.UTC(2026, 0, 5, 12, 30) } as const;
      await world.spool.settle(settled(world.clock, second, due));
      [delivered, waiting] = [first.id, second.id];
      dead = await putDeadDelivery(world);
      await putDeadDelivery(world, OTHER_ACCOUNT, '01kcexamplemessage00000001');
    });
    const ids = async (params: object) =>
      (await world.call('/inbound/deliveries', params)).body.map((one: { id: string }) => one.id);
    const replayed = async (params: object) => (await world.call('/inbound/replay', params)).body.replayed;

    it('lists the newest first, with filters', async () => {
      expect(await ids({})).to.deep.equal([dead, waiting, delivered]);
      expect(await ids({ limit: 1 })).to.deep.equal([dead]);
      expect(await ids({ state: 'waiting' })).to.deep.equal([waiting]);
      expect(await ids({ route: '1.9' })).to.deep.equal([delivered]);
      expect(await ids({ domain: 'inbound.example.com' })).to.deep.equal([dead, waiting]);
      expect(await ids({ domain: 'inbound.example.com', route: '1.9' })).to.deep.equal([]);
      expect(await ids({ id: delivered })).to.deep.equal([delivered]);
      expect(await ids({ from: '2026-01-05 10:30:00', to: '2026-01-05 11:30:00' })).to.deep.equal([waiting]);
    });

    it('shows when a waiting delivery is due, and every attempt', async () => {
      const [later] = (await world.call('/inbound/deliveries', { id: waiting })).body;
      expect(later).to.include({ next_attempt_at: '2026-01-05 12:30:00', ended_at: null });
      const [failed] = (await world.call('/inbound/deliveries', { id: dead })).body;
      expect(failed.attempts).to.deep.equal([
        {
          time: '2026-01-05 11:30:01',
          duration_ms: 12,
          status: 500,
          error: null,
          answer: 'Internal Server Error',
          batch: null,
          detail: {
            address: '192.0.2.10:443',
            tls: 'TLSv1.3',
            reused: false,
            dns_ms: 0.8,
            connect_ms: 1.5,
            tls_ms: 4.2,
            first_byte_ms: 5.1,
            request_headers: [
              { name: 'host', value: 'app.example.com' },
              { name: 'webhook-id', value: dead },
              { name: 'webhook-signature', value: 'v1,K5oZfzN9…' },
            ],
            response_headers: [{ name: 'server', value: 'nginx' }],
            headers_left_out: 0,
          },
        },
      ]);
    });

    it('rejects invalid limits and times', async () => {
      for (const params of [
        { limit: -1 },
        { limit: 1001 },
        { limit: 1.5 },
        { state: 'lost' },
        { from: 'yesterday' },
        { from: '2026-02-30 00:00:00' },
      ]) {
        expect((await world.call('/inbound/deliveries', params)).body, JSON.stringify(params)).to.include({
          name: 'ValidationError',
          code: -2,
        });
      }
    });

    it('replays finished deliveries by id and by ids', async () => {
      expect(await replayed({ id: delivered })).to.equal(1);
      expect(await replayed({ ids: [dead, waiting, 'unheard-of'] })).to.equal(1);
      expect((await world.spool.list({ account: ACCOUNT }, 10)).map((one) => one.state)).to.deep.equal([
        'waiting',
        'waiting',
        'waiting',
      ]);
    });

    it('replays dead letters by time, and other states only on request', async () => {
      expect(await replayed({ from: '2026-01-05 00:00:00' })).to.equal(1);
      expect(await replayed({ from: '2026-01-05 00:00:00', state: 'delivered' })).to.equal(1);
    });

    it('does not replay everything without a selection', async () => {
      for (const params of [{}, { route: '1.1' }]) {
        expect((await world.call('/inbound/replay', params)).body.message).to.equal(
          'Validation error: {"id":"Please enter an id, ids, a query, a url, a status, or a time in from or to"}',
        );
      }
      expect(await replayed({ ids: [] })).to.equal(0);
    });
  });
});
