import { expect } from 'chai';
import { createCaller, KEY } from '../support/daemon.ts';
import { judgeWhenQuiet } from '../support/faults/checker.ts';
import { tell } from '../support/faults/figures.ts';
import { drift, type Sample, takeSample, takeSamples } from '../support/faults/samples.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { until } from '../support/until.ts';

/** How long it works, and how much mail comes in a second meanwhile. */
const SOAK_MS = size('SOAK_MS', 3_600_000, 15_000);
const RATE = size('SOAK_RATE', 150, 100);
/**
 * Megabytes that may be more at the end of the load than after a quarter of it: in its first minute a daemon still
 * grows into its work.
 */
const MAX_MORE = { memory: size('SOAK_MORE_MB', 48, 160), queue: 64 };
/** Things that may be more when all is quiet again than before the load; under load they come and go. */
const MAX_LEFT = { sockets: 20, descriptors: 20, threads: 2 };
/** What a leak of everything must come to within seconds. */
const CONTROL_MB = 160;
/** Delivered mail is kept to this size; beyond it the queue must not grow. */
const KEPT_BYTES = 16 * 1_048_576;

const pause = (ms: number) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, ms);
  });
const stillFor = (ms: number) => {
  const end = performance.now() + ms;
  return () => performance.now() < end;
};

/** Submitted mail, and changes of lists, each reported to a webhook. */
async function callers({ edge, sink }: World, busy: () => boolean): Promise<number> {
  const { api } = createCaller(edge.daemon().base, KEY);
  await api('/webhooks/add', {
    url: `${sink.base}/events`,
    events: ['send', 'hard_bounce', 'open', 'reject', 'blacklist', 'whitelist'],
  });
  let calls = 0;
  for (let n = 0; busy(); n++) {
    const email = `user${n}@out.test`;
    await api('/rejects/add', { email });
    await api('/rejects/list', { email });
    await api('/rejects/delete', { email });
    await api('/messages/send', {
      message: {
        from_email: 'ada@example.org',
        to: [{ email: `${n % 9 === 0 ? 'gone' : 'jo'}${n}@out.test` }],
        subject: `Letter ${n}`,
        html: '<p>Hello, <a href="https://example.org/">look</a>.</p>',
      },
    });
    calls += 4;
    await pause(200);
  }
  return calls;
}

/** The endpoint fails for a while in every minute. */
async function stumble({ sink }: World, busy: () => boolean): Promise<void> {
  for (let n = 0; busy(); n++) {
    const status = n % 60 < 5 ? 500 : 200;
    sink.answer({ status }, '/hook');
    await pause(1000);
  }
  sink.answer({ status: 200 }, '/hook');
}

interface Soaked {
  /** Before the load. */
  readonly first: Sample;
  readonly samples: readonly Sample[];
  readonly calls: number;
}

/** A daemon that keeps little of what it delivered, and sends mail to `server`. */
const open = (server: MailServer) =>
  openWorld({
    env: {
      POSTERN_DELIVERY__KEEP_DELIVERED_BYTES: String(KEPT_BYTES),
      POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${server.port}`,
      POSTERN_OUTBOUND__TLS: 'opportunistic',
      POSTERN_OUTBOUND__QUOTA: 'false',
    },
  });

async function soak(world: World, ms: number, imports: readonly URL[] = []): Promise<Soaked> {
  await world.edge.start({ imports });
  const first = takeSample(world.edge.daemon().pid, world.edge.dir);
  const samples = takeSamples(world.edge.daemon().pid, world.edge.dir, Math.max(250, ms / 720));
  const busy = stillFor(ms);
  const load = world.load({ perSecond: RATE, bytes: (n) => (n % 100 === 0 ? 400_000 : 4000) });
  load.turnTo(world.edge.daemon().smtp);
  const [calls] = await Promise.all([callers(world, busy), stumble(world, busy)]);
  const taken = samples();
  await load.stop();
  return { first, samples: taken, calls };
}

const names = <T extends object>(of: T) => Object.keys(of) as (keyof T)[];

/** What is still more than `MAX_LEFT` allows. */
const leftBehind = (first: Sample, now: Sample) =>
  names(MAX_LEFT).flatMap((name) =>
    now[name] - first[name] > MAX_LEFT[name] ? [`${name}: ${first[name]} before, ${now[name]} now`] : [],
  );

describe(`${Math.round(SOAK_MS / 1000)} s of mail in both directions, calls, bounces and an unreliable endpoint`, function () {
  this.timeout(SOAK_MS * 2 + 600_000);
  let server: MailServer;
  let world: World;
  before(async () => {
    server = await startMailServer();
  });
  after(() => server.stop());
  beforeEach(async () => {
    world = await open(server);
  });
  afterEach(() => world.close());

  it('lose nothing and leak nothing: memory, sockets, files and threads return to their start values', async () => {
    const { first, samples, calls } = await soak(world, SOAK_MS);
    const verdict = await judgeWhenQuiet(world.edge.dir, world.ledger, world.sink);
    let left: readonly string[] = [];
    await until('the daemon to be as before', () => {
      left = leftBehind(first, takeSample(world.edge.daemon().pid, world.edge.dir));
      return left.length === 0;
    }).catch(() => undefined);
    const seen = Object.fromEntries(
      (['memory', 'queue', 'sockets', 'descriptors', 'threads'] as const).map((name) => [name, drift(samples, name)]),
    );
    tell('soak', verdict, {
      calls,
      'mails out': server.mails.length,
      ...Object.fromEntries(
        Object.entries(seen).map(([name, { early, late }]) => [name, `${Math.round(early)} then ${Math.round(late)}`]),
      ),
    });
    expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
    expect(verdict.acknowledged).to.be.above(((SOAK_MS / 1000) * RATE) / 2);
    expect(server.mails.length).to.be.above(0);
    expect(await world.edge.stop(), 'the exit code').to.equal(0);
    expect(left).to.deep.equal([]);
    for (const name of names(MAX_MORE)) {
      const { early, late } = drift(samples, name);
      expect(late - early, name).to.be.at.most(MAX_MORE[name]);
    }
  });

  it('detect a leak (control)', async () => {
    const { samples } = await soak(world, Math.min(SOAK_MS, 15_000), [
      new URL('../support/faults/remember-writes.ts', import.meta.url),
    ]);
    const { early, late } = drift(samples, 'memory');
    console.log(`      soak, control: memory ${Math.round(early)} then ${Math.round(late)}`);
    expect(late - early).to.be.above(CONTROL_MB);
  });
});
