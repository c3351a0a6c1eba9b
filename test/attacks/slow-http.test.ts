import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { figures, percentile } from '../support/attacks/figures.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { until } from '../support/until.ts';

const CLIENTS = size(1500, 200);
const CALLS = size(1000, 100);
/** Of the attackers' addresses; fewer connections than each may have. */
const PER_ADDRESS = 50;
/** A body of the largest kind, as it is declared: below the limit of 25 MiB messages in JSON. */
const DECLARED = 36_000_000;
const WINDOW_S = size(10, 3);
const SLOWEST_MS = 1000;
/** A large call that must go through beside the attack. */
const MESSAGE = { raw_message: `Subject: large\n\n${'x'.repeat(8_000_000)}`, to: ['box@in.test'] };

const SHORT_WINDOW: Patch = {
  file: 'api/requests/body.ts',
  from: 'RATE_WINDOW_S = 10',
  to: `RATE_WINDOW_S = ${WINDOW_S}`,
};
/**
 * Room is taken by what a header declares, and no floor of speed ends it: what eight connections did to others for two
 * minutes.
 */
const BY_DECLARATION: Patch = {
  file: 'api/requests/body.ts',
  from: '  let held = 0;',
  to: '  let held = Number(req.headers["content-length"] ?? 0);\n  if (room.take("all", held) !== "taken") { held = 0; throw refusal("ServiceUnavailable"); }\n  who = "all";',
};
const NO_SHARE: Patch = { file: 'api/requests/body.ts', from: 'each: each * limit', to: 'each: all * limit' };

describe(`${CLIENTS} HTTP clients that declare bodies of ${DECLARED / 1e6} MB`, () => {
  let victim: Victim;
  const sockets: Socket[] = [];
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await victim.stop();
  });

  /** Many connections from many addresses; `body` is what each sends at once, a byte a second follows. */
  async function attack(count: number, body: Buffer, net: number) {
    const answers: string[] = [];
    const { hostname, port } = new URL(victim.postern.base);
    let open = 0;
    for (let n = 0; n < count; n++) {
      const socket = connect({
        host: hostname,
        port: Number(port),
        localAddress: `127.${net}.0.${1 + Math.floor(n / PER_ADDRESS)}`,
      });
      sockets.push(socket);
      open++;
      let drip: NodeJS.Timeout | undefined;
      socket
        .on('data', (chunk) => answers.push(chunk.toString('latin1').split('\r\n', 1)[0] ?? ''))
        .on('error', () => undefined)
        .on('close', () => {
          open--;
          clearInterval(drip);
        });
      const path = n % 2 === 0 ? '/api/1.0/messages/send.json' : '/api/1.0/inbound/send-raw.json';
      socket.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${DECLARED}\r\n\r\n`);
      socket.write(body);
      drip = setInterval(() => socket.write('x'), 1000);
    }
    await until(
      'the attack',
      () => sockets.every(({ connecting, writableLength }) => !connecting && writableLength === 0),
      60_000,
    );
    return { answers, open: () => open };
  }

  /** How long small calls took beside the attack, in milliseconds, and what a large one was answered. */
  async function callsOf() {
    const took: number[] = [];
    for (let n = 0; n < CALLS; n++) {
      const began = performance.now();
      expect(await victim.api('/users/ping')).to.equal('PONG!');
      took.push(performance.now() - began);
    }
    return { p99: percentile(took, 0.99), most: percentile(took, 1) };
  }

  it('do not delay other calls, small or large, and are closed for low speed', async () => {
    victim = await startVictim({
      patches: [SHORT_WINDOW],
      env: { POSTERN_HTTP__MAX_CONNECTIONS_PER_ADDRESS: String(PER_ADDRESS) },
    });
    const began = performance.now();
    const crowd = await attack(CLIENTS, Buffer.from('{"key":"'), 20);
    const { p99, most } = await callsOf();
    expect(await victim.api('/inbound/send-raw', MESSAGE)).to.have.length(1);
    await until('their end', () => crowd.open() === 0, (WINDOW_S + 30) * 1000);
    const seconds = (performance.now() - began) / 1000;
    figures(20, {
      clients: CLIENTS,
      'small call p99 ms': p99,
      'slowest ms': most,
      'seconds until all were ended': seconds,
    });
    expect(most).to.be.below(SLOWEST_MS);
    expect([...new Set(crowd.answers)]).to.deep.equal(['HTTP/1.1 408 Request Timeout']);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('leave room for a large call from another address, and for small calls from any, even if they send their bodies', async () => {
    victim = await startVictim();
    const crowd = await attack(12, Buffer.alloc(DECLARED - 1000, 'x'), 21);
    await until(
      'refusals',
      () => crowd.answers.filter((line) => line === 'HTTP/1.1 429 Too Many Requests').length === 10,
    );
    const { p99, most } = await callsOf();
    figures(20, {
      'large bodies that one address holds': 12 - crowd.answers.length,
      'small call p99 ms': p99,
      'slowest ms': most,
    });
    expect(await victim.api('/inbound/send-raw', MESSAGE)).to.have.length(1);
    expect(most).to.be.below(SLOWEST_MS);
  });

  it('get no more connections than the limit per address, and others can connect', async () => {
    victim = await startVictim({ env: { POSTERN_HTTP__MAX_CONNECTIONS_PER_ADDRESS: '20' } });
    const crowd = await attack(PER_ADDRESS, Buffer.from('{'), 22);
    await until('those over the cap', () => crowd.open() === 20);
    expect(crowd.answers.every((line) => line === 'HTTP/1.1 429 Too Many Requests')).to.equal(true);
    expect((await callsOf()).most).to.be.below(SLOWEST_MS);
  });

  it('block large calls if capacity is reserved by declared size (control)', async () => {
    victim = await startVictim({ patches: [BY_DECLARATION, NO_SHARE] });
    await attack(8, Buffer.from('{'), 23);
    // The daemon may not have read all eight headers yet, and answers a call from another connection first.
    const answer = async () => await victim.api('/inbound/send-raw', MESSAGE).then(() => 'taken', String);
    await until('a refusal for want of room', async () => (await answer()).includes('answered 503'), 60_000);
  });
});
