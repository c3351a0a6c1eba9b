import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { type Calls, startCalling } from '../support/faults/caller.ts';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { canSupervise, startSupervisor } from '../support/faults/supervisor.ts';
import { openWorld } from '../support/faults/world.ts';
import { freePort } from '../support/free-port.ts';
import { serialAt } from '../support/starttls.ts';
import { until } from '../support/until.ts';

const RESTARTS = size('RESTARTS', 50, 2);
const RATE = size('RESTART_RATE', 200, 60);
/**
 * How soon a new certificate is to be seen, half of the times; a session waits longer for its handshake where the
 * daemon waits for a processor.
 */
const SOON_MS = 1000;

/** Something that runs one daemon after the other on one port. */
interface Service {
  readonly port: number;
  start(): Promise<string>;
  reload(): void;
  stop(): Promise<number | null>;
  close(): Promise<unknown>;
}

interface Seen {
  readonly verdict: Verdict;
  readonly calls: Calls;
  /** From each reload to the new certificate; milliseconds, the shortest first. */
  readonly certificateMs: readonly number[];
  readonly codes: readonly (number | null)[];
}

/** New certificates, reloads and restarts, one after the other, under load and with a call every ten milliseconds. */
async function rotate(
  restarts: number,
  open: (env: Readonly<Record<string, string>>) => Promise<Service>,
): Promise<Seen> {
  const world = await openWorld();
  const [cert, key] = [join(world.dir, 'cert.pem'), join(world.dir, 'key.pem')];
  const use = (name: string) => {
    copyFileSync(`test/fixtures/tls/${name}.cert.pem`, cert);
    copyFileSync(`test/fixtures/tls/${name}.key.pem`, key);
  };
  use('first');
  const service = await open(settings(world.edge.dir, cert, key));
  try {
    await prepare(await service.start(), `${world.sink.base}/hook`);
    const load = world.load({ perSecond: RATE, bytes: 4000, connections: 10 });
    load.turnTo({ host: '127.0.0.1', port: service.port });
    const calling = startCalling(service.port);
    const codes: (number | null)[] = [];
    const certificateMs: number[] = [];
    for (let n = 0; n < restarts; n++) {
      // There is no load in the moments of a start.
      const had = load.acknowledged();
      await until('some mail', () => load.acknowledged() >= had + RATE / 4, 60_000);
      const before = await until('a certificate', async () => serialAt(service.port));
      use(n % 2 === 0 ? 'second' : 'first');
      const changed = performance.now();
      service.reload();
      await until(
        'the new certificate',
        async () => ![before, undefined].includes(await serialAt(service.port)),
        30_000,
      );
      certificateMs.push(performance.now() - changed);
      codes.push(await service.stop());
      await service.start();
    }
    await calling.stop();
    await load.stop();
    return {
      verdict: await judgeWhenQuiet(world.edge.dir, world.ledger, world.sink),
      calls: calling.calls,
      certificateMs: certificateMs.sort((a, b) => a - b),
      codes,
    };
  } finally {
    await service.close();
    await world.close();
  }
}

const settings = (dir: string, cert: string, key: string) => ({
  POSTERN_DATA_DIR: dir,
  POSTERN_HOSTNAME: 'in.postern.test',
  POSTERN_HTTP__LISTEN: '127.0.0.1:0',
  POSTERN_BOOTSTRAP__API_KEY: KEY,
  POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
  POSTERN_SPOOL__MIN_FREE_BYTES: '0',
  POSTERN_DNS__SERVERS: '127.0.0.1:9',
  POSTERN_DNS__TIMEOUT_MS: '100',
  POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.0/8',
  POSTERN_SMTP__TLS__CERT: cert,
  POSTERN_SMTP__TLS__KEY: key,
  POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000',
});

async function prepare(base: string, url: string): Promise<void> {
  const { api } = createCaller(base, KEY);
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url });
}

/** The protection away: each daemon opens the port itself. */
async function withoutManager(env: Readonly<Record<string, string>>): Promise<Service> {
  const port = await freePort();
  let daemon: ChildDaemon | undefined;
  return {
    port,
    async start() {
      daemon = await spawnDaemon(env['POSTERN_DATA_DIR'] ?? '', { ...env, POSTERN_SMTP__LISTEN: `127.0.0.1:${port}` });
      return daemon.base;
    },
    reload() {
      daemon?.signal('SIGHUP');
    },
    stop: async () => (await daemon?.end()) ?? null,
    close: async () => daemon?.end('SIGKILL'),
  };
}

function show(what: string, { verdict, calls, certificateMs }: Seen, restarts: number): void {
  const { greeted, putOff, refused, dropped } = calls;
  tell(what, verdict, {
    restarts,
    'calls greeted': greeted,
    'put off by 421': putOff,
    refused,
    'ended without a word': dropped,
    'new certificate after ms (median)': Math.round(median(certificateMs)),
    'at most': Math.round(certificateMs.at(-1) ?? 0),
  });
}

const median = (sorted: readonly number[]) => sorted[Math.floor(sorted.length / 2)] ?? Number.POSITIVE_INFINITY;

describe(`new certificates and ${RESTARTS} restarts under ${RATE} messages a second`, function () {
  this.timeout(1_800_000);
  before(function () {
    if (!canSupervise()) this.skip();
  });

  it('refuse no connection and lose no mail if the service manager holds the socket', async () => {
    const seen = await rotate(RESTARTS, startSupervisor);
    show('rotation', seen, RESTARTS);
    expect(seen.codes).to.deep.equal(Array.from({ length: RESTARTS }, () => 0));
    expect(seen.calls).to.include({ refused: 0, dropped: 0 });
    expect(median(seen.certificateMs)).to.be.below(SOON_MS);
    expect(seen.verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
  });

  it('refuse connections if every daemon opens the port itself (control)', async () => {
    const seen = await rotate(2, withoutManager);
    show('rotation, control', seen, 2);
    expect(seen.calls.refused).to.be.above(0);
  });
});
