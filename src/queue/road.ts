import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, DeliveryKind, Message, Settlement } from './delivery.ts';
import type { Waiting } from './schedule/lane.ts';
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
   * The maximum per endpoint, and the initial limit. Between them the limit adapts to the endpoint
   * (schedule/places.ts).
   */
  readonly concurrencyPerEndpoint: number;
  readonly concurrencyAtStart: number;
  /** Whether slow responses are a sign of load. */
  readonly heedsLatency: boolean;
  /** The age in milliseconds at which a delivery is given up. */
  readonly limit: number;
  /**
   * Whether the due time before the first attempt is a chosen send time and not a backoff: then no probe sends it
   * earlier.
   */
  readonly timed: boolean;
  /**
   * Whether the consumer of this endpoint fetches its deliveries. The dispatcher then attempts none of them, and gives
   * them up at `limit`. Absent: never.
   */
  isPulled?(url: string): boolean;
  /** Whether a failed delivery needs attention (logged as an error) or is routine (a warning). */
  isAlarming(delivery: Delivery): boolean;
  /**
   * Makes one attempt: prepares it, sends it once `gate` admits it, and settles it. If it throws, the delivery is put
   * off.
   */
  attempt(waiting: Waiting, gate: Gate, engine: Engine): Promise<Carried>;
  /** Set if several deliveries to an endpoint may share an attempt. */
  readonly sharing?: Sharing;
  /** Ends a delivery that expired while its endpoint was unavailable. */
  expire(waiting: Waiting, engine: Engine): Promise<Carried>;
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

/**
 * How a road sends several deliveries in one attempt. No delivery waits for others: only those already due are shared.
 */
export interface Sharing {
  /** Returns which deliveries may join one that is about to be attempted; undefined if it goes alone. */
  with(first: Waiting): Company | undefined;
  /**
   * Makes one attempt for all of them and settles each separately. Returns the result of each, in order. If it throws,
   * all are turned back, each to be attempted alone.
   */
  attempt(all: readonly Waiting[], gate: Gate, engine: Engine): Promise<readonly Carried[]>;
}

/** Selects deliveries for a shared attempt: at most `most`; `takes` is called in queue order. */
export interface Company {
  readonly most: number;
  takes(next: Waiting): boolean;
}

/**
 * The road of each kind. A road that serves several kinds appears several times. Kinds of different roads never share
 * an account and URL: an endpoint's limits are those of its first kind.
 */
export type Roads = Readonly<Record<DeliveryKind, Road>>;

/** The endpoint's side of an attempt. */
export interface Gate {
  /** Waits for a place among the attempts in flight. False if the endpoint was found unavailable meanwhile. */
  enter(): boolean | Promise<boolean>;
  /**
   * Reports the result and frees the place immediately. If `deliveries` shared the attempt, `settled` is that of the
   * first: the endpoint learns from it once.
   */
  leave(result: AttemptSummary, settled: Settled, deliveries?: number): void;
  /** Whether other deliveries passed since this one last failed. */
  othersPass(): boolean;
  /** Whether the endpoint takes deliveries, as far as is known. */
  isUp(): boolean;
}

/** What the engine does for its roads. */
export interface Engine {
  /** Writes the result of a delivery, with verdicts just computed; retries until the queue can be written. */
  settle(delivery: Delivery, settlement: Settlement, fresh?: Verdicts): Promise<void>;
  /**
   * True once the grace period for attempts in flight is over: connections are then cut, which says nothing about the
   * endpoint.
   */
  abandoned(): boolean;
}

/** The result of taking up a delivery. */
export type Carried =
  /** It was attempted. */
  | { readonly kind: 'settled'; readonly settled: Settled; readonly result: AttemptSummary }
  /**
   * Not attempted, for a local reason: put off until the wall time `at`, or for a default delay. `moved`: its time
   * budget begins then, because that is its chosen send time.
   */
  | { readonly kind: 'put off'; readonly at?: number; readonly moved?: boolean }
  /** No longer in the queue. */
  | { readonly kind: 'gone' }
  /** Not attempted: the endpoint is unavailable, or the delivery must be attempted `alone`. */
  | { readonly kind: 'turned back'; readonly alone?: boolean };

/** The fate of a message for one recipient. relayed: another server accepted it, without promising a report. */
export type Fate = 'delivered' | 'relayed' | 'failed';

/** Reports to senders on their messages, as far as requested (RFC 3461). */
export interface SenderReports {
  /** Queues a report if one was requested for this fate. `diag`: the text of the server's reply. Never throws. */
  tell(message: Message, delivery: Pick<Delivery, 'id' | 'recipient'>, fate: Fate, diag: string): Promise<void>;
}
