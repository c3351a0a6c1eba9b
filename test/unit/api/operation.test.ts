import { expect } from 'chai';
import { z } from 'zod';
import { type ErrorName, refusal } from '../../../src/api/errors.ts';
import { type Call, operation } from '../../../src/api/operation.ts';
import { paramsOf } from '../../../src/api/requests/parameters.ts';
import { optional, text, timestamp } from '../../../src/base/schema.ts';

// No handler here reaches for more of an account.
const call = { refuse: refusal } as Call<ErrorName>;
const params = (value: object) => paramsOf(JSON.parse(JSON.stringify(value)));

const example = operation({
  path: '/test/example',
  access: 'settings',
  summary: 'An example.',
  params: {
    name: text(10),
    kind: optional(z.enum(['a', 'b'])),
    count: optional(z.int().min(1).max(9)),
    list: optional(z.array(z.object({ name: text(5), content: optional(z.string()) })).max(2)),
  },
  returns: z.unknown(),
  errors: ['Unknown_Webhook'],
  example: {},
  async handle(given, { refuse }) {
    if (given.name === 'gone') throw refuse('Unknown_Webhook', 15);
    // @ts-expect-error: an error that is not declared does not compile
    if (given.name === 'never') throw refuse('Unknown_IP', '192.0.2.1');
    return given;
  },
});
const run = (value: object) =>
  example
    .run(params(value), call)
    .then((answer) => ('record' in answer ? answer.record : answer))
    .catch((error: unknown) => error);

describe('an operation', () => {
  it('gives its handler only the declared parameters, without nulls at any depth', async () => {
    expect(
      await run({ name: 'x', kind: null, unheard: 1, list: [{ name: 'y', content: null, more: 1 }] }),
    ).to.deep.equal({ name: 'x', list: [{ name: 'y' }] });
  });

  it('names every invalid parameter at once, with the position inside it', async () => {
    expect(
      await run({ name: 'much too long', kind: 'c', count: 0, list: [{ name: 'y' }, { content: 'z' }] }),
    ).to.include({
      name: 'ValidationError',
      code: -2,
      status: 422,
      message:
        'Validation error: {"name":"Please enter at most 10 characters","kind":"Please enter one of: a, b","count":"Please enter at least 1","list":"[1].name: Please enter a value"}',
    });
    expect(await run({ name: 'x', list: [null] })).to.have.property(
      'message',
      'Validation error: {"list":"[0]: Please enter a struct"}',
    );
  });

  it('reports missing parameters before invalid ones', async () => {
    expect(await run({ kind: 'c' })).to.include({ code: -1, message: 'You must specify a name value' });
  });

  it('returns only declared errors', async () => {
    expect(await run({ name: 'gone' })).to.include({
      name: 'Unknown_Webhook',
      code: 3,
      status: 404,
      message: 'Unknown hook ID 15',
    });
  });
});

describe('a time as a parameter', () => {
  for (const [written, read] of [
    ['2026-01-05 11:30:00', '2026-01-05T11:30:00.000Z'],
    ['2026-01-05T11:30:00Z', '2026-01-05T11:30:00.000Z'],
    ['2026-01-05 11:30:00.12345', '2026-01-05T11:30:00.000Z'],
    ['2026-01-05', '2026-01-05T00:00:00.000Z'],
    ['2026-01-05T11:30:00+02:00', '2026-01-05T09:30:00.000Z'],
    ['2026-01-05t11:30:00.123456789-0530', '2026-01-05T17:00:00.000Z'],
  ] as const) {
    it(`may be ${written}`, () => expect(timestamp.parse(written).toISOString()).to.equal(read));
  }
  for (const written of [
    '',
    'now',
    '2026-02-30',
    '2026-13-01 00:00:00',
    '2026-01-05 24:00:01',
    '1767614400',
    '2026-01-05T11:30:00+24:00',
    '2026-01-05+02:00',
    '0000-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
  ]) {
    it(`may not be ${JSON.stringify(written)}`, () => expect(timestamp.safeParse(written).success).to.equal(false));
  }
});
