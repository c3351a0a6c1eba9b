import { sizeOf } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import { deliveryId } from '../base/ids.ts';
import type { Tools } from '../base/tools.ts';
import type { Notes } from '../journal/types.ts';
import { type Envelope, traceLine } from '../mail/addresses/envelope.ts';
import type { Body, Delivery } from '../queue/delivery.ts';
import { STATES } from '../queue/states.ts';
import type { Brake } from './brake.ts';
import type { ContentRouter } from './content-routing.ts';
import { type Sequencing, sequencingOf } from './order.ts';
import type { Pacing } from './pacing.ts';
import type { AcceptingQueue, AcceptResult, Arrival, Match, PreAcceptanceScan, RoutedRecipient } from './types.ts';
import { createVerdictMeters } from './verdicts/meters.ts';

interface AcceptanceSettings {
  readonly hostname: string;
  /** Whether mail that the brake on loops marks is held. */
  readonly holdLoops: boolean;
}

interface AcceptanceDeps extends Pick<Tools, 'clock' | 'ids' | 'metrics'> {
  readonly spool: AcceptingQueue;
  readonly pacing: Pick<Pacing, 'delay'>;
  /** Undefined if messages are scanned after the 250, or not at all. */
  readonly scanBefore: PreAcceptanceScan | undefined;
  readonly contentRouter: ContentRouter;
  readonly brake: Brake;
  /** The history. */
  readonly notes: Notes;
}

/**
 * Creates the part that takes responsibility for messages: it writes one message and one delivery per routed recipient
 * as a unit, synced to disk. Only after `accepted` may a client get 250.
 */
export function createAcceptance(settings: AcceptanceSettings, deps: AcceptanceDeps) {
  const { spool, pacing, scanBefore, contentRouter, brake, notes, clock, ids, metrics } = deps;
  const taken = {
    smtp: metrics.counter('postern_messages_accepted_total', { source: 'smtp' }),
    api: metrics.counter('postern_messages_accepted_total', { source: 'api' }),
  };
  const countVerdicts = createVerdictMeters(metrics);
  const sizes = metrics.histogram('postern_message_bytes', { direction: 'inbound' });

  return frozen({
    /** Starts a new message: its id, and the writer for its bytes. */
    begin() {
      const messageId = ids.message();
      return { messageId, body: spool.body(messageId) };
    },
    /** Resolves after the sync, or later while mail arrives faster than it is delivered (pacing.ts). */
    async accept(
      messageId: string,
      arrival: Arrival,
      given: readonly RoutedRecipient[],
      body: Body,
    ): Promise<AcceptResult> {
      const receivedAt = clock.now();
      // Read first: the bytes are transferred with the message and have length 0 afterwards.
      const size = sizeOf(body);
      const recipients = [...new Set(given.map(({ recipient }) => recipient))];
      const only = recipients.length === 1 ? recipients[0] : undefined;
      const trace = traceLine({ ...arrival, hostname: settings.hostname, messageId, receivedAt, recipient: only });
      const looked = { id: messageId, envelope: arrival.envelope, trace, recipients, body };
      const isScanned =
        scanBefore && arrival.protocol !== 'HTTP' && given.some(({ match }) => match.kind === 'inbound');
      const scanned = isScanned ? await scanBefore(looked) : undefined;
      if (scanned?.refused) return { outcome: scanned.refused };
      const loops = await brake.loopsOf(looked, given);
      const isDecidedHere = given.some(({ match }) => match.choices || match.fate);
      const { routed, verdicts, scan } = isDecidedHere
        ? await contentRouter.route(looked, given, { scan: scanned?.scan, loops })
        : { routed: given, scan: scanned?.scan };
      if (routed.length === 0 && given.length > 0) return { outcome: 'unrouted' };
      const isOrdered = routed.some(({ match }) => match.order);
      const deliveries = toDeliveries(messageId, routed, size, {
        held: settings.holdLoops ? loops : [],
        sequencing: isOrdered ? await sequencingOf(body, arrival.envelope.mailFrom) : undefined,
      });
      const message = { id: messageId, envelope: withFindings(arrival.envelope, routed, loops), trace, body };
      const outcome = await spool.accept({ ...message, receivedAt, verdicts, scan }, deliveries);
      if (outcome !== 'accepted') return { outcome };
      (arrival.protocol === 'HTTP' ? taken.api : taken.smtp).add();
      sizes.observe(size);
      if (verdicts) {
        countVerdicts(verdicts);
        const { mailFrom: sender } = arrival.envelope;
        for (const { id, fate } of deliveries)
          if (fate) notes.note({ what: 'parsed', id, sender, summary: null, verdicts });
      }
      await pacing.delay(deliveries.filter(({ fate }) => !fate));
      return { outcome, messageId, ...(isDecidedHere && { routed }) };
    },
  });
}

/** Adds the data of addresses, patterns and routes to the envelope, which is stored with the message. */
function withFindings(envelope: Envelope, routed: readonly RoutedRecipient[], found: readonly string[]): Envelope {
  const replyData = byRecipient(routed, (match) => match.replyData);
  const captures = byRecipient(routed, (match) => match.captures);
  const tags = byRecipient(routed, (match) => match.tags);
  const loops = found.length > 0 ? found : undefined;
  if (!replyData && !captures && !tags && !loops) return envelope;
  return {
    ...envelope,
    ...(replyData && { replyData }),
    ...(captures && { captures }),
    ...(tags && { tags }),
    ...(loops && { loops }),
  };
}

function byRecipient<T>(
  routed: readonly RoutedRecipient[],
  of: (match: Match) => T | undefined,
): Readonly<Record<string, T>> | undefined {
  const found = routed.flatMap(({ recipient, match }) => {
    const value = of(match);
    return value === undefined ? [] : [[recipient, value] as const];
  });
  return found.length === 0 ? undefined : Object.fromEntries(found);
}

interface Facts {
  /** The recipients whose mail is held as part of a loop. */
  readonly held: readonly string[];
  readonly sequencing: Sequencing | undefined;
}

/** Returns one delivery per id: a recipient that the client names twice has the same id. */
function toDeliveries(
  messageId: string,
  routed: readonly RoutedRecipient[],
  size: number,
  { held, sequencing }: Facts,
): Delivery[] {
  const byId = new Map<string, Delivery>();
  for (const { recipient, match } of routed) {
    const { kind, task, account, pattern, also = [], order, fate } = match;
    const isHeld = !fate && kind === 'inbound' && held.includes(recipient);
    for (const { routeId, url } of fate ? [match] : [match, ...also]) {
      const id = deliveryId(messageId, routeId, recipient);
      const ended = isHeld ? HELD_LOOP : fate && { fate: { state: fate, note: `${STATES[fate].byRoute} ${routeId}` } };
      const sequence = sequencing?.(order, routeId);
      const turn = sequence !== undefined && { sequence };
      byId.set(id, { id, kind, task, account, pattern, routeId, url, messageId, recipient, size, ...ended, ...turn });
    }
  }
  return [...byId.values()];
}

const HELD_LOOP = { fate: { state: 'held', note: 'held as part of a loop (inbound.loop_messages)' } } as const;
