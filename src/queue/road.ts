import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, DeliveryKind, Message, Settlement } from './delivery.ts';
import type { Waiting } from './schedule/lane.ts';
import type { AttemptSummary, Settled } from './settle.ts';

/**
 * A road is all that the engine knows of a kind of delivery: webhooks/road.ts takes messages and events to webhooks,
 * sending/road.ts mail to its recipients' servers, returns/road.ts reads and forwards what comes back. The composition
 * hands in one for each kind.
 */
export interface Road {
  /** Attempts on their way over this road at one time. */
  readonly concurrency: number;
  /** The most to one endpoint, and with how many it begins. In between they follow what it takes (schedule/places.ts). */
  readonly concurrencyPerEndpoint: number;
  readonly concurrencyAtStart: number;
  /** Whether slow answers are a sign of load. */
  readonly heedsLatency: boolean;
  /** After how many milliseconds a delivery is given up. */
  readonly limit: number;
  /**
   * Until it is first attempted, the time of a delivery is somebody's wish and no backoff of ours: no probe takes it
   * earlier.
   */
  readonly timed: boolean;
  /** Whether a delivery that failed is for somebody to look after; else it is all in a day's work. */
  isAlarming(delivery: Delivery): boolean;
  /**
   * One attempt: makes it ready, carries it once `gate` lets it in, and settles it. What it throws puts the delivery
   * off.
   */
  attempt(waiting: Waiting, gate: Gate, engine: Engine): Promise<Carried>;
  /** Set where several deliveries to an endpoint may share an attempt. */
  readonly sharing?: Sharing;
  /** Ends a delivery whose time was over while its endpoint was away. */
  expire(waiting: Waiting, engine: Engine): Promise<Carried>;
  /** Where the deliveries are that are being made ready, by their ids: those of which the road can tell. */
  readonly steps?: () => Promise<Steps>;
}

/** How far a delivery is that is being made ready; `question`: what the DNS is asked, as `TXT example.org`. */
export interface Step {
  readonly at: 'verdicts' | 'parsing';
  readonly question: string | null;
}

export type Steps = ReadonlyMap<string, Step>;

/** How a road takes several deliveries in one attempt. Nothing waits for it: they are those that are due anyway. */
export interface Sharing {
  /** Who may go along with a delivery that is about to be attempted; undefined: it goes alone. */
  with(first: Waiting): Company | undefined;
  /**
   * One attempt for all of them, each settled for itself. Answers what came of each, in their order. What it throws
   * turns all of them back, each to go alone.
   */
  attempt(all: readonly Waiting[], gate: Gate, engine: Engine): Promise<readonly Carried[]>;
}

/** Who goes along with a delivery: at most so many, of those that `takes` is asked about in the order they wait in. */
export interface Company {
  readonly most: number;
  takes(next: Waiting): boolean;
}

/**
 * The road of each kind. One that takes several kinds stands there several times. Kinds of different roads never go to
 * one URL of an account: its places are those of the kind that it got first.
 */
export type Roads = Readonly<Record<DeliveryKind, Road>>;

/** What the endpoint has to say while a delivery is on its way to it. */
export interface Gate {
  /** Waits for a place among those in flight. False: not now, the endpoint was found to be away meanwhile. */
  enter(): boolean | Promise<boolean>;
  /**
   * Hears of the result at once; the place is free from then on. Of `deliveries` that shared the attempt, `settled` is
   * what it means for the first: the endpoint learns from it once.
   */
  leave(result: AttemptSummary, settled: Settled, deliveries?: number): void;
  /** Whether other deliveries passed since this one last failed. */
  othersPass(): boolean;
}

/** What the engine does for its roads. */
export interface Engine {
  /** Writes what came of a delivery, with verdicts that were just taken, however long the queue takes to be able to. */
  settle(delivery: Delivery, settlement: Settlement, fresh?: Verdicts): Promise<void>;
  /**
   * True once those in flight had their time to finish: connections are cut from then on, which says nothing of the
   * endpoint.
   */
  abandoned(): boolean;
}

/** What came of taking a delivery up. */
export type Carried =
  /** It was attempted. */
  | { readonly kind: 'settled'; readonly settled: Settled; readonly result: AttemptSummary }
  /**
   * Nothing was attempted, for a reason of ours: until this wall time, or for a while when none is said. `moved`: its
   * time begins then, because that is when it is wanted.
   */
  | { readonly kind: 'put off'; readonly at?: number; readonly moved?: boolean }
  /** No longer on the queue. */
  | { readonly kind: 'gone' }
  /** Nothing was attempted, because the endpoint is away; or it is to be attempted `alone`. */
  | { readonly kind: 'turned back'; readonly alone?: boolean };

/** What became of a message for one recipient. relayed: another server took it, which promised nothing. */
export type Fate = 'delivered' | 'relayed' | 'failed';

/** Tells senders what became of their messages, as far as they asked for it (RFC 3461). */
export interface SenderReports {
  /**
   * Puts a report onto the queue when this is something that was asked for. `diag`: what a server said. Never throws.
   */
  tell(message: Message, delivery: Pick<Delivery, 'id' | 'recipient'>, fate: Fate, diag: string): Promise<void>;
}
