import { expect } from 'chai';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { type ApiAnswer, type ApiWorld, startApi } from '../../support/api.ts';
import { ERRORS } from '../../support/contract/errors.ts';
import { faultsOf } from '../../support/contract/shapes.ts';
import { createStage, type Stage, startStages } from '../../support/contract/stage.ts';
import { BEYOND, COUNTS, ENTRIES, LATER, TABLE } from '../../support/contract/table.ts';
import type { Entry } from '../../support/contract/types.ts';
import { triesOf } from '../../support/contract/values.ts';
import { drivers } from '../../support/database.ts';

// The API held against the documented interface as it was typed in by hand: what contract.test.ts makes from the
// declarations would not notice what is missing there.

const declared = new Map<string, (typeof OPERATIONS)[number]>(
  OPERATIONS.map((operation) => [operation.path, operation]),
);
const codes: Readonly<Record<string, { readonly code: number; readonly status: number; readonly says: RegExp }>> =
  ERRORS;

describe('the declarations', () => {
  it('include every documented operation', () => {
    for (const { name, entries } of TABLE) expect(entries, name).to.have.length(COUNTS[name] ?? 0);
    expect(
      ENTRIES.map(({ path }) => path).filter((path) => !declared.has(path)),
      'missing',
    ).to.deep.equal([]);
  });

  it('mark undocumented operations as extensions, and have only known groups', () => {
    const documented = new Set(ENTRIES.map(({ path }) => path));
    const known = new Set([...TABLE.map(({ name }) => name), ...Object.keys(BEYOND)]);
    for (const { path, extension } of OPERATIONS) {
      const group = path.split('/')[1] ?? '';
      expect(known.has(group), `the group of ${path}`).to.equal(true);
      if (!(group in BEYOND)) expect(extension, path).to.equal(!documented.has(path) && !LATER.has(path));
    }
  });

  for (const { path, params, errors, beyondParams = {}, beyondErrors = {} } of ENTRIES) {
    it(`have the documented parameters and errors of ${path}`, () => {
      const operation = declared.get(path);
      if (!operation) throw new Error('is not declared');
      const names = params.map(({ name }) => name);
      expect(Object.keys(operation.params.shape)).to.have.members([...names, ...Object.keys(beyondParams)]);
      const common = ['ServiceUnavailable']; // any operation may say that the store is away
      expect(operation.errors.filter((name) => !common.includes(name))).to.have.members(
        [...new Set([...Object.keys(errors), ...Object.keys(beyondErrors)])].filter((name) => !common.includes(name)),
      );
    });
  }
});

for (const driver of drivers)
  for (const { name, entries } of TABLE) {
    describe(`the documented interface, ${driver.name}: ${name}`, function () {
      this.timeout(60_000);
      let world: ApiWorld;
      before(async () => {
        world = await startStages(driver);
      });
      after(() => world?.stop());
      for (const entry of entries)
        describe(entry.path, () => {
          if (driver.kind === 'embedded') refuses(entry, () => world);
          answers(entry, () => world);
        });
    });
  }

/**
 * What an operation answers before it looks into the store, so that one store will do. Nothing is changed, so one call
 * is prepared for all.
 */
function refuses({ path, params, given }: Entry, worldOf: () => ApiWorld): void {
  let stage: Stage;
  let good: object;
  before(async () => {
    stage = await createStage(worldOf());
    good = await given(stage);
  });
  const answer = (changes: Readonly<Record<string, unknown>>) => stage.call(path, { ...good, ...changes });

  const demanded = params.filter((parameter) => parameter.required);
  if (demanded.length > 0)
    it('names a required parameter that is missing or null', async () => {
      for (const { name } of demanded)
        for (const nothing of [undefined, null]) {
          const { status, body } = await answer({ [name]: nothing });
          expect({ status, body }).to.deep.equal({
            status: 422,
            body: { status: 'error', code: -1, name: 'ValidationError', message: `You must specify a ${name} value` },
          });
        }
    });

  if (params.length > 0)
    it('rejects invalid values, naming the parameter', async () => {
      await Promise.all(
        params.flatMap((parameter) =>
          triesOf(parameter).refused.map(async (value) =>
            refusesValue(parameter.name, value, await answer({ [parameter.name]: value })),
          ),
        ),
      );
    });

  const emails = params.filter(({ rules }) => rules.some((rule) => 'format' in rule && rule.format === 'email'));
  if (emails.length > 0)
    it('reports an invalid address in the words that clients know', async () => {
      for (const { name } of emails)
        expect((await answer({ [name]: 'nobody' })).body.message).to.equal(
          `Validation error: {"${name}":"Not a valid email address"}`,
        );
    });

  if (params.some(({ rules }) => rules.some((rule) => 'format' in rule && rule.format === 'url')))
    it('rejects a URL that does not answer', async () => {
      const url = 'https://app.example.com/nothing-here';
      worldOf().missingUrls.add(url);
      const { status, body } = await answer({ url });
      expect({ status, body }).to.deep.equal({
        status: 422,
        body: {
          status: 'error',
          code: -2,
          name: 'ValidationError',
          message: `Validation error: {"url":"We can't verify that the URL exists. Cause: nothing is there"}`,
        },
      });
    });
}

function refusesValue(name: string, value: unknown, { status, body }: ApiAnswer): void {
  const about = `${name} ${JSON.stringify(value).slice(0, 100)}`;
  expect({ status, name: body?.name, code: body?.code }, about).to.deep.equal({
    status: 422,
    name: 'ValidationError',
    code: -2,
  });
  expect(Object.keys(JSON.parse(body.message.slice('Validation error: '.length))), about).to.deep.equal([name]);
}

/** What an operation does. */
function answers(entry: Entry, worldOf: () => ApiWorld): void {
  const { path, params, given } = entry;
  let stage: Stage;
  before(async () => {
    stage = await createStage(worldOf());
  });

  it('answers the documented record', async () => {
    const { status, body } = await stage.call(path, await given(stage));
    expect({ status, faults: status === 200 ? faultsOf(entry.returns, body) : body }).to.deep.equal({
      status: 200,
      faults: [],
    });
    if (Array.isArray(body)) expect(body, 'a list with something in it').to.not.have.length(0);
  });

  const edges = params
    .map((parameter) => ({ name: parameter.name, values: triesOf(parameter).taken }))
    .filter(({ values }) => values.length > 0);
  if (edges.length > 0)
    it('accepts values at the limits of a rule', async () => {
      for (const { name, values } of edges)
        for (const value of values) {
          const { body } = await stage.call(path, { ...(await given(stage)), [name]: value });
          expect(
            body?.name === 'ValidationError' ? body.message : 'taken',
            `${name} ${JSON.stringify(value).slice(0, 100)}`,
          ).to.equal('taken');
        }
    });

  for (const [name, reach] of Object.entries(entry.errors))
    if (name !== 'ServiceUnavailable') {
      it(`answers ${name}`, async () => {
        const { status, body } = await stage.call(path, await reach(stage));
        expect(Object.keys(body)).to.have.members(['status', 'code', 'name', 'message']);
        expect({ http: status, status: body.status, name: body.name, code: body.code }).to.deep.equal({
          http: codes[name]?.status,
          status: 'error',
          name,
          code: codes[name]?.code,
        });
        expect(body.message).to.match(codes[name]?.says ?? /^$/);
      });
    }
}

describe('the documented interface, while the rejection list is unavailable', () => {
  it('answers ServiceUnavailable from /rejects/list', async () => {
    const gone = () => Promise.reject(new StoreAway('away'));
    const world = await startApi({
      store: (real) => ({
        ...real,
        of: (account) => ({ ...real.of(account), rejects: { ...real.of(account).rejects, one: gone, many: gone } }),
      }),
    });
    const { status, body } = await world.call('/rejects/list');
    expect({ status, body }).to.deep.equal({
      status: 503,
      body: { status: 'error', code: -2, name: 'ServiceUnavailable', message: 'Service Temporarily Unavailable' },
    });
    await world.stop();
  });
});
