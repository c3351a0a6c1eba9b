import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { expect } from 'chai';
import { createIds } from '../../src/base/ids.ts';
import { createKey, keyHash, revokeKey } from '../../src/store/rows/accounts.ts';

import type { Store } from '../../src/store/store.ts';
import { ACCOUNT, type ApiWorld, KEY, startApi } from '../support/api.ts';
import { createChance, separability } from '../support/attacks/chance.ts';
import { figures } from '../support/attacks/figures.ts';
import { size } from '../support/attacks/sizes.ts';

const LIMIT = 10;
const PATH = '/api/1.0/users/ping.json';
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-';
const REVOKED = 'RevokedKey000000000003';
const chance = createChance(20261121);
const randomKey = () => Array.from({ length: 22 }, () => LETTERS[Math.floor(chance() * 64)]).join('');

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly ms: number;
}

/** Asks over one connection that is kept, so that nothing but the answer takes time. */
function createAsker(port: number) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return {
    async ask(key: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
      const body = JSON.stringify({ key });
      const began = performance.now();
      const req = request({
        host: '127.0.0.1',
        port,
        method: 'POST',
        path: PATH,
        agent,
        headers: { ...headers, 'content-length': Buffer.byteLength(body) },
      });
      req.end(body);
      const [response] = await once(req, 'response');
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      return {
        status: response.statusCode,
        text: Buffer.concat(chunks).toString(),
        headers: response.headers,
        ms: performance.now() - began,
      };
    },
    stop: () => agent.destroy(),
  };
}

/** Guesses the keys one after the other; what the answers were, and whether the right one was found. */
async function guess(
  world: ApiWorld,
  keys: readonly string[],
  headersOf: (n: number) => Readonly<Record<string, string>> = () => ({}),
) {
  const asker = createAsker(world.port);
  const counts: Record<number, number> = {};
  for (const [n, key] of keys.entries()) {
    const { status } = await asker.ask(key, headersOf(n));
    counts[status] = (counts[status] ?? 0) + 1;
  }
  asker.stop();
  return { refused: counts[401] ?? 0, limited: counts[429] ?? 0, found: (counts[200] ?? 0) > 0 };
}

const guesses = (count: number) => Array.from({ length: count }, randomKey);
const hex = () => Math.floor(chance() * 65536).toString(16);

describe('guessing keys', () => {
  const count = size(5000, 300);
  let world: ApiWorld;
  const open = async (trustedProxies: readonly string[] = [], maxBadKeysPerMinute = LIMIT) => {
    world = await startApi({ settings: { maxBadKeysPerMinute, trustedProxies } });
  };
  afterEach(() => world.stop());

  it('is blocked for a minute after several tries from one address', async () => {
    await open();
    const seen = await guess(world, guesses(count));
    figures(19, {
      'keys guessed': count,
      'looked up': seen.refused,
      'answered 429': seen.limited,
      found: seen.found ? 1 : 0,
    });
    expect(seen).to.deep.equal({ refused: LIMIT, limited: count - LIMIT, found: false });
    await world.clock.advance(60_000);
    expect(await guess(world, guesses(50))).to.deep.equal({ refused: LIMIT, limited: 50 - LIMIT, found: false });
  });

  it('is not bypassed by forwarding headers from an untrusted address', async () => {
    await open();
    const names = [
      'x-forwarded-for',
      'X-Forwarded-For',
      'forwarded',
      'x-real-ip',
      'x-client-ip',
      'true-client-ip',
      'cf-connecting-ip',
      'x-originating-ip',
      'x-cluster-client-ip',
      'via',
      'client-ip',
      'x-remote-addr',
    ];
    const seen = await guess(world, guesses(count), (n) => {
      const address = `198.51.100.${n % 250}`;
      return Object.fromEntries(names.map((name) => [name, name === 'forwarded' ? `for=${address}` : address]));
    });
    expect(seen).to.deep.equal({ refused: LIMIT, limited: count - LIMIT, found: false });
  });

  const TRICKS: Readonly<Record<string, (n: number) => string>> = {
    'an address in front of the real one': (n) => `198.51.100.${n % 250}, 203.0.113.9`,
    'many in front': (n) => `${Array.from({ length: 40 }, (_, i) => `198.51.${i}.${n % 250}`).join(', ')}, 203.0.113.9`,
    'our own loopback at the end': (n) => `198.51.100.${n % 250}, 203.0.113.9, 127.0.0.1`,
    'something that is no address': (n) => `198.51.100.${n % 250}, unknown-${n}`,
    'an empty hop': (n) => `198.51.100.${n % 250},`,
    'a port behind it': (n) => `203.0.113.9:${1000 + n}`,
    brackets: (n) => `[2001:db8::${hex()}]:${n}`,
    'all of a /64': (n) => `2001:db8:1:2:${hex()}:${hex()}:${hex()}:${n.toString(16)}`,
    'a /64 in other spellings': (n) =>
      [
        `2001:db8:1:2::${n.toString(16)}`,
        `2001:0DB8:0001:0002::${n.toString(16)}`,
        `2001:db8:1:2:0:0:0:${n.toString(16)}`,
        `2001:DB8:1:2:0:0:10.0.${n % 250}.1`,
      ][n % 4] ?? '',
    'an IPv4 address as IPv6': (n) =>
      [`::ffff:203.0.113.9`, '203.0.113.9', '::FFFF:203.0.113.9', '::ffff:203.0.113.9%eth0'][n % 4] ?? '',
    'a zone behind it': (n) => `2001:db8:1:2::1%zone${n}`,
  };
  for (const [name, header] of Object.entries(TRICKS)) {
    it(`is not bypassed behind a trusted proxy by ${name}`, async () => {
      await open(['127.0.0.1']);
      const seen = await guess(world, guesses(40), (n) => ({ 'x-forwarded-for': header(n) }));
      expect(seen).to.deep.equal({ refused: LIMIT, limited: 40 - LIMIT, found: false });
    });
  }

  it('does not lock out a valid key, from the same address, from another one, or from another /64', async () => {
    await open(['127.0.0.1']);
    await guess(world, guesses(30), () => ({ 'x-forwarded-for': '2001:db8:1:2::1' }));
    const asker = createAsker(world.port);
    const of = async (key: string, address: string) => (await asker.ask(key, { 'x-forwarded-for': address })).status;
    const addresses = ['2001:db8:1:2::1', '2001:db8:1:2::ffff', '2001:db8:1:3::1', '203.0.113.9'];
    const seen = [];
    for (const address of addresses) seen.push([await of(KEY, address), await of(randomKey(), address)]);
    expect(seen).to.deep.equal([
      [200, 429],
      [200, 429],
      [200, 401],
      [200, 401],
    ]);
    asker.stop();
  });

  it('succeeds without the limit, or if every proxy is trusted (control)', async () => {
    await open([], 1_000_000);
    expect(await guess(world, guesses(50))).to.deep.equal({ refused: 50, limited: 0, found: false });
    await world.stop();
    await open(['127.0.0.1', '0.0.0.0/0']);
    expect(await guess(world, guesses(50), (n) => ({ 'x-forwarded-for': `198.51.100.${n}` }))).to.deep.equal({
      refused: 50,
      limited: 0,
      found: false,
    });
  });
});

describe('a wrong key', () => {
  const samples = size(33_000, 1200);
  const bound = size(0.05, 0.12);

  /** An API where one key was revoked; `slow` reads the account before it checks that. */
  async function open(slow: boolean): Promise<ApiWorld> {
    const world = await startApi({
      settings: { maxBadKeysPerMinute: 1e9 },
      store: (real) => (slow ? careless(real) : real),
    });
    await createKey(world.store, ACCOUNT, 'revoked', { clock: world.clock, ids: createIds(world.clock) }, REVOKED);
    if (slow) await world.store.keys.change({ id: keyHash(REVOKED) }, { revokedAt: new Date(world.clock.now()) });
    else await revokeKey(world.store, keyHash(REVOKED), world);
    return world;
  }

  const CLASSES: Readonly<Record<string, () => string>> = {
    unknown: randomKey,
    revoked: () => REVOKED,
    'all but the last letter': () => `${KEY.slice(0, -1)}${LETTERS[Math.floor(chance() * 52)]}`,
    'all but the first letter': () => `${LETTERS[Math.floor(chance() * 4)]}${KEY.slice(1)}`,
  };

  async function measure(world: ApiWorld): Promise<Record<string, number[]>> {
    const asker = createAsker(world.port);
    const took: Record<string, number[]> = Object.fromEntries(Object.keys(CLASSES).map((name) => [name, []]));
    for (let n = 0; n < 200; n++) await asker.ask(randomKey());
    // Made before anything is measured: making a random text leaves more behind than taking one that is there.
    const keys = Array.from({ length: samples }, () =>
      Object.entries(CLASSES).map(([name, make]) => ({ name, key: Buffer.from(make()).toString(), by: chance() })),
    );
    for (const round of keys) {
      // In another order each time, so that whatever the machine is busy with falls on all alike.
      for (const { name, key } of round.toSorted((a, b) => a.by - b.by)) {
        const { status, ms } = await asker.ask(key);
        if (status !== 401) throw new Error(`${name} answered ${status}`);
        took[name]?.push(ms);
      }
    }
    asker.stop();
    return took;
  }

  const areas = ({ unknown = [], ...others }: Record<string, number[]>) =>
    Object.fromEntries(Object.entries(others).map(([name, took]) => [name, separability(took, unknown)]));

  it('gets the same answer, whatever is wrong with it', async () => {
    const world = await open(false);
    const asker = createAsker(world.port);
    const wrong: readonly unknown[] = [
      randomKey(),
      REVOKED,
      KEY.slice(0, -1),
      `${KEY}x`,
      ` ${KEY}`,
      KEY.toLowerCase(),
      KEY.toUpperCase(),
      '',
      ' ',
      'x'.repeat(100_000),
      keyHash(KEY),
      7,
      true,
      [],
      [KEY],
      { $gt: '' },
      { $ne: '' },
      `${KEY}\u0000`,
      `\ufeff${KEY}`,
      KEY.replace('E', '\u0415'),
      '\ud800',
      '__proto__',
    ];
    const answers = [];
    for (const key of wrong) {
      const {
        status,
        text,
        headers: { date: _, ...headers },
      } = await asker.ask(key);
      answers.push(JSON.stringify({ status, text, headers }));
    }
    asker.stop();
    await world.stop();
    expect([...new Set(answers)]).to.have.length(1);
    expect(answers[0]).to.include('Invalid_Key').and.not.include(KEY);
    expect(JSON.stringify(world.log.lines)).to.not.include(KEY).and.not.include(REVOKED);
  });

  it('takes the same time, whatever is wrong with it', async () => {
    const world = await open(false);
    const seen = areas(await measure(world));
    await world.stop();
    figures(19, {
      'samples of each kind': samples,
      ...Object.fromEntries(
        Object.entries(seen).map(([name, area]) => [`separability of ${name} and unknown`, area.toFixed(3)]),
      ),
      bound: `0.5 ± ${bound}`,
    });
    for (const [name, area] of Object.entries(seen)) expect(area, name).to.be.within(0.5 - bound, 0.5 + bound);
  });

  it('is distinguishable by time when the store does more work for some keys (control)', async () => {
    const world = await open(true);
    const seen = areas(await measure(world));
    await world.stop();
    figures(19, { 'control: separability of revoked and unknown': (seen['revoked'] ?? 0).toFixed(3) });
    expect(seen['revoked']).to.be.above(0.5 + bound);
  });
});

/** A store that reads the account of every key it finds, revoked or not. */
function careless(real: Store): Store {
  return {
    ...real,
    keys: {
      ...real.keys,
      async one(filter) {
        const row = await real.keys.one(filter.id === undefined ? {} : { id: filter.id });
        for (let n = 0; row && n < 8; n++) await real.accounts.one({ id: row.account });
        return row?.revokedAt === null ? row : undefined;
      },
    },
  };
}
