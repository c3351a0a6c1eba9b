import { type Bytes, readAll } from '../base/bytes.ts';
import { HOUR_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Tools } from '../base/tools.ts';
import type { Message, Spool } from '../queue/delivery.ts';
import {
  type Attempted,
  type DeliveryOutcome,
  type EndpointStatus,
  notSent,
  type Prepared,
  type Road,
  sameFor,
} from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/waiting.ts';
import {
  type AttemptResult,
  type MailAttempt,
  settle,
  settleMail,
  settleUnattempted,
  summaryOf,
} from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { ReturnOutcome, Returns } from './returns.ts';

// The road of the kind `return`: feedback is processed here, mail to the postmaster is forwarded to the operator, and
// reports go to the senders who requested them.

interface ReturnRoadSettings extends Pick<Road, 'concurrency' | 'concurrencyPerEndpoint' | 'concurrencyAtStart'> {
  /** How long delivery is attempted; after that it is a dead letter, readable as long as those are kept. */
  readonly retryHours: number;
  /** `smtp.postmaster`; empty: mail to the postmaster stays on the queue. */
  readonly postmaster: string;
}

/** Sends a message unchanged, with the null reverse-path. Never throws. */
export type SendOwn = (mail: { readonly bytes: Uint8Array; readonly recipient: string }) => Promise<MailAttempt>;

interface ReturnRoadDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly spool: Pick<Spool, 'message'>;
  readonly returns: Returns;
  readonly sendOwn: SendOwn;
  readonly time: RunningTime;
}

interface Found {
  readonly message: Message;
  readonly body: Bytes;
}

/** A report may arrive just before the row of its message, or much earlier if the store was unavailable. */
const SHORTEST_GAP_MS = 1000;
const LONGEST_GAP_MS = 60_000;
const gapFor = (ageMs: number) => Math.min(Math.max(ageMs, SHORTEST_GAP_MS), LONGEST_GAP_MS);
/** How often mail without a destination is checked again; after a restart with another setting, at once. */
const LOOK_MS = HOUR_MS;

export function createReturnRoad(settings: ReturnRoadSettings, deps: ReturnRoadDeps): Road {
  const { spool, returns, clock, log, time } = deps;
  const { retryHours, postmaster, ...concurrency } = settings;
  const limit = retryHours * HOUR_MS;
  const budgetOf = ({ budgetFrom }: Waiting) => ({ age: time.age(budgetFrom), limit, mayEnd: time.sure() });

  async function prepare(all: Attempted): Promise<Prepared> {
    const [waiting] = all;
    const { delivery } = waiting;
    const found = await spool.message(delivery.messageId, delivery.id).catch((error: unknown) => {
      // It was damaged on the disk, and the store may have a copy.
      if (error instanceof StoreAway) return 'store away' as const;
      throw error;
    });
    if (found === 'store away') return notSent(all, { kind: 'put off' });
    if (!found) return notSent(all, ended(waiting, 'dropped'));
    const { task } = delivery;
    if (task === 'forward' && postmaster === '') return notSent(all, keep(waiting, found.message));
    const send = (endpoint: EndpointStatus): Promise<DeliveryOutcome> => {
      if (task === 'report') return forward(waiting, found, delivery.recipient, endpoint);
      return task === 'forward' ? forward(waiting, found, postmaster, endpoint) : take(waiting, found, endpoint);
    };
    return {
      outcomes: new Map(),
      shipment: { deliveries: all, send: async (endpoint) => sameFor(all, await send(endpoint)) },
    };
  }

  /** Processes feedback. */
  async function take(waiting: Waiting, found: Found, endpoint: EndpointStatus): Promise<DeliveryOutcome> {
    const began = clock.monotonic();
    const handled = await read(waiting, found);
    if (handled === undefined) return { kind: 'put off' };
    if (handled !== 'fault' && handled.kind === 'later')
      return { kind: 'put off', at: clock.now() + gapFor(clock.now() - found.message.receivedAt) };
    return toOutcome(waiting, endpoint, handled, Math.round(clock.monotonic() - began));
  }

  /** Undefined: the store is unavailable. */
  async function read({ delivery }: Waiting, { message, body }: Found): Promise<ReturnOutcome | 'fault' | undefined> {
    try {
      return await returns.handle(delivery, message, body, clock.now());
    } catch (error) {
      if (error instanceof StoreAway) return undefined;
      log.error('delivery.fault', { delivery: delivery.id, message: delivery.messageId, error });
      return 'fault';
    }
  }

  /** Recorded in the history like a receiver's response; retried like any delivery if the fault is ours. */
  function toOutcome(
    waiting: Waiting,
    endpoint: EndpointStatus,
    handled: ReturnOutcome | 'fault',
    durationMs: number,
  ): DeliveryOutcome {
    const { delivery, attempts, parked } = waiting;
    const done = handled !== 'fault' && handled.kind === 'done';
    const result: AttemptResult = {
      kind: 'answered',
      status: done ? 200 : 500,
      retryAfter: null,
      answer: done ? handled.words : 'internal error',
      durationMs,
    };
    const settled = settle({
      delivery: { id: delivery.id, attempts, parked },
      result,
      now: clock.now(),
      jitter: deps.ids.jitter(),
      budget: budgetOf(waiting),
      othersPass: endpoint.othersPass(),
    });
    return { kind: 'settled', settled, result, isLogged: done };
  }

  /**
   * Forwards a message byte for byte after our Received line, with the null reverse-path (RFC 5321 section 4.5.5): SPF
   * then checks our host instead of the sender's domain, and a failure does not bounce.
   */
  async function forward(
    waiting: Waiting,
    { message, body }: Found,
    recipient: string,
    endpoint: EndpointStatus,
  ): Promise<DeliveryOutcome> {
    const raw = await readAll(body);
    const attempt = await deps.sendOwn({ bytes: Buffer.concat([Buffer.from(message.trace), raw]), recipient });
    if (endpoint.abandoned() && attempt.kind === 'unanswered') return { kind: 'turned back' };
    const { delivery, attempts } = waiting;
    const settled = settleMail({
      delivery: { id: delivery.id, attempts },
      attempt,
      now: clock.now(),
      jitter: deps.ids.jitter(),
      budget: budgetOf(waiting),
    });
    return { kind: 'settled', settled, result: summaryOf(attempt) };
  }

  /** Keeps it on the queue, where `postern queue` shows it; logged once. */
  function keep(waiting: Waiting, { id, envelope }: Message): DeliveryOutcome {
    const { age, mayEnd } = budgetOf(waiting);
    if (mayEnd && age >= limit) return ended(waiting, 'dead');
    if (age < LOOK_MS) {
      log.warn('postmaster.kept', {
        delivery: waiting.delivery.id,
        message: id,
        sender: envelope.mailFrom,
        recipient: waiting.delivery.recipient,
        note: 'smtp.postmaster is not set',
      });
    }
    return { kind: 'put off', at: clock.now() + LOOK_MS };
  }

  function ended({ delivery, parked }: Waiting, state: 'dropped' | 'dead'): DeliveryOutcome {
    return { kind: 'gone', settlement: settleUnattempted(delivery.id, state, parked, clock.now()) };
  }

  return frozen({
    ...concurrency,
    // Mail servers are slow on purpose: greylisting, tarpits, slow filters.
    heedsLatency: false,
    limit,
    timed: false,
    // A report refused by its sender's server is like any bounce.
    isAlarming: ({ task }) => task !== 'report',
    prepare,
    expire: async (waiting) => ended(waiting, 'dead'),
  });
}
