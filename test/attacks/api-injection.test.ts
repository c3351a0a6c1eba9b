import { expect } from 'chai';
import { z } from 'zod';
import { invalid, refusal } from '../../src/api/errors.ts';
import { type Operation, operation } from '../../src/api/operation.ts';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { ACCOUNT, type ApiWorld, KEY, putDeadDelivery, startApi } from '../support/api.ts';
import { figures } from '../support/attacks/figures.ts';
import { FEW_OPERATORS, FEW_TEXTS, OPERATORS, STORED, TEXTS } from '../support/attacks/payloads.ts';
import { servePlanted } from '../support/attacks/planted.ts';
import { paramsWith, positionsOf } from '../support/attacks/positions.ts';
import { type Finding, type Probed, probe, prototypes } from '../support/attacks/prober.ts';
import { SMALL } from '../support/attacks/sizes.ts';
import { drivers } from '../support/database.ts';
import { putMessages } from '../support/messages.ts';
import { putBatch } from '../support/webhooks.ts';

// Derived from the declarations: an operation that is added tomorrow is attacked tomorrow, in every parameter that it
// has.

const SETTINGS = { maxBadKeysPerMinute: 1_000_000, maxMessageBytes: 2_000_000 };

async function open(driver = drivers[0]): Promise<ApiWorld> {
  const world = await startApi({
    journal: true,
    settings: SETTINGS,
    ...(driver && { database: (log) => driver.open({ log }) }),
  });
  await putDeadDelivery(world);
  await putBatch(world.spool, ACCOUNT);
  await putMessages(world, ACCOUNT);
  return world;
}

describe('hostile values in every parameter of every operation', () => {
  const total = { asked: 0, handled: 0, positions: 0, deepest: 0 };
  const findings: Finding[] = [];
  const payloads = SMALL ? { others: FEW_OPERATORS, texts: FEW_TEXTS, shared: 3 } : { others: OPERATORS, texts: TEXTS };
  // What one attack leaves behind may hide what the next would find, so that each has a world of its own where there is
  // time.
  let shared: ApiWorld | undefined;
  before(async () => {
    if (SMALL) shared = await open();
  });
  after(() => shared?.stop());

  for (const each of OPERATIONS) {
    it(`${each.path}: causes no internal error, no undeclared error and accepts no value of the wrong type`, async () => {
      const world = shared ?? (await open());
      const probed = await probe(each, { base: world.base, key: KEY }, payloads).finally(async () => {
        if (world !== shared) await world.stop();
      });
      const faults = world.log.of('api.fault').map(({ fields }) => String(fields.error));
      total.asked += probed.asked;
      total.handled += probed.handled;
      total.positions += positionsOf(each).length;
      total.deepest = Math.max(total.deepest, ...positionsOf(each).map(({ steps }) => steps.length));
      findings.push(...probed.findings);
      expect({ findings: probed.findings, faults }).to.deep.equal({ findings: [], faults: [] });
    });
  }

  after(() => {
    const of = (...kinds: readonly Finding['kind'][]) => findings.filter(({ kind }) => kinds.includes(kind)).length;
    figures(19, {
      operations: OPERATIONS.length,
      positions: total.positions,
      'deepest position': total.deepest,
      calls: total.asked,
      'reached the handler': total.handled,
      GeneralError: of('fault'),
      'other 5xx': of('status'),
      hangs: of('hang'),
      'other faults': findings.length - of('fault', 'status', 'hang'),
    });
  });

  it('tries at least 12 operators for each, at every declared depth', () => {
    for (const operators of [OPERATORS, FEW_OPERATORS]) expect(operators.length).to.be.at.least(12);
    expect(
      positionsOf(OPERATIONS.find(({ path }) => path === '/messages/send') ?? PLANTED).map(({ name }) => name),
    ).to.include.members([
      'message.to[].email',
      'message.merge_vars[].vars[].content',
      'message.metadata{}',
      'message.metadata{names}',
      'message.headers{}[]',
      'send_at',
    ]);
  });

  // A second store takes minutes.
  for (const driver of SMALL ? [] : drivers.slice(1)) {
    it(`behaves the same with the ${driver.name} store`, async () => {
      const world = await open(driver);
      const probed: Probed[] = [];
      for (const each of OPERATIONS) probed.push(await probe(each, { base: world.base, key: KEY }, STORED));
      const faults = world.log.of('api.fault').map(({ fields }) => String(fields.error));
      await world.stop();
      figures(19, {
        store: driver.name,
        calls: probed.reduce((sum, { asked }) => sum + asked, 0),
        'reached the handler': probed.reduce((sum, { handled }) => sum + handled, 0),
        findings: probed.flatMap((one) => one.findings).length,
      });
      expect({ findings: probed.flatMap((one) => one.findings).slice(0, 5), faults }).to.deep.equal({
        findings: [],
        faults: [],
      });
    });
  }

  it('detects an injection that succeeds (control)', async () => {
    const world = await open();
    const planted = await servePlanted(world, [PLANTED]);
    const { findings: seen } = await probe(
      PLANTED,
      { base: planted.base, key: KEY, hangMs: 1000 },
      { others: OPERATORS, texts: TEXTS },
    );
    const kinds = new Set(seen.map(({ kind }) => kind));
    Reflect.deleteProperty(Object.prototype, 'polluted');
    await planted.stop();
    await world.stop();
    expect([...kinds]).to.have.members([
      'fault',
      'taken',
      'unnamed',
      'computed',
      'polluted',
      'undeclared',
      'hang',
      'header',
    ]);
    expect(Object.hasOwn(Object.prototype, 'polluted')).to.equal(false);
  });
});

/** Levels, and whether the body breaks off there. */
const NESTED = [
  [20, false],
  [40, false],
  [200_000, false],
  [200_000, true],
] as const;

describe('nested values', () => {
  it('are rejected at any position, from one level to 200,000', async () => {
    const world = await open();
    let asked = 0;
    const before = prototypes();
    for (const each of OPERATIONS) {
      for (const [n, position] of positionsOf(each)
        .filter(({ steps, isName }) => steps.length === 1 && !isName)
        .entries()) {
        for (const [levels, cut] of SMALL && n > 0 ? NESTED.slice(0, 2) : NESTED) {
          const body = JSON.stringify({ ...paramsWith(each, position, 'HERE'), key: KEY }).replace(
            '"HERE"',
            '['.repeat(levels) + (cut ? '' : ']'.repeat(levels)),
          );
          const response = await fetch(`${world.base}/api/1.0${each.path}.json`, { method: 'POST', body });
          const { name } = Object(await response.json());
          asked++;
          expect({ status: response.status, name }, `${each.path} ${position.name} ${levels}`).to.deep.equal({
            status: 422,
            name: 'ValidationError',
          });
        }
      }
    }
    figures(19, { 'nested calls': asked, refused: asked });
    expect(prototypes()).to.equal(before);
    expect(world.log.of('api.fault')).to.deep.equal([]);
    await world.stop();
  });
});

/**
 * An operation as it must not be: it declares a text, takes anything, copies it into an object, computes and breaks.
 */
const PLANTED: Operation = {
  ...operation({
    path: '/planted/fault',
    access: 'settings',
    summary: 'A fault.',
    params: { text: z.string() },
    returns: z.object({ text: z.unknown() }),
    errors: [],
    example: { text: 'a' },
    handle: async ({ text }) => ({ text }),
  }),
  async run(params) {
    const text = params.get('text');
    if (typeof text === 'string' && text.includes('{{1337')) return { record: { text: 1337 * 7331 } };
    if (typeof text === 'string' && text.includes('\r\n')) throw new Error('the store does not like it');
    if (text === '$where') return new Promise(() => {});
    if (text === 7) throw invalid({ something: 'else' });
    if (text === '$gt') throw refusal('Unknown_Sender', text);
    if (typeof text === 'object' && text !== null)
      if (Object.hasOwn(text, '__proto__'))
        Object.defineProperty(Object.prototype, 'polluted', { value: 1, configurable: true });
    return { record: { text } };
  },
};
