import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { Delivery, DeliveryKind, Message, Settlement } from './delivery.ts';
import type { Waiting } from './schedule/waiting.ts';
import type { AttemptSummary, Settled } from './settle.ts';

/**
 * The interface of a kind of delivery to the engine: webhooks/road.ts delivers messages and events to webhooks,
 * sending/road.ts mail to the servers of its recipients, returns/road.ts reads and forwards returned mail. The
 * composition provides one for each kind.
 */
export interface Road {
  /** The maximum of attempts in flight over this road. */
  readonly concurrency: number;
  /**
   * The maximum per endpoint, and the initial limit; between them it adapts to the endpoint
   * (schedule/concurrency-limit.ts).
   */
  readonly concurrencyPerEndpoint: number;
  readonly concurrencyAtStart: number;
  /** Whether slow responses are a sign of load. */
  readonly heedsLatency: boolean;
  /** The age in milliseconds at which a delivery is given up. */
  readonly limit: number;
  /** Whether the due time before the first attempt is a chosen send time: then no probe sends it earlier. */
  readonly timed: boolean;
  /**
   * Whether the consumer of this endpoint fetches its deliveries. The dispatcher then attempts none of them, and gives
   * them up at `limit`. Absent: never.
   */
  isPulled?(url: string): boolean;
  /** Whether a failed delivery needs attention (logged as an error) or is routine (a warning). */
  isAlarming(delivery: Delivery): boolean;
  /**
   * Set if several deliveries to an endpoint may share an attempt. Returns the selection of those that may join the
   * first; undefined: it goes alone. No delivery waits for others: only those already due share.
   */
  shareRuleOf?(first: Waiting): ShareRule | undefined;
  /**
   * Prepares an attempt for one delivery, or for several that share it: everything that does not involve the endpoint.
   * If it throws, the delivery is put off; several are turned back, each to be attempted alone.
   */
  prepare(all: Attempted): Promise<Prepared>;
  /** Returns the outcome of a delivery that expired while its endpoint was unavailable. */
  expire(waiting: Waiting): Promise<DeliveryOutcome>;
  /** Returns the progress of deliveries that are being prepared, as far as the road knows it. */
  readonly steps?: () => Promise<Steps>;
}

/** The progress of a delivery that is being prepared. `question`: the open DNS question, as `TXT example.org`. */
export interface Step {
  readonly at: 'verdicts' | 'parsing';
  readonly question: string | null;
}

/** By the id of the delivery. */
export type Steps = ReadonlyMap<string, Step>;

/** Selects deliveries for a shared attempt: at most `most`; `accepts` is called in queue order. */
export interface ShareRule {
  readonly most: number;
  accepts(next: Waiting): boolean;
}

/**
 * The road of each kind. A road that serves several kinds appears several times. Kinds of different roads never share
 * an account and URL: an endpoint's limits are those of its first kind.
 */
export type Roads = Readonly<Record<DeliveryKind, Road>>;

/** The deliveries of an attempt. */
export type Attempted = readonly [Waiting, ...Waiting[]];

/** A prepared attempt. A delivery that is neither sent nor has an outcome must be attempted alone. */
export interface Prepared {
  /** The outcomes of the deliveries that are not sent. */
  readonly outcomes: DeliveryOutcomes;
  /** Undefined if nothing is to be sent. */
  readonly shipment?: Shipment | undefined;
}

/** Deliveries that are ready to be sent. */
export interface Shipment {
  readonly deliveries: readonly Waiting[];
  /** Sends them and returns their outcomes. Called at most once, when the endpoint's limit allows. */
  send(endpoint: EndpointStatus): Promise<DeliveryOutcomes>;
  /** Called once in the end, sent or not. */
  release?(): Promise<void>;
}

/** The endpoint's state, by which the road judges the result of an attempt. */
export interface EndpointStatus {
  /** Whether other deliveries passed since this one last failed. */
  othersPass(): boolean;
  /** Whether the endpoint accepts deliveries, as far as known. */
  isUp(): boolean;
  /** True once the grace period for attempts is over: connections are cut, which says nothing of the endpoint. */
  abandoned(): boolean;
}

/** The outcome of each delivery. */
export type DeliveryOutcomes = ReadonlyMap<Waiting, DeliveryOutcome>;

/** The outcome of a delivery. The engine writes its settlement; the breaker learns from sent deliveries. */
export type DeliveryOutcome =
  /** It was attempted. `isLogged`: the road has logged it. */
  | ({
      readonly kind: 'settled';
      readonly settled: Settled;
      readonly result: AttemptSummary;
      readonly isLogged?: boolean;
    } & Consequences)
  /**
   * Not attempted, for a local reason: put off until the wall time `at`, or for a default delay. `moved`: its time
   * budget begins then, because that is its chosen send time.
   */
  | ({ readonly kind: 'put off'; readonly at?: number; readonly moved?: boolean } & Ending)
  /** No longer in the queue, or ended by `settlement`. */
  | ({ readonly kind: 'gone' } & Ending)
  /** Not attempted: the endpoint is unavailable, or the delivery must be attempted `alone`. */
  | { readonly kind: 'turned back'; readonly alone?: boolean };

interface Consequences {
  /** Verdicts just computed, to be written with the settlement. */
  readonly fresh?: Verdicts | undefined;
  /** Called after the settlement is written, for instance to send a DSN. */
  readonly afterwards?: (() => Promise<void> | void) | undefined;
}

interface Ending extends Consequences {
  /** Undefined if nothing is to be written. */
  readonly settlement?: Settlement;
}

/** The same outcome for all deliveries of an attempt that sends nothing. */
export function notSent(all: readonly Waiting[], outcome: DeliveryOutcome): Prepared {
  return { outcomes: sameFor(all, outcome) };
}

export function sameFor(all: readonly Waiting[], outcome: DeliveryOutcome): DeliveryOutcomes {
  return new Map(all.map((waiting) => [waiting, outcome]));
}

/** The fate of a message for one recipient. relayed: another server accepted it, without promising a report. */
export type Fate = 'delivered' | 'relayed' | 'failed';

/** Reports to senders on their messages, as far as requested (RFC 3461). */
export interface SenderReports {
  /** Queues a report if one was requested for this fate. `diag`: the text of the server's reply. Never throws. */
  tell(message: Message, delivery: Pick<Delivery, 'id' | 'recipient'>, fate: Fate, diag: string): Promise<void>;
}
