import { isDeepStrictEqual } from 'node:util';
import { expect } from 'chai';
import { exampleAnswer } from '../../../src/api/docs/reference.ts';
import { ERRORS, type ErrorName } from '../../../src/api/errors.ts';
import type { Operation } from '../../../src/api/operation.ts';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_KEY, startApi } from '../../support/api.ts';
import { startExample } from '../../support/example-world.ts';
import { putSubmitted } from '../../support/messages.ts';

// Derived from the declarations: rules for every operation, including new ones.

const paramsOf = (operation: Operation) => Object.entries(operation.params.shape);
const isOptional = (schema: { safeParse(value: unknown): { success: boolean } }) => schema.safeParse(undefined).success;
const required = (operation: Operation) =>
  paramsOf(operation)
    .filter(([, schema]) => !isOptional(schema))
    .map(([name]) => name);
const optional = (operation: Operation) =>
  paramsOf(operation)
    .filter(([, schema]) => isOptional(schema))
    .map(([name]) => name);

/** For each declared error, a call that reaches it. */
const REACHED: Partial<Record<ErrorName, (operation: Operation, world: ApiWorld) => object | Promise<object>>> = {
  Unknown_InboundDomain: (operation) =>
    operation.path === '/inbound/test-route'
      ? { address: 'a@nowhere.example.com' }
      : { ...operation.example, domain: 'nowhere.example.com' },
  Unknown_Endpoint: (operation) => ({ ...operation.example, url: 'https://app.example.com/nowhere' }),
  Unknown_Sender: () => ({ address: 'nobody@example.com' }),
  Invalid_Tag_Name: () => ({ tag: 'no-such-tag' }),
  Unknown_IP: (operation) => ({ ...operation.example, ip: '198.51.100.99' }),
  Unknown_Pool: (operation) => ({ ...operation.example, pool: 'No Such Pool', create_pool: false }),
  PaymentRequired(operation, world) {
    world.ips.provisioning = 'off';
    return operation.example;
  },
  PoorReputation(operation, world) {
    world.ips.minReputation = 100;
    return operation.example;
  },
  NoSendingHistory: (operation) => ({ ...operation.example, key: OTHER_KEY }),
  Invalid_DeleteDefaultPool: () => ({ pool: 'Main Pool' }),
  Invalid_DeleteNonEmptyPool: () => ({ pool: 'Transactional' }),
  Invalid_CustomDNS: (operation) => ({ ...operation.example, domain: 'nowhere.example.com' }),
  async Invalid_EmptyDefaultPool({ example }, world) {
    await world.call('/ips/delete', { ip: '192.0.2.2' });
    return example;
  },
  // Once more what has just been done.
  async IP_ProvisionLimit({ path, example }, world) {
    await world.call(path, example);
    return example;
  },
  async Invalid_CustomDNSPending({ path, example }, world) {
    await world.call(path, example);
    return example;
  },
  Unknown_Export: () => ({ id: '2026-01-05 09:20:28.13843' }),
  async Unknown_Subaccount({ path, example }, world) {
    if (path === '/messages/send-raw')
      return { ...example, raw_message: `X-MC-Subaccount: nobody\r\n${String(example['raw_message'])}` };
    if (path === '/messages/resend') {
      const id = '5c1e0d0000000000000000000000000f';
      await putSubmitted(world, ACCOUNT, id, { outgoing: { subaccount: 'nobody' } });
      return { id };
    }
    if (path.startsWith('/messages/'))
      return { ...example, message: { ...Object(example['message']), subaccount: 'nobody' } };
    return { ...example, [path.startsWith('/subaccounts/') ? 'id' : 'subaccount']: 'nobody' };
  },
  Unknown_Url: () => ({ url: 'https://www.example.com/nowhere' }),
  Unknown_Domain: () => ({ domain: 'nowhere.example.com' }),
  Unknown_TrackingDomain: () => ({ domain: 'nowhere.example.com' }),
  Unknown_MetadataField: () => ({ name: 'nowhere' }),
  async Metadata_FieldLimit(_, world) {
    for (let n = 1; n < 50; n++) await world.call('/metadata/add', { name: `field_${n}` });
    return { name: 'one_more' };
  },
  async Invalid_Verified_Domain({ example }, world) {
    await world.store.senderDomains.change({ id: `${ACCOUNT} example.com` }, { verifiedAt: new Date(0) });
    return example;
  },
  async Invalid_Verified_TrackingDomain({ example }, world) {
    await world.store.senderDomains.change({ id: `${ACCOUNT} example.com` }, { verifiedAt: new Date(0) });
    await world.store.trackingDomains.change({ id: `${ACCOUNT} track.example.com` }, { valid: true });
    return example;
  },
  Unknown_Key: () => ({ id: 'ffffffffffffffff' }),
  async Endpoint_Held({ example }, world) {
    const url = String(example['url']);
    await world.dispatcher.hold({ account: ACCOUNT, url, kind: 'inbound' }, world.clock.now() + 3_600_000, 'operator');
    return example;
  },
  async Invalid_OwnKey(_, world) {
    const { body: keys } = await world.call('/keys/list');
    return { id: keys.find(({ label }: { label: string }) => label === 'example').id };
  },
  Unknown_Message: ({ example }) => ({ ...example, id: '5c1e0d0000000000000000000000ffff' }),
  Unknown_Lease: () => ({ lease: '01kcnosuchmail0000000000000-xxxxxxxxxxxx.1' }),
  Unknown_Job: () => ({ id: '01kcnosuchjob0000000000000' }),
  Invalid_Reject: () => ({ email: 'never-listed@example.com' }),
  Unknown_Webhook: (operation) => ({ ...operation.example, id: 999_999_999 }),
  Unknown_InboundRoute: (operation) => ({ ...operation.example, id: '1.999' }),
  Unknown_Template: (operation) => ({ ...operation.example, name: 'nowhere', template_name: 'nowhere' }),
  async Invalid_Template({ path, example }, world) {
    if (path !== '/messages/send-template') return { ...example, name: 'Example Template' };
    await world.call('/templates/add', { name: 'Only a draft', publish: false });
    return { ...example, template_name: 'Only a draft' };
  },
};

// Calls that are refused change nothing: one world is enough for all of them.
describe('every operation, called with invalid input', () => {
  let world: ApiWorld;
  before(async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 1_000_000 } });
  });
  after(() => world.stop());

  for (const operation of OPERATIONS) {
    describe(operation.path, () => {
      const call = (params: object) => world.call(operation.path, params);
      const example = operation.example;

      it('rejects a wrong, empty or missing key before any other check', async () => {
        const wrong = {
          status: 401,
          body: { status: 'error', code: -1, name: 'Invalid_Key', message: 'Invalid API key' },
        };
        for (const key of ['wrong', '', 7, true, ['x'], { $gt: '' }]) {
          const { status, body } = await call({ key });
          expect({ status, body }).to.deep.equal(wrong);
        }
        for (const params of [{ key: null }, { key: undefined }]) {
          const { status, body } = await call(params);
          expect({ status, body }).to.deep.equal({
            status: 422,
            body: { status: 'error', code: -1, name: 'ValidationError', message: 'You must specify a key value' },
          });
        }
      });

      if (required(operation).length > 0)
        it('names a required parameter that is missing or null', async () => {
          for (const name of required(operation)) {
            for (const params of [
              { ...example, [name]: undefined },
              { ...example, [name]: null },
            ]) {
              const { status, body } = await call(params);
              expect({ status, body }).to.deep.equal({
                status: 422,
                body: {
                  status: 'error',
                  code: -1,
                  name: 'ValidationError',
                  message: `You must specify a ${name} value`,
                },
              });
            }
          }
        });

      if (paramsOf(operation).length > 0)
        it('names a parameter of the wrong type, for any value', async () => {
          const operators: readonly unknown[] = [
            { $gt: '' },
            { $ne: null },
            { $where: 'sleep(1000)' },
            { $regex: '.*' },
            { constructor: { prototype: {} } },
            { $or: [{}] },
            { $in: [] },
            { $exists: true },
            JSON.parse('{"__proto__":{"polluted":1}}'),
            [[]],
            [{ $gt: '' }],
            1e300,
          ];
          for (const [at, [name, schema]] of paramsOf(operation).entries()) {
            // Null counts as absent, and an empty struct may be a value.
            const takesEmpty = schema.safeParse({}).success;
            const wrong = operators.filter((one) => !takesEmpty || JSON.stringify(one) !== '{"$ne":null}');
            for (const value of wrong)
              expect(schema.safeParse(value).success, `${name} ${JSON.stringify(value)}`).to.equal(false);
            // Through the door a few of them, others for each parameter: what the schema refuses is refused there.
            for (const value of [0, 1, 2].map((n) => wrong[(3 * at + n) % wrong.length])) {
              const { status, body } = await call({ ...example, [name]: value });
              expect(status, `${name} ${JSON.stringify(value)}`).to.equal(422);
              expect(body).to.include({ name: 'ValidationError', code: -2 });
              expect(JSON.parse(body.message.slice('Validation error: '.length))).to.have.property(name);
            }
          }
        });
    });
  }
});

describe('every operation', () => {
  let world: ApiWorld;
  afterEach(() => world.stop());

  for (const operation of OPERATIONS) {
    describe(operation.path, () => {
      beforeEach(async () => {
        world = await startExample(operation);
      });
      const call = (params: object) => world.call(operation.path, params);
      const example = operation.example;

      it('returns its example as recorded (npm run docs); null counts as omitted, unknown parameters are ignored', async () => {
        const nulls = Object.fromEntries(
          optional(operation)
            .filter((name) => !(name in example))
            .map((name) => [name, null]),
        );
        const { status, body } = await call({ ...nulls, ...example, unheard_of: { $gt: 1 }, constructor: 7 });
        expect({ status, body }).to.deep.equal({ status: 200, body: exampleAnswer(operation) });
        const read = operation.returns.safeParse(body);
        expect(read.success && isDeepStrictEqual(read.data, body), 'fields that are not declared').to.equal(true);
      });

      // ServiceUnavailable is reached below, for all.
      for (const name of operation.errors.filter((error) => error !== 'ServiceUnavailable')) {
        it(`reaches ${name}`, async () => {
          const params = await REACHED[name]?.(operation, world);
          if (!params) throw new Error(`no call is written down that reaches ${name}`);
          const { status, body } = await call(params);
          expect(body).to.include({ status: 'error', name, code: ERRORS[name].code });
          expect(status).to.equal(ERRORS[name].status);
        });
      }
    });
  }
});

describe('every operation, while the store is unavailable', () => {
  it('returns ServiceUnavailable with 503', async () => {
    let away = false;
    const world = await startApi({
      store: (real) => ({
        ...real,
        keys: { ...real.keys, one: (filter) => (away ? Promise.reject(new StoreAway('away')) : real.keys.one(filter)) },
      }),
    });
    away = true;
    for (const operation of OPERATIONS) {
      const { status, body } = await world.call(operation.path, operation.example);
      expect({ status, body }).to.deep.equal({
        status: 503,
        body: { status: 'error', code: -2, name: 'ServiceUnavailable', message: 'Service Temporarily Unavailable' },
      });
    }
    expect(world.log.of('api.fault'), 'not a fault of ours').to.have.length(0);
    await world.stop();
  });

  it('also returns it if the store fails after the key was checked', async () => {
    const world = await startApi({
      store: (real) => ({
        ...real,
        of: (account) => ({
          ...real.of(account),
          inboundDomains: { ...real.of(account).inboundDomains, many: () => Promise.reject(new StoreAway('away')) },
        }),
      }),
    });
    const { status, body } = await world.call('/inbound/domains', { key: KEY });
    expect({ status, name: body.name }).to.deep.equal({ status: 503, name: 'ServiceUnavailable' });
    await world.stop();
  });
});
