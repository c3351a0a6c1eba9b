import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createRouting } from '../../../src/inbound/routing.ts';
import { type ApiWorld, HOUR_MS, startApi } from '../../support/api.ts';

// A client talks to any of the hosts: what one of them has answered, the next one must know. Here each host would look
// by itself in a thousand hours.

describe('a call right after another host made a route', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
    const { store, clock, log } = world;
    const other = createRouting({ refreshMs: HOUR_MS }, { store, clock, ids: createIds(clock), log });
    const row = await store.inboundRoutes.one({ id: '1.1' });
    if (!row) throw new Error('no example route');
    const routes = [
      { pattern: 'fresh', url: 'https://app.example.com/fresh' },
      {
        pattern: 'copied',
        url: 'https://app.example.com/copied',
        also: [
          { n: 1, url: 'pull:elsewhere' },
          { n: 2, url: 'https://app.example.com/further' },
        ],
      },
    ];
    await other.change(row.domain, async () => {
      for (const [at, route] of routes.entries())
        await store.inboundRoutes.insert({ ...row, ...route, folded: route.pattern, id: `1.9${at}` });
    });
  });
  afterEach(() => world.stop());

  const CALLS = {
    '/inbound/reply-address': { domain: 'inbound.example.com', mailbox: 'fresh', data: 'x' },
    '/inbound/test-route': { address: 'fresh@inbound.example.com' },
    '/inbound/send-raw': { raw_message: 'Subject: x\n\ny', to: ['fresh@inbound.example.com'] },
    '/inbound/pull': { url: 'pull:elsewhere' },
    '/endpoints/info': { url: 'https://app.example.com/further' },
  };
  for (const [path, params] of Object.entries(CALLS))
    it(`${path} knows it`, async () => {
      // Nothing but this call makes the host look.
      const { body, status } = await world.call(path, params);
      expect(status, JSON.stringify(body)).to.equal(200);
      if (path === '/inbound/send-raw') expect(body).to.have.length(1);
      if (path === '/inbound/test-route') expect(body.route).to.include({ pattern: 'fresh' });
    });
});
