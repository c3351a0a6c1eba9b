import type { Clock } from '../../../src/base/clock.ts';
import type { Ids } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { createCopying } from '../../../src/inbound/copies/copying.ts';
import type { Delivery, Spool } from '../../../src/queue/delivery.ts';
import { createAdoption } from '../../../src/sending/adoption.ts';
import { createCopies } from '../../../src/sending/copies.ts';
import { createReporter } from '../../../src/sending/reporter.ts';
import { createOutboundRoad } from '../../../src/sending/road.ts';
import type { Database } from '../../../src/store/driver/port.ts';
import { createLostHosts } from '../../../src/store/lost-hosts.ts';
import { createMembership, type Membership } from '../../../src/store/membership.ts';
import { openStore } from '../../../src/store/store.ts';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import { answered } from '../delivery.ts';
import { createTestLog } from '../log.ts';
import { createWebhookDispatcher, NO_SENDER_REPORTS } from '../roads.ts';
import { answer, noServer, OUTGOING } from '../sending-world.ts';
import { type Link, linkTo, mortal } from './link.ts';

/** What a schedule may leave out, to show that the model would find it. */
export interface Left {
  /** Claims and leases: a host sends what is on its queue. */
  readonly fencing?: boolean;
  readonly copies?: boolean;
}

/** The world around the hosts. */
export interface Outside {
  readonly database: Database;
  readonly clock: Clock;
  /** A server takes, or does not take, mail. */
  carry(process: HostProcess, recipient: string): Promise<boolean>;
  /** An application takes, or does not take, a post. */
  post(delivery: string): Promise<boolean>;
}

export interface Given {
  readonly host: string;
  readonly number: number;
  readonly spool: Spool;
  /** By how much its wall clock is wrong. */
  readonly wrongMs: number;
  readonly left: Left;
  readonly random: () => number;
}

const BYTES = new TextEncoder().encode('Subject: hello\r\n\r\nhello\r\n');
const CLIENT = { address: '192.0.2.1', helo: 'there', tls: null };

/** One process of a host, of the real parts that keep its mail safe: from its start to its end. */
export type HostProcess = Awaited<ReturnType<typeof openProcess>>;

export async function openProcess({ host, number, wrongMs, left, random, ...given }: Given, outside: Outside) {
  const link: Link = { isCut: false, slowMs: 20, isMute: false, loses: 0, isDead: false };
  const clock: Clock = {
    now: () => outside.clock.now() + wrongMs,
    monotonic: () => outside.clock.monotonic(),
    after: (ms, fn) => outside.clock.after(ms, () => (link.isDead ? undefined : fn())),
  };
  const log = createTestLog();
  let made = 0;
  const name = `p${String(number).padStart(3, '0')}`;
  const newId = () => `${name}-${String(++made).padStart(5, '0')}`;
  const ids: Ids = { message: newId, key: newId, signingKey: newId, jitter: random };
  const store = await openStore(linkTo(outside.database, link, outside.clock, random));
  const disk = mortal(given.spool, link, outside.clock, random);
  const member: Membership = createMembership(
    {
      name: `${host}.test`,
      url: '',
      queueDir: host,
      version: '1',
      features: ['copies=inbound', 'copies=outbound'],
      alone: false,
    },
    { store, identify: () => host, incarnation: name, clock, log },
  );
  const mode = left.copies ? 'none' : 'store';
  const parts = { store, member, clock, ids, log, metrics: NO_METRICS };
  const lostHosts = createLostHosts({ afterMs: 60_000, alone: false }, parts);
  const copying = createCopying({ mode, withoutCopies: 'defer', holdMs: 150, alone: false }, { ...parts, spool: disk });
  const { spool } = copying;
  const copies = createCopies({ mode }, parts);
  const fenced = left.fencing
    ? { ...copies, claim: async () => ({ kind: 'ours', epoch: null }) as const, holds: () => true }
    : copies;
  const adoption = createAdoption({ alone: false }, { ...parts, spool: disk, copies, others: {} });
  const reporter = createReporter({
    ...{ spool, copies, clock, log },
    recorder: { record: async () => 'recorded', begin: async () => {} } as never,
  });
  const process = { host, number, member, link, log };
  const outbound = createOutboundRoad(
    { concurrency: 10, concurrencyPerEndpoint: 5, concurrencyAtStart: 5, maxAgeHours: 120 },
    {
      ...parts,
      spool,
      copies: fenced,
      sendingQuota: { mayLeave: async () => ({ kind: 'now' }) },
      scheduling: { claim: async () => ({ kind: 'ours', first: true }), release: async () => {} },
      sources: { choose: async () => [] },
      mailCarrier: {
        send: async ({ recipient }) => ((await outside.carry(self, recipient)) ? answer(250, '2.0.0 ok') : noServer),
        stop: async () => {},
      },
      signerOf: async () => null,
      mayWriteFrom: async () => true,
      numberOf: async () => 7,
      composing: async () => ({ hostname: host, returnDomain: 'b.test', publicUrl: 'https://x.test', secret: 's' }),
      reported: reporter.poke,
      composer: {
        compose: async () => ({ kind: 'composed', composed: { bytes: BYTES, links: [], mailFrom: 'v@b.test' } }),
      },
      senderReports: NO_SENDER_REPORTS,
      time: createRunningTime(clock),
    },
  );
  const dispatcher = createWebhookDispatcher(
    { ...CONCURRENCY, batchBytes: 1024 ** 2, retryHours: 120, orderHoldMs: 900_000 },
    {
      ...{ spool, clock, ids, log },
      renderer: {
        render: async (job) => {
          const id = job.mails[0]?.delivery.id ?? '';
          return {
            id,
            linked: 0,
            body: { kind: 'memory', bytes: BYTES },
            headers: { 'webhook-id': id },
            found: [FOUND],
          };
        },
        renderShared: async () => undefined,
        discard: async () => {},
      },
      poster: {
        post: async (_url, headers) => answered((await outside.post(headers['webhook-id'] ?? '')) ? 200 : 503),
        head: async () => answered(200),
        stop: async () => {},
      },
      destinations: { of: async () => ({ kind: 'here' }), batchEvents: () => 1, target: () => PLAIN_TARGET },
      signingKeys: { keysFor: async () => ['k'] },
      time: createRunningTime(clock),
    },
    { outbound },
  );

  const message = (id: string) => ({ id, receivedAt: clock.now(), trace: '' });
  const body = () => ({ kind: 'memory', bytes: BYTES.slice() }) as const;
  const deliveryOf = (id: string, kind: 'inbound' | 'outbound', url: string, dueInMs: number): Delivery => ({
    ...{ id: `${id}-000000000000`, kind, messageId: id, account: 'acc', url, routeId: '', pattern: '' },
    recipient: `${id}@to.test`,
    ...(dueInMs > 0 && { notBefore: outside.clock.now() + dueInMs }),
  });

  const self = {
    ...process,
    /** `runs`, or why not. */
    async start(): Promise<string> {
      try {
        await member.start();
      } catch (error) {
        link.isDead = true;
        return String(error);
      }
      void member.refused.then(() => self.kill());
      await copying.start();
      await dispatcher.start();
      await reporter.start();
      await adoption.start();
      await lostHosts.start();
      return 'runs';
    },
    /** Accepts mail to be sent, as a call of the API does. Returns its recipient if it is acknowledged. */
    async send(url: string, dueInMs: number): Promise<string | undefined> {
      const id = newId();
      const delivery = deliveryOf(id, 'outbound', url, dueInMs);
      const envelope = { mailFrom: '', client: CLIENT, outgoing: OUTGOING, copiedIn: copies.epochForNew() };
      const copied = { ...message(id), envelope };
      try {
        await copies.write({ ...copied, bytes: BYTES }, [delivery]);
        const outcome = await spool.accept({ ...copied, body: body() }, [delivery]);
        return outcome === 'accepted' ? delivery.recipient : undefined;
      } catch {
        await copies.unwrite(envelope, [delivery]).catch(() => undefined);
        return undefined;
      }
    },
    /** Accepts inbound mail, as a session does. Returns its delivery if it is acknowledged. */
    async take(url: string): Promise<string | undefined> {
      const id = newId();
      const delivery = deliveryOf(id, 'inbound', url, 0);
      const mail = { ...message(id), envelope: { mailFrom: 'a@example.org', client: CLIENT }, body: body() };
      return (await copying.accepting.accept(mail, [delivery])) === 'accepted' ? delivery.id : undefined;
    },
    kill() {
      link.isDead = true;
    },
    /** In the order of the daemon. */
    async stop(): Promise<void> {
      copies.stop();
      copying.stopHolding();
      await Promise.all([adoption.stop(), lostHosts.stop(), copying.stop(), dispatcher.stop()]);
      await reporter.stop();
      await member.stop();
      link.isDead = true;
    },
  };
  return self;
}

const FOUND = {
  parseError: null,
  summary: null,
  verdicts: {
    spf: { result: 'pass', detail: '' },
    dkim: { signed: false, valid: false },
    dmarc: { result: 'none', policy: null, aligned: false },
    arc: { result: 'none' },
  },
} as const;
const CONCURRENCY = { concurrency: 64, concurrencyPerEndpoint: 8, concurrencyAtStart: 2 } as const;
