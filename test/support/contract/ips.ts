import { ip, pool } from './records.ts';
import { createStage, type Stage } from './stage.ts';
import { boolean, type Group, pages, required, string } from './types.ts';

const address = required(string('ip'));
const poolName = required(string('pool'));
const domain = required(string('domain', { format: 'domain' }));

/** Two addresses in the default pool, so that one of them may leave it. */
async function owned(stage: Stage): Promise<{ ip: string }> {
  await stage.ip();
  return { ip: await stage.ip() };
}

async function pooled(stage: Stage): Promise<{ pool: string }> {
  const name = `Pool ${stage.fresh()}`;
  await stage.ok('/ips/create-pool', { pool: name });
  return { pool: name };
}

/** An account that may ask for an address: it has sent, and nothing it asked for is pending. */
async function mayProvision(stage: Stage): Promise<object> {
  await stage.sent();
  Object.assign(stage.world.ips, { provisioning: 'free', minReputation: 40 });
  await stage.store.ipRequests.remove({ id: stage.account });
  return {};
}

const unknown = () => ({ ip: '203.0.113.250' });
const unknownPool = (stage: Stage) => ({ pool: `none ${stage.fresh()}` });
/** The zone of the test has an A record for it, to every address of the stage. */
const pointed = (stage: Stage) => ({ domain: `${stage.fresh()}.pointed.example.com` });
const deleted = { struct: { ip: 'string', deleted: 'boolean' } } as const;

export const ips: Group = {
  name: 'ips',
  entries: [
    {
      path: '/ips/list',
      params: [],
      beyondParams: pages,
      returns: { array: ip },
      given: async (stage) => {
        await owned(stage);
        return {};
      },
      errors: {},
    },
    {
      path: '/ips/info',
      params: [address],
      returns: ip,
      given: owned,
      errors: { Unknown_IP: unknown },
      names: ['ip'],
      beyondErrors: { Unknown_IP: 'the document lists no error here, and an address that is not there has no record' },
    },
    {
      path: '/ips/provision',
      params: [boolean('warmup'), string('pool')],
      returns: { struct: { requested_at: 'time' } },
      given: mayProvision,
      names: ['pool'],
      errors: {
        async IP_ProvisionLimit(stage) {
          await stage.ok('/ips/provision', await mayProvision(stage));
          return {};
        },
        Unknown_Pool: async (stage) => ({ ...(await mayProvision(stage)), ...unknownPool(stage) }),
        async PaymentRequired(stage) {
          await mayProvision(stage);
          stage.world.ips.provisioning = 'off';
          return {};
        },
        async NoSendingHistory(stage) {
          await mayProvision(stage);
          return { key: (await createStage(stage.world)).key };
        },
        async PoorReputation(stage) {
          await mayProvision(stage);
          stage.world.ips.minReputation = 100;
          return {};
        },
      },
    },
    {
      path: '/ips/start-warmup',
      params: [address],
      returns: ip,
      given: owned,
      errors: { Unknown_IP: unknown },
      names: ['ip'],
    },
    {
      path: '/ips/cancel-warmup',
      params: [address],
      returns: ip,
      errors: { Unknown_IP: unknown },
      names: ['ip'],
      async given(stage) {
        const one = await owned(stage);
        await stage.ok('/ips/start-warmup', one);
        return one;
      },
    },
    {
      path: '/ips/set-pool',
      params: [address, poolName, boolean('create_pool')],
      returns: ip,
      names: ['ip', 'pool'],
      given: async (stage) => ({ ...(await owned(stage)), ...(await pooled(stage)) }),
      errors: {
        Unknown_IP: async (stage) => ({ ...unknown(), ...(await pooled(stage)) }),
        Unknown_Pool: async (stage) => ({ ...(await owned(stage)), ...unknownPool(stage), create_pool: false }),
        async Invalid_EmptyDefaultPool(stage) {
          await stage.noIps();
          return { ip: await stage.ip(), ...(await pooled(stage)) };
        },
      },
    },
    { path: '/ips/delete', params: [address], returns: deleted, given: owned, errors: {}, names: ['ip'] },
    {
      path: '/ips/list-pools',
      params: [],
      beyondParams: pages,
      returns: { array: pool },
      given: async (stage) => {
        await pooled(stage);
        await owned(stage);
        return {};
      },
      errors: {},
    },
    {
      path: '/ips/pool-info',
      params: [poolName],
      returns: pool,
      errors: { Unknown_Pool: unknownPool },
      names: ['pool'],
      async given(stage) {
        const name = await pooled(stage);
        await stage.ok('/ips/set-pool', { ...(await owned(stage)), ...name });
        return name;
      },
    },
    {
      path: '/ips/create-pool',
      params: [poolName],
      returns: pool,
      given: (stage) => ({ pool: `Pool ${stage.fresh()}` }),
      errors: {},
      names: ['pool'],
    },
    {
      path: '/ips/delete-pool',
      params: [poolName],
      returns: { struct: { pool: 'string', deleted: 'boolean' } },
      given: pooled,
      names: ['pool'],
      errors: {
        Unknown_Pool: unknownPool,
        Invalid_DeleteDefaultPool: () => ({ pool: 'Main Pool' }),
        async Invalid_DeleteNonEmptyPool(stage) {
          const name = await pooled(stage);
          await stage.ok('/ips/set-pool', { ...(await owned(stage)), ...name });
          return name;
        },
      },
    },
    {
      path: '/ips/check-custom-dns',
      params: [address, domain],
      returns: { struct: { valid: 'boolean', error: 'string or null' } },
      names: ['ip'],
      given: async (stage) => ({ ...(await owned(stage)), ...pointed(stage) }),
      errors: { Unknown_IP: (stage) => ({ ...unknown(), ...pointed(stage) }) },
    },
    {
      path: '/ips/set-custom-dns',
      params: [address, domain],
      returns: ip,
      names: ['ip'],
      given: async (stage) => ({ ...(await owned(stage)), ...pointed(stage) }),
      errors: {
        Unknown_IP: (stage) => ({ ...unknown(), ...pointed(stage) }),
        Invalid_CustomDNS: async (stage) => ({
          ...(await owned(stage)),
          domain: `${stage.fresh()}.nowhere.example.com`,
        }),
        async Invalid_CustomDNSPending(stage) {
          const first = { ...(await owned(stage)), ...pointed(stage) };
          await stage.ok('/ips/set-custom-dns', first);
          return { ...first, ...pointed(stage) };
        },
      },
    },
  ],
};
