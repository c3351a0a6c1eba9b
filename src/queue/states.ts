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

/** How many deliveries there are in all of the states. */
export const sumOfStates = (counts: Readonly<Record<DeliveryState, number>>): number =>
  DELIVERY_STATES.reduce((sum, state) => sum + counts[state], 0);
