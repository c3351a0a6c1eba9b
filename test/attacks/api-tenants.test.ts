import { expect } from 'chai';
import { z } from 'zod';
import { type Operation, operation } from '../../src/api/operation.ts';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { createIds } from '../../src/base/ids.ts';
import { createKey } from '../../src/store/rows/accounts.ts';
import { COLLECTIONS } from '../../src/store/store.ts';
import { ACCOUNT, type ApiWorld, putDeadDelivery, startApi } from '../support/api.ts';
import { figures } from '../support/attacks/figures.ts';
import { servePlanted } from '../support/attacks/planted.ts';
import { paramsWith, positionsOf } from '../support/attacks/positions.ts';
import { SMALL } from '../support/attacks/sizes.ts';
import { createStage, type Stage, startStages } from '../support/contract/stage.ts';
import { ENTRIES } from '../support/contract/table.ts';
import { putMessages } from '../support/messages.ts';
import { PULLED, putPulled } from '../support/pulled.ts';
import { queued } from '../support/shared-spool.ts';
import { putBatch } from '../support/webhooks.ts';

// Two worlds that differ in one thing: in the first, another account has everything that the examples of the reference
// show; in the second it has nothing. Whatever a stranger asks, for whatever name, must be answered the same in both,
// and must change nothing.

/** Where one difference has to show, because the thing can be had once in the whole service. */
const SHOWS: Readonly<Record<string, RegExp>> = { '/inbound/add-domain': /already in use/ };

const SETTINGS = { settings: { maxBadKeysPerMinute: 1_000_000 } };
const everything = ({ store }: ApiWorld) =>
  Object.entries(store).filter(
    ([name]) => name in COLLECTIONS && !['accounts', 'keys', 'secrets', 'leases', 'revisions'].includes(name),
  );

/** Rows of the first account, and what the spool has of it. */
async function holdings(world: ApiWorld): Promise<Record<string, unknown>> {
  const rows = await Promise.all(
    everything(world).map(async ([name, collection]) => [
      name,
      (await collection.many({})).filter((row: { account?: string }) => row.account === ACCOUNT),
    ]),
  );
  const { spool } = world;
  return {
    ...Object.fromEntries(rows),
    queued: (await queued(spool)).filter(({ deliveries }) => deliveries[0]?.account === ACCOUNT),
    hooks: (await spool.events.hooks()).filter(({ account }) => account === ACCOUNT),
    tallies: (await spool.events.tallies()).filter(({ hook }) => hook.account === ACCOUNT),
  };
}

async function openWorlds() {
  const [full, empty] = await Promise.all([startApi(SETTINGS), startApi(SETTINGS)]);
  await putDeadDelivery(full);
  await putBatch(full.spool, ACCOUNT);
  await putMessages(full, ACCOUNT);
  await putPulled(full, ACCOUNT);
  await full.call('/inbound/pull');
  for (const [, collection] of everything(empty))
    for (const row of await collection.many({})) if (row.account === ACCOUNT) await collection.remove({ id: row.id });
  await Promise.all([full, empty].map(({ routing }) => routing.change('inbound.example.com', async () => {})));
  return { full, empty };
}

let made = 0;
/** The key of one more account, the same in both worlds. */
async function strangerIn(worlds: readonly ApiWorld[]): Promise<string> {
  const [number, key] = [1000 + ++made, `StrangerKey${String(made).padStart(11, '0')}`];
  for (const { store, clock } of worlds) {
    await store.accounts.insert({
      id: `Stranger${number}`,
      name: 'stranger',
      number,
      createdAt: new Date(clock.now()),
    });
    await createKey(store, `Stranger${number}`, 'x', { clock, ids: createIds(clock) }, key);
  }
  return key;
}

/** An answer without what is made by chance or counted over all accounts. */
const settled = (value: unknown): string =>
  JSON.stringify(value)
    .replaceAll(/"(?:auth_key|signing_secret|result_url)":"[^"]*"/g, '"made":"*"')
    .replaceAll(/01kcexamplesent\d+|[0-9a-f]{32}|2026-01-05 12:00:00\.\d{5}|\b[\w-]{22}\b/g, '*');

/** Names of things that the first account has, as a stranger may have come by them. */
const NAMES: readonly string[] = [
  '1.1',
  '4',
  'cust-123',
  'gone@example.com',
  'friend@example.com',
  'news@example.com',
  'inbound.example.com',
  'mailbox-1@inbound.example.com',
  'example.com',
  'example-template',
  'Example Template',
  'example-label',
  'example-tag',
  '192.0.2.1',
  '192.0.2.3',
  'Main Pool',
  'Transactional',
  'Old Pool',
  '2026-01-05 09:20:28.13842',
  '5c1e0d0000000000000000000000000a',
  '5c1e0d0000000000000000000000000b',
  '01kcexamplemessage00000000-eKx7WvL3VyFo',
  '01kcexamplebatch0000000000-VzrLfS8YweWn',
  '1.9',
  'pull:',
  `${PULLED}-86VOL8iLh_6y`,
  `${PULLED}-86VOL8iLh_6y.1`,
  'password-resets',
  'later@example.com',
  'ABC Widgets, Inc.',
  ACCOUNT,
  `${ACCOUNT} friend@example.com`,
  'ExampleTemplateId00001',
  'ExampleExportToken0001',
];
const isText = ({ types, isName }: { types: ReadonlySet<string>; isName: boolean }) => types.has('string') && !isName;
const isNumber = ({ types }: { types: ReadonlySet<string> }) => types.has('integer');

/** The example as it is, and with every name of the other account in every parameter that takes one. */
function callsOf(each: Operation, every: boolean): Record<string, unknown>[] {
  const positions = positionsOf(each).filter(({ name }) => !/content|html|text|raw_message/.test(name));
  const texts = positions
    .filter(isText)
    .flatMap((position) =>
      (!every ? NAMES.filter((_, n) => n % (position.steps.length > 1 ? 9 : 2) === 0) : NAMES).map((name) =>
        paramsWith(each, position, name),
      ),
    );
  return [
    { ...each.example },
    ...texts,
    ...positions.filter(isNumber).map((position) => paramsWith(each, position, 4)),
  ];
}

interface Difference {
  readonly path: string;
  readonly what: string;
}

/** Asks the same in both worlds and says where they differ. */
async function compare(
  each: Operation,
  { full, empty }: { full: ApiWorld; empty: ApiWorld },
  bases: readonly string[],
  every = !SMALL,
): Promise<{ asked: number; differences: Difference[] }> {
  const key = await strangerIn([full, empty]);
  const before = await holdings(full);
  const differences: Difference[] = [];
  const calls = callsOf(each, every);
  for (const params of calls) {
    const [real, absent] = await Promise.all(
      bases.map(async (base) => {
        const response = await fetch(`${base}/api/1.0${each.path}.json`, {
          method: 'POST',
          body: JSON.stringify({ ...params, key }),
        });
        return settled({ status: response.status, body: await response.json() });
      }),
    );
    const may = SHOWS[each.path];
    if (real !== absent && !may?.test(real ?? ''))
      differences.push({
        path: each.path,
        what: `${JSON.stringify(params).slice(0, 200)}: ${real?.slice(0, 300)} and not ${absent?.slice(0, 300)}`,
      });
  }
  const after = await holdings(full);
  for (const [name, rows] of Object.entries(before))
    if (JSON.stringify(rows) !== JSON.stringify(after[name]))
      differences.push({ path: each.path, what: `changed ${name}` });
  return { asked: calls.length, differences };
}

describe('one account calling every operation with the names of another', () => {
  let worlds: { full: ApiWorld; empty: ApiWorld };
  const total = { asked: 0, differences: 0, swapped: 0 };
  before(async () => {
    worlds = await openWorlds();
  });
  after(async () => {
    await Promise.all([worlds.full.stop(), worlds.empty.stop()]);
    figures(19, {
      'operations between accounts': OPERATIONS.length,
      'pairs of calls': total.asked,
      'rows read or written of the other': total.differences,
      'parameters swapped one by one': total.swapped,
    });
  });

  for (const each of OPERATIONS) {
    it(`learns nothing and changes nothing by ${each.path}`, async () => {
      const { asked, differences } = await compare(each, worlds, [worlds.full.base, worlds.empty.base]);
      total.asked += asked;
      total.differences += differences.length;
      expect(differences).to.deep.equal([]);
    });
  }

  it('gets no access by mixing names of the other account with its own, parameter by parameter', async () => {
    const world = await startStages();
    for (const { path, given, names = [], shared } of ENTRIES.filter((one) => (one.names?.length ?? 0) > 0)) {
      const [first, second] = [await createStage(world), await createStage(world)];
      const [theirs, own] = [fieldsOf(await given(first)), fieldsOf(await given(second))];
      for (const name of names.filter(
        (one) => theirs[one] !== undefined && JSON.stringify(theirs[one]) !== JSON.stringify(own[one]),
      )) {
        const before = await rowsOf(first);
        const params = { ...own, [name]: theirs[name] };
        const { status, body } = await second.call(path, params);
        const told = [...JSON.stringify(before).matchAll(/n\d+n/g)]
          .map(([text]) => text)
          .filter((text) => !JSON.stringify(params).includes(text));
        expect(
          told.filter((text) => JSON.stringify(body).includes(text)),
          `${path} ${name} ${status}`,
        ).to.deep.equal([]);
        expect(await rowsOf(first), `${path} ${name}${shared ?? ''}`).to.deep.equal(before);
        total.swapped++;
      }
    }
    await world.stop();
    expect(total.swapped).to.be.above(20);
  });

  it('is detected when an operation does not check the account of a row (control)', async () => {
    const [full, empty] = [
      await servePlanted(worlds.full, [leaking(worlds.full)]),
      await servePlanted(worlds.empty, [leaking(worlds.empty)]),
    ];
    const { differences } = await compare(leaking(worlds.full), worlds, [full.base, empty.base], true);
    await Promise.all([full.stop(), empty.stop()]);
    expect(
      differences.some(({ what }) => /A partner|a partner/.test(what)),
      'read',
    ).to.equal(true);
    expect(
      differences.some(({ what }) => what === 'changed rejects'),
      'written',
    ).to.equal(true);
  });
});

/** Looks an address up on everybody's lists, and takes it off. */
function leaking({ store }: ApiWorld): Operation {
  return operation({
    path: '/planted/leak',
    access: 'settings',
    summary: 'A leak.',
    params: { email: z.string() },
    returns: z.object({ detail: z.string().nullable() }),
    errors: [],
    example: { email: 'nobody@example.com' },
    async handle({ email }) {
      await store.rejects.remove({ email });
      const [row] = (await store.whitelists.many({})).filter((one) => one.email === email);
      return { detail: row?.detail ?? null };
    },
  });
}

function fieldsOf(value: object): Record<string, unknown> {
  return { ...value };
}

/** What a stage has, by the names of its rows. */
async function rowsOf({ account, store }: Stage): Promise<unknown> {
  const collections = Object.entries(store.of(account)).filter(
    ([name, value]) => name !== 'notices' && typeof value === 'object' && value !== null && 'many' in value,
  );
  return Promise.all(collections.map(async ([name, collection]) => [name, await collection.many({}, { sort: 'id' })]));
}
