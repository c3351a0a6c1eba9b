import { namesOf } from '../base/tables.ts';

/** What the queue, the commands, the API and the console ask of a state. */
interface StateFacts {
  /** Nothing more happens by itself, so that it can be replayed. */
  readonly ended: boolean;
  /** Its mail has not reached anybody, and still can: it can be dropped, moves with its route, and is listed first. */
  readonly open: boolean;
}

/**
 * The states of a delivery, in the order of their codes in the queue file: a new one comes last, and `waiting` stays first,
 * since the indexes rely on it. Lists of states are derived from this table.
 */
export const STATES = {
  /** Due at some time. */
  waiting: { ended: false, open: true },
  delivered: { ended: true, open: false },
  /** Given up, kept for replay. */
  dead: { ended: true, open: true },
  /** Ended by a person, or discarded by its route. */
  dropped: { ended: true, open: false },
  /** Kept by its route until somebody replays it. */
  held: { ended: true, open: true },
} as const satisfies Readonly<Record<string, StateFacts>>;

export type DeliveryState = keyof typeof STATES;

/** The states for which one of the facts holds. */
type StatesThat<F extends keyof StateFacts> = {
  [S in DeliveryState]: (typeof STATES)[S][F] extends true ? S : never;
}[DeliveryState];

function statesThat<F extends keyof StateFacts>(fact: F): readonly StatesThat<F>[] {
  return DELIVERY_STATES.filter((state): state is StatesThat<F> => STATES[state][fact]);
}

/** The states by their code in the queue file. */
export const DELIVERY_STATES = namesOf(STATES);

/** The states of deliveries that have ended, as far as the queue is concerned: those that can be replayed. */
export const ENDED_STATES = statesThat('ended');

/** The states of deliveries that somebody may still want to have delivered, or dropped. */
export const OPEN_STATES = statesThat('open');

/** The states as prose lists them: `waiting, dead or held`. */
export const inWords = (states: readonly DeliveryState[]): string =>
  [states.slice(0, -1).join(', '), ...states.slice(-1)].filter(Boolean).join(' or ');

/** How many deliveries there are in all of the states. */
export const sumOfStates = (counts: Readonly<Record<DeliveryState, number>>): number =>
  DELIVERY_STATES.reduce((sum, state) => sum + counts[state], 0);

/** What a change of many deliveries is, and how the list of actions says it. */
interface BulkFacts {
  /** It is possible in these states; disk/queries.ts has what else must hold. */
  readonly states: readonly DeliveryState[];
  /** When a job begins it, and when it has ended. */
  readonly started: string;
  readonly ended: string;
  /** Endpoints that are down are probed after it. */
  readonly probes: boolean;
  /** A call of the API that names no deliveries must say how many it may change. */
  readonly isLimited: boolean;
}

/** What people do to many deliveries at once. */
export const BULK_ACTIONS = {
  /** Makes what waits due now. */
  retry: { states: ['waiting'], started: 'retry started', ended: 'retried', probes: true, isLimited: false },
  /** Ends what is still to be delivered. */
  drop: { states: OPEN_STATES, started: 'drop started', ended: 'dropped', probes: false, isLimited: true },
  /** Makes what has ended wait again. */
  replay: { states: ENDED_STATES, started: 'replay started', ended: 'replayed', probes: false, isLimited: false },
} as const satisfies Readonly<Record<string, BulkFacts>>;

export type BulkAction = keyof typeof BULK_ACTIONS;
