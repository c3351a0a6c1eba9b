import { NO_METRICS } from '../../src/base/metrics.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { MessageEvent, NewSentMessage, Recorder } from '../../src/events/record.ts';
import { mailUrl, type Outgoing } from '../../src/mail/outgoing.ts';
import type { Delivery } from '../../src/queue/delivery.ts';
import type { MailAttempt } from '../../src/queue/settle.ts';
import { createReporter, type Reporter, readReport } from '../../src/sending/reporter.ts';
import { createOutboundRoad, type MailParts } from '../../src/sending/road.ts';
import type { ComposeJob, ComposeReply, Leave } from '../../src/sending/types.ts';
import { aDelivery } from './delivery.ts';
import { type Bench, createBench, ids } from './dispatcher-bench.ts';
import { NO_SENDER_REPORTS } from './roads.ts';

export const HOURS = 3_600_000;

export const OUTGOING: Outgoing = {
  sender: 'news@sender.example',
  fromName: null,
  subject: 'News',
  tags: ['weekly'],
  template: null,
  subaccount: 'cust-1',
  metadata: { list: 'a' },
  apiKey: 'k1',
  trackOpens: false,
  trackClicks: 'none',
  globalVars: null,
  rcptVars: {},
  rcptMetadata: {},
  preserveRecipients: false,
  autoText: false,
  signingDomain: null,
  pool: null,
  form: 'mime',
};

export const answer = (code: number, diag: string): MailAttempt => ({
  kind: 'answered',
  code,
  diag,
  host: 'mx.example.com',
  address: '192.0.2.25',
  source: '192.0.2.1',
  tls: true,
  durationMs: 5,
});
export const noServer: MailAttempt = {
  kind: 'unanswered',
  reason: 'connection refused',
  permanent: false,
  durationMs: 5,
};
export const noDomain: MailAttempt = { kind: 'unanswered', reason: 'no such domain', permanent: true, durationMs: 5 };

/** A recorder that keeps what it is told, in memory. */
export interface TestRecorder extends Recorder {
  readonly rows: Map<string, NewSentMessage>;
  readonly events: Map<string, MessageEvent>;
  /** What every call does first; it may throw. */
  first: (what: string) => void;
}

export function createTestRecorder(): TestRecorder {
  const rows = new Map<string, NewSentMessage>();
  const events = new Map<string, MessageEvent>();
  const recorder: TestRecorder = {
    rows,
    events,
    first: () => {},
    async begin(message) {
      recorder.first(message.id);
      if (rows.has(message.id)) return 'duplicate';
      rows.set(message.id, message);
      return 'recorded';
    },
    async record(event) {
      recorder.first(event.id);
      if (!rows.has(event.message)) return 'unknown';
      if (events.has(event.id)) return 'duplicate';
      events.set(event.id, event);
      return 'recorded';
    },
  };
  return recorder;
}

/** The dispatcher with mail going out: who may leave, how it is composed and what servers say are functions. */
export interface SendingWorld extends Bench {
  readonly sent: { readonly recipient: string; readonly at: number; readonly text: string }[];
  readonly composed: ComposeJob[];
  readonly recorder: TestRecorder;
  readonly reporter: Reporter;
  serve(next: (recipient: string) => MailAttempt | Promise<MailAttempt>): void;
  leave(next: (recipientless: Outgoing, queuedAt: number, now: number) => Leave): void;
  compose(next: (job: ComposeJob) => ComposeReply): void;
  mail(change?: Partial<Delivery>, outgoing?: Partial<Outgoing>): Delivery;
  /** What was reported, and not told yet: kinds with details. */
  reports(): { readonly kind: string; readonly detail: MessageEvent['detail'] }[];
}

export function createWorld(parts: Partial<MailParts> = {}): SendingWorld {
  const sent: { recipient: string; at: number; text: string }[] = [];
  const composed: ComposeJob[] = [];
  let serve: (recipient: string) => MailAttempt | Promise<MailAttempt> = () => answer(250, '2.0.0 ok');
  let leave: (outgoing: Outgoing, queuedAt: number, now: number) => Leave = () => ({ kind: 'now' });
  let compose: (job: ComposeJob) => ComposeReply = ({ recipient }) => ({
    kind: 'composed',
    composed: { bytes: Buffer.from(`To: ${recipient}\r\n\r\n`), links: [], mailFrom: 'v@bounces.example' },
  });
  const mail: MailParts = {
    leaving: {
      mayLeave: async (_account, outgoing, queuedAt, now) => leave(outgoing, queuedAt, now),
      heldBecause: async () => undefined,
    },
    scheduling: { claim: async () => ({ kind: 'ours', first: true }), release: async () => {} },
    sources: { choose: async () => [] },
    mailCarrier: {
      async carry({ recipient, composed: { bytes } }) {
        sent.push({ recipient, at: bench.clock.now(), text: Buffer.from(bytes).toString() });
        return await serve(recipient);
      },
      async stop() {},
    },
    signerOf: async () => null,
    numberOf: async () => 7,
    composing: async () => ({
      hostname: 'mx.example',
      returnDomain: 'bounces.example',
      publicUrl: 'https://mx.example',
      secret: 's',
    }),
    reported: () => world.reporter.poke(),
    ...parts,
  };
  const bench: Bench = createBench({}, {}, (shared) => ({
    outbound: createOutboundRoad(
      { concurrency: 10, concurrencyPerEndpoint: 5, concurrencyAtStart: 2, maxAgeHours: 120 },
      {
        ...shared,
        ...mail,
        composer: {
          async compose(job) {
            composed.push(job);
            return compose(job);
          },
        },
        senderReports: NO_SENDER_REPORTS,
        time: createRunningTime(shared.clock),
        ids,
        metrics: NO_METRICS,
      },
    ),
  }));
  const recorder = createTestRecorder();
  const reporter = createReporter({ spool: bench.spool, recorder, clock: bench.clock, log: bench.log });
  const world: SendingWorld = {
    ...bench,
    sent,
    composed,
    recorder,
    reporter,
    serve(next) {
      serve = next;
    },
    leave(next) {
      leave = next;
    },
    compose(next) {
      compose = next;
    },
    mail(change = {}, outgoing = {}) {
      const delivery = aDelivery(mailUrl('example.com'), {
        kind: 'outbound',
        routeId: '',
        pattern: '',
        recipient: 'jo@example.com',
        ...change,
      });
      bench.spool.put([delivery], bench.clock.now(), { ...OUTGOING, ...outgoing });
      return delivery;
    },
    reports: () =>
      [...bench.spool.untold.values()].flatMap((report) => {
        const told = readReport(report);
        return told ? [{ kind: told.event.kind, detail: told.event.detail }] : [];
      }),
  };
  return world;
}
