import { sentId } from '../../mail/addresses/return-address.ts';
import { type MailSummary, mailSummaryOf, summaryOfOutgoing } from '../../mail/summary.ts';
import { endpointKey, type QueuedDelivery, type Spool } from '../../queue/delivery.ts';
import { endpointOf, type WaitReason, waitReason } from '../../queue/wait-reason.ts';

// Facts about deliveries that their rows do not hold: fields of the message, and why it is not delivered yet.

export interface DeliveryContext {
  readonly summary: MailSummary;
  /** Undefined if it has ended. */
  readonly waits: WaitReason | undefined;
}

export interface DeliveryContextSettings {
  /** Whether header fields are shown (journal.subjects). */
  readonly keepsHeaders: boolean;
  readonly hasScanners: boolean;
}

/** A delivery that has been due for longer than this is late. */
const LATE_MS = 5000;
const NO_SUMMARY: MailSummary = { from: null, subject: null, messageId: null, thread: null };

/** The parts of the queue that are read. */
export type DeliveryContextSpool = Pick<Spool, 'envelopes' | 'summaryFields' | 'endpoints' | 'scanOf'>;

/** Reads these facts for some deliveries. */
export async function readDeliveryContext(
  rows: readonly QueuedDelivery[],
  spool: DeliveryContextSpool,
  { keepsHeaders, hasScanners }: DeliveryContextSettings,
  now: number,
): Promise<(delivery: QueuedDelivery) => DeliveryContext> {
  const ids = rows.filter(({ batch }) => !batch).map(({ messageId }) => messageId);
  const shown = keepsHeaders ? ids : [];
  const [envelopes, fields] = [await spool.envelopes(shown), await spool.summaryFields(shown)];
  const memories = new Map((await spool.endpoints()).map((one) => [endpointKey(one), one.memory]));
  const unscanned = hasScanners ? await findUnscanned(rows, spool, now) : new Set<string>();

  function summaryFor({ id, messageId }: QueuedDelivery): MailSummary {
    const own = fields.get(messageId);
    const outgoing = envelopes.get(messageId)?.envelope.outgoing;
    if (outgoing) return summaryOfOutgoing(outgoing, sentId(id));
    return own === undefined ? NO_SUMMARY : mailSummaryOf(own);
  }

  return (delivery) => ({
    summary: summaryFor(delivery),
    waits: waitReason(delivery, {
      endpoint: endpointOf(memories.get(endpointKey(delivery)) ?? null, now),
      preparing: undefined,
      scanner: unscanned.has(delivery.id) ? 'not scanned yet' : undefined,
      now,
    }),
  });
}

/** Deliveries that wait for scanners. Only the daemon knows the state of the scanners. */
async function findUnscanned(
  rows: readonly QueuedDelivery[],
  spool: DeliveryContextSpool,
  now: number,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const { id, messageId, kind, state, attempts, dueAt } of rows)
    if (kind === 'inbound' && state === 'waiting' && attempts === 0 && now - dueAt > LATE_MS)
      if (!(await spool.scanOf(messageId))) found.add(id);
  return found;
}
