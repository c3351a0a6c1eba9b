import { toTimestamp } from '../base/clock.ts';
import { POSTMASTER_URL } from '../mail/addresses/return-address.ts';
import { KINDS, type QueuedDelivery } from './delivery.ts';
import { BREAKER_WORDS, type LaneView, type PreparingDelivery } from './insight.ts';
import { type EndpointMemory, readMemory } from './schedule/breaker.ts';
import { HOLDING_STATES } from './states.ts';

// Why a delivery is not delivered yet, for the API, the command line and the console.

/**
 * held: its route keeps it · behind: it waits for another of its sequence · paused, gone, down: its endpoint is ·
 * preparing: it is being prepared · scanner: it waits for a scanner · pulled: it waits for its consumer · parked,
 * backoff: it waits after a failed attempt · scheduled: for its send time · due: for its turn.
 */
export const WAIT_KINDS = [
  ...HOLDING_STATES,
  'behind',
  'paused',
  'gone',
  'down',
  'preparing',
  'scanner',
  'pulled',
  'parked',
  'backoff',
  'scheduled',
  'due',
] as const;

export interface WaitReason {
  readonly kind: (typeof WAIT_KINDS)[number];
  /** One sentence without its full stop; times are in UTC. */
  readonly text: string;
}

/** Facts besides the delivery itself. */
interface WaitFacts {
  /** Undefined if unknown, and therefore up. */
  readonly endpoint: Pick<LaneView, 'breaker' | 'since' | 'nextProbeAt' | 'hold' | 'last'> | undefined;
  /** Undefined if it is not being prepared, or if that is unknown. */
  readonly preparing: PreparingDelivery | undefined;
  /** The reason if its message still waits to be scanned. */
  readonly scanner: string | undefined;
  readonly now: number;
}

/** Undefined if it has ended, except when it is held. */
export function waitReason(delivery: QueuedDelivery, facts: WaitFacts): WaitReason | undefined {
  const { state, lastError } = delivery;
  const holding = HOLDING_STATES.find((one) => one === state);
  if (holding)
    return { kind: holding, text: `${capital(lastError ?? `${holding} by its route`)} until it is released` };
  if (state !== 'waiting') return undefined;
  return ofTurn(delivery) ?? ofEndpoint(delivery, facts) ?? ofPreparation(facts) ?? ofTime(delivery, facts);
}

function ofTurn({ behind, sequence = '' }: QueuedDelivery): WaitReason | undefined {
  if (!behind) return undefined;
  const what = sequence.startsWith('thread:') ? 'conversation' : 'sender';
  return { kind: 'behind', text: `Waits behind an earlier message of the same ${what}` };
}

function ofEndpoint(delivery: QueuedDelivery, { endpoint }: WaitFacts): WaitReason | undefined {
  if (!endpoint) return undefined;
  const { breaker, since, nextProbeAt, hold, last } = endpoint;
  const name = isWebhook(delivery) ? 'Endpoint' : 'Mail server';
  if (hold) {
    const who = hold.by === 'operator' ? 'the operator of this service' : 'the account';
    return { kind: 'paused', text: `${name} paused by ${who} since ${at(hold.since)}, until ${at(hold.until)}` };
  }
  if (breaker === 'up') return undefined;
  const probe = nextProbeAt === null ? '' : `; next probe ${at(nextProbeAt)}`;
  const from = since === null ? '' : ` since ${at(since)}`;
  if (breaker === 'gone') return { kind: 'gone', text: `${name} gone${from}: it answered 410${probe}` };
  const answer = answerOf(delivery, last?.result);
  return { kind: 'down', text: `${name} down${from}${answer && `; last answer: ${answer}`}${probe}` };
}

/** The steps before an attempt. */
export const PREPARATIONS: Readonly<Record<PreparingDelivery['waitsFor'], string>> = {
  preparing: 'reading the message and writing the POST',
  verdicts: 'checking SPF, DKIM and DMARC',
  parsing: 'parsing the message',
  connection: 'waits until fewer attempts to the endpoint are in flight',
};

function ofPreparation({ preparing, scanner }: WaitFacts): WaitReason | undefined {
  if (preparing) {
    const { waitsFor, question } = preparing;
    const dns = question === null ? '' : `, waiting for the DNS: ${question}`;
    return { kind: 'preparing', text: `Being prepared: ${PREPARATIONS[waitsFor]}${dns}` };
  }
  return scanner === undefined ? undefined : { kind: 'scanner', text: `Waiting for a scanner: ${scanner}` };
}

function ofTime(delivery: QueuedDelivery, { now }: WaitFacts): WaitReason {
  const { attempts, dueAt, budgetFrom, createdAt, parked } = delivery;
  const later = dueAt > now;
  if (isPulled(delivery))
    return {
      kind: 'pulled',
      text: later ? `Leased to its consumer, or delayed by it, until ${at(dueAt)}` : 'Waiting to be pulled',
    };
  if (attempts === 0) {
    // Nothing else shows that it has nowhere to go.
    const kept = delivery.url === POSTMASTER_URL ? ' (mail to postmaster waits until smtp.postmaster is set)' : '';
    if (!later) return { kind: 'due', text: `Due now${kept}` };
    return { kind: 'scheduled', text: `${budgetFrom > createdAt ? 'Scheduled for' : 'Due at'} ${at(dueAt)}` };
  }
  const tries = attempts === 1 ? '1 attempt' : `${attempts} attempts`;
  const answer = `last answer: ${answerOf(delivery, undefined) || 'none'}`;
  const next = later ? `next attempt ${at(dueAt)}` : 'the next attempt is due';
  if (parked)
    return {
      kind: 'parked',
      text: `Retried at long intervals, because other mail to the endpoint succeeds; ${answer}; ${next}`,
    };
  return { kind: 'backoff', text: `Retrying after ${tries}; ${answer}; ${next}` };
}

/** The saved state of an endpoint, which is all that the command line can read. */
export function endpointOf(memory: string | null, now: number): WaitFacts['endpoint'] {
  const known: EndpointMemory | undefined = readMemory(memory);
  if (!known) return undefined;
  const { phase, since, probeAt, hold, last = null } = known;
  const away = phase !== 'closed';
  const held = hold && hold.until > now ? hold : null;
  return {
    breaker: BREAKER_WORDS[phase],
    since: away ? since : null,
    nextProbeAt: away && !held ? Math.max(probeAt, now) : null,
    hold: held,
    last,
  };
}

const isWebhook = ({ kind }: QueuedDelivery): boolean => KINDS[kind].endpoint === 'webhook';

/** The URL of a route that has no host is a name for its consumer. */
const isPulled = ({ kind, url }: QueuedDelivery): boolean => kind === 'inbound' && !URL.parse(url)?.host;

type Result = NonNullable<LaneView['last']>['result'];

/** The last answer of the endpoint, or else that to the delivery. */
function answerOf(delivery: QueuedDelivery, result: Result | undefined): string {
  const status = result ? (result.kind === 'answered' ? result.status : null) : delivery.lastStatus;
  const error = result ? (result.kind === 'unanswered' ? result.error : null) : delivery.lastError;
  if (status !== null) return isWebhook(delivery) ? `HTTP ${status}` : String(status);
  return error ?? '';
}

const at = (ms: number): string => `${toTimestamp(new Date(ms))} UTC`;

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
