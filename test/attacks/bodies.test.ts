import { brotliCompressSync, constants, deflateSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { BAD_ITEMS, filled, holdersIn, postBody, SHAPES } from '../support/attacks/bodies.ts';
import { figures } from '../support/attacks/figures.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { startProbe } from '../support/attacks/probe.ts';
import { SMALL, size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { KEY } from '../support/daemon.ts';

/**
 * How long the loop may be held, in milliseconds of its processor: how late it is on a machine that is busy with other
 * things says more about these. Both are printed.
 */
const HELD_MS = size(100, 200);
const MEGABYTE = 1024 * 1024;
/** A little less than 256 KB: larger bodies are parsed on a thread. */
const ON_LOOP = 250_000;
/** A call of a message, with the default settings. */
const LARGEST = size(36_000_000, 4_000_000);
const HEAP_MB = 512;

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const shapes = Object.entries(SHAPES);
const headersOf = (name: string) => (name.startsWith('form') ? FORM : {});
/** Of a list, those that have their turn: each in its turn where there is no time for all. */
const inTurn = <T>(all: readonly T[], turn: number, count: number): readonly T[] =>
  SMALL ? Array.from({ length: count }, (_, n) => all[(turn * count + n) % all.length] as T) : all;

describe('request bodies made to block the daemon', () => {
  let victim: Victim;
  afterEach(() => victim.stop());

  const start = (patches: readonly Patch[] = []) =>
    startVictim({
      heapMb: HEAP_MB,
      patches,
      env: { POSTERN_HTTP__MAX_BAD_KEYS_PER_MINUTE: '1000000', POSTERN_ACCOUNTS__MAX_CALLS_PER_SECOND: '100000' },
    });

  /** Sends bodies and notes how late the loop was with each; what they are answered must be a refusal or a result. */
  function createTally() {
    const seen = { calls: 0, late: 0, held: 0, which: '', answers: new Map<number, number>() };
    return {
      seen,
      async send(
        name: string,
        path: string,
        body: Buffer,
        headers: Readonly<Record<string, string>>,
        { pieces = body.length, atOnce = 1 } = {},
      ) {
        const url = `${victim.postern.base}/api/1.0${path}.json`;
        const posts = Array.from({ length: atOnce }, () => postBody(url, body, headers, pieces));
        const [status = 0] = await Promise.all(posts);
        seen.answers.set(status, (seen.answers.get(status) ?? 0) + 1);
        const { most, held } = await victim.lateness();
        seen.calls++;
        seen.late = Math.max(seen.late, most);
        if (process.env.ATTACKS_SHOW !== undefined)
          console.log(`      ${name}: ${status}, late ${most.toFixed(0)}, held ${held.toFixed(0)} ms`);
        if (held > seen.held) Object.assign(seen, { held, which: name });
        return status;
      },
      async end() {
        const peak = await victim.peak();
        figures(24, {
          calls: seen.calls,
          answers: [...seen.answers].map(([status, count]) => `${status}: ${count}`).join(', '),
          'loop held most ms': seen.held,
          'which was': seen.which,
          'loop late most ms': seen.late,
          'peak MB': peak,
        });
        expect(seen.held, seen.which).to.be.below(HELD_MS);
        expect([...seen.answers.keys()].filter((status) => status >= 500 && status !== 503)).to.deep.equal([]);
        expect(victim.postern.running()).to.equal(true);
        expect(victim.faults()).to.deep.equal([]);
      },
    };
  }

  it(`do not delay other clients, at any operation, with and without a key (${shapes.length} shapes of a megabyte)`, async () => {
    victim = await start();
    const probe = startProbe(victim.postern.smtp);
    const tally = createTally();
    await victim.lateness();
    for (const [turn, { path }] of OPERATIONS.entries())
      for (const [name, make] of inTurn(shapes, turn, 1))
        for (const key of inTurn([KEY, 'nobody'], turn, 1)) {
          const body = Buffer.from(make(MEGABYTE - 200, key));
          await tally.send(
            `${name}, at ${path} as ${key === KEY ? 'a customer' : 'nobody'}`,
            path,
            body,
            headersOf(name),
          );
        }
    const { noops } = await probe.report();
    await probe.stop();
    figures(24, { NOOPs: noops.length, 'NOOP most ms': Math.max(...noops) });
    await tally.end();
  });

  it(`do not delay other clients at the size of a message (${LARGEST / 1e6} MB), plain and compressed`, async () => {
    victim = await start();
    const tally = createTally();
    await victim.lateness();
    const brotli = { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } };
    const callers = [
      ['/inbound/send-raw', KEY],
      ['/messages/send', 'nobody'],
      ['/messages/send', KEY],
    ] as const;
    for (const [turn, [name, make]] of shapes.entries())
      for (const [path, key] of inTurn(callers, turn, 1)) {
        const body = Buffer.from(make(LARGEST, key));
        const headers = headersOf(name);
        const what = `${name}, at ${path} as ${key === KEY ? 'a customer' : 'nobody'}`;
        const [plain, packed] = SMALL ? [turn % 2 === 0, turn % 2 === 1] : [true, true];
        if (plain) await tally.send(what, path, body, headers);
        const gzip = { ...headers, 'content-encoding': 'gzip' };
        if (packed) await tally.send(`${what}, gzip`, path, gzipSync(body, { level: 1 }), gzip);
        // A body that is not unpacked costs nothing, from any client.
        if (SMALL || path !== '/inbound/send-raw') continue;
        for (const [encoding, packed] of [
          ['br', brotliCompressSync(body, brotli)],
          ['deflate', deflateSync(body, { level: 1 })],
        ] as const)
          expect(
            await tally.send(`${what}, ${encoding}`, path, packed, { ...headers, 'content-encoding': encoding }),
          ).to.be.oneOf([0, 415]);
      }
    await tally.end();
  });

  it('do not delay other clients at the largest size that is parsed on the main thread', async () => {
    victim = await start();
    const tally = createTally();
    await victim.lateness();
    for (const [turn, [name, make]] of shapes.entries()) {
      const key = turn % 2 === 0 ? KEY : 'nobody';
      await tally.send(name, '/messages/send', Buffer.from(make(ON_LOOP, key)), headersOf(name));
    }
    await tally.end();
  });

  it('do not delay other clients with 100,000 invalid items in a list or map', async () => {
    victim = await start();
    const tally = createTally();
    await victim.lateness();
    let turn = 0;
    for (const { path, params, large } of OPERATIONS)
      for (const holder of holdersIn(params))
        for (const item of inTurn(BAD_ITEMS, turn++, 1))
          for (const count of large ? [1000, 100_000] : [1000, 90_000]) {
            const body = Buffer.from(filled(holder, item, count, KEY));
            await tally.send(`${count} times ${item} in ${holder.join('.')} of ${path}`, path, body, {});
          }
    await tally.end();
  });

  it('do not delay other clients with nested lists within the limits', async () => {
    victim = await start();
    const tally = createTally();
    await victim.lateness();
    const recipients = Array.from({ length: 1000 }, (_, n) => ({ email: `a${n}@b.test`, name: 'A', type: 'to' }));
    const message = { from_email: 'a@in.test', text: '*|N1|*', to: recipients };
    for (const item of [...BAD_ITEMS, '{"name":"n","content":"x"}', '{"name":"n","content":[[[[]]]]}']) {
      const vars = `[${Array(1000).fill(item).join(',')}]`;
      const merge = Array(60).fill(`{"rcpt":"a1@b.test","vars":${vars}}`).join(',');
      const whole = JSON.stringify({ key: KEY, message: { ...message, merge_vars: [] } });
      const body = Buffer.from(whole.replace('"merge_vars":[]', `"merge_vars":[${merge}]`));
      await tally.send(`60,000 variables ${item}`, '/messages/send', body, {});
    }
    for (const content of [
      ' '.repeat(LARGEST),
      'A\n'.repeat(LARGEST / 2),
      '='.repeat(LARGEST),
      `${' '.repeat(LARGEST)}!`,
    ])
      await tally.send(
        `an attachment of ${JSON.stringify(content.slice(-4))}`,
        '/messages/send',
        Buffer.from(
          JSON.stringify({ key: KEY, message: { ...message, attachments: [{ type: 'a/b', name: 'a', content }] } }),
        ),
        {},
      );
    await tally.end();
  });

  it('do not delay other clients when they arrive byte by byte, or many at once', async () => {
    victim = await start();
    const tally = createTally();
    await victim.lateness();
    for (const [name, make] of inTurn(shapes, 3, 8))
      await tally.send(`${name}, a byte at a time`, '/messages/send', Buffer.from(make(3000, KEY)), headersOf(name), {
        pieces: 1,
      });
    const crowd = [
      'JSON: escapes of line ends',
      'JSON: a text of two bytes a character',
      'JSON: structs',
      'form: escapes',
    ];
    for (const name of crowd) {
      const body = Buffer.from(SHAPES[name]?.(LARGEST, KEY) ?? '');
      const path = '/inbound/send-raw';
      await tally.send(`twelve at once: ${name}`, path, body, headersOf(name), { atOnce: 12 });
    }
    await tally.end();
  });

  it('would block the daemon without the limit on values (control)', async () => {
    victim = await start([
      { file: 'api/requests/body-check.ts', from: 'values > maxValues', to: 'false' },
      { file: 'api/requests/body-parser.ts', from: '= 256 * 1024;', to: '= 1e12;' },
      { file: 'api/requests/body-parser.ts', from: '= 10_000;', to: '= 1e12;' },
    ]);
    const body = Buffer.from(SHAPES['JSON: structs']?.(6_000_000, 'nobody') ?? '');
    await victim.lateness();
    await postBody(`${victim.postern.base}/api/1.0/messages/send.json`, body, {});
    const { held } = await victim.lateness();
    figures(24, { 'control: loop held most ms': held });
    expect(held).to.be.above(HELD_MS);
  });
});
