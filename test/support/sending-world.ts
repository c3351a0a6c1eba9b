import { NO_METRICS } from '../../src/base/metrics.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { MessageEvent } from '../../src/events/record.ts';
import { mailUrl, type Outgoing } from '../../src/mail/outgoing.ts';
import type { Delivery } from '../../src/queue/delivery.ts';
import type { MailAttempt } from '../../src/queue/settle.ts';
import { readReport } from '../../src/sending/reporter.ts';
import { createOutboundRoad, type OutboundParts } from '../../src/sending/road.ts';
import type { ReleaseDecision } from '../../src/sending/sending-quota.ts';
import type { ComposeJob, ComposeReply } from '../../src/sending/types.ts';
import { NO_COPIES } from './copies.ts';
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

/** The dispatcher with mail going out: who may leave, how it is composed and what servers say are functions. */
export interface SendingWorld extends Bench {
  readonly sent: { readonly recipient: string; readonly at: number; readonly text: string }[];
  readonly composed: ComposeJob[];
  serve(next: (recipient: string) => MailAttempt | Promise<MailAttempt>): void;
  leave(next: (recipientless: Outgoing, queuedAt: number, now: number) => ReleaseDecision): void;
  compose(next: (job: ComposeJob) => ComposeReply): void;
  /** Mail of an account comes onto the queue. */
  mail(change?: Partial<Omit<Delivery, 'id'>>, outgoing?: Partial<Outgoing>): Promise<Delivery>;
  /** Pending reports: kinds with details. */
  reports(): Promise<{ readonly kind: string; readonly detail: MessageEvent['detail'] }[]>;
}

export async function createWorld(parts: Partial<OutboundParts> = {}, maxAgeHours = 120): Promise<SendingWorld> {
  const sent: { recipient: string; at: number; text: string }[] = [];
  const composed: ComposeJob[] = [];
  let serve: (recipient: string) => MailAttempt | Promise<MailAttempt> = () => answer(250, '2.0.0 ok');
  let leave: (outgoing: Outgoing, queuedAt: number, now: number) => ReleaseDecision = () => ({ kind: 'now' });
  let compose: (job: ComposeJob) => ComposeReply = ({ recipient }) => ({
    kind: 'composed',
    composed: { bytes: Buffer.from(`To: ${recipient}\r\n\r\n`), links: [], mailFrom: 'v@bounces.example' },
  });
  const mail: OutboundParts = {
    sendingQuota: {
      mayLeave: async (_account, outgoing, queuedAt, now) => leave(outgoing, queuedAt, now),
    },
    scheduling: { claim: async () => ({ kind: 'ours', first: true }), release: async () => {} },
    copies: NO_COPIES,
    sources: { choose: async () => [] },
    mailCarrier: {
      async send({ recipient, composed: { bytes } }) {
        sent.push({ recipient, at: bench.clock.now(), text: Buffer.from(bytes).toString() });
        return await serve(recipient);
      },
      async stop() {},
    },
    signerOf: async () => null,
    mayWriteFrom: async () => true,
    numberOf: async () => 7,
    composing: async () => ({
      hostname: 'mx.example',
      returnDomain: 'bounces.example',
      publicUrl: 'https://mx.example',
      secret: 's',
    }),
    reported: () => {},
    ...parts,
  };
  const bench: Bench = await createBench({}, {}, (shared) => ({
    outbound: createOutboundRoad(
      { concurrency: 10, concurrencyPerEndpoint: 5, concurrencyAtStart: 2, maxAgeHours },
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
  return {
    ...bench,
    sent,
    composed,
    serve(next) {
      serve = next;
    },
    leave(next) {
      leave = next;
    },
    compose(next) {
      compose = next;
    },
    async mail(change = {}, outgoing = {}) {
      const delivery = aDelivery(mailUrl('example.com'), {
        kind: 'outbound',
        routeId: '',
        pattern: '',
        recipient: 'jo@example.com',
        ...change,
      });
      await bench.put([delivery], { ...OUTGOING, ...outgoing });
      return delivery;
    },
    reports: async () =>
      (await bench.spool.reports(1000)).flatMap((report) => {
        const told = readReport(report);
        return told ? [{ kind: told.event.kind, detail: told.event.detail }] : [];
      }),
  };
}
