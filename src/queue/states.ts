import { namesOf } from '../base/tables.ts';

/** The properties of a state, for the queue, the journal, the commands, the API and the console. */
interface StateFacts {
  /** A description for the reference; null: the name is enough. */
  readonly about: string | null;
  /** Final without a manual change, so it can be replayed. */
  readonly ended: boolean;
  /** Its mail can still be delivered: it can be dropped, is redirected with its route, and is listed first. */
  readonly open: boolean;
  /** How long it is kept after its end: like delivered mail, or like dead letters. */
  readonly kept: 'delivered' | 'dead' | null;
  /** Set if `postern replay` includes it only by id, or with the option of its name: the help of that option. */
  readonly replayOption: string | null;
  /** The name and text of the end of a delivery in this state in the history. */
  readonly story: { readonly name: string; readonly text: string } | null;
  /** Set if a route may end its mail so at once: the note of the delivery; the id of the route follows. */
  readonly byRoute: string | null;
}

/**
 * The states of a delivery, in the order of their codes in the queue file: a new one comes last, and `waiting` stays
 * first, since the indexes rely on it. Lists and properties of states are derived from this table; the transitions are
 * in settle.ts and disk/changes.ts.
 */
export const STATES = {
  /** Due at some time. */
  waiting: { about: null, ended: false, open: true, kept: null, replayOption: null, story: null, byRoute: null },
  delivered: {
    about: null,
    ended: true,
    open: false,
    kept: 'delivered',
    replayOption: 'also delivered messages',
    story: { name: 'delivered', text: 'Delivered' },
    byRoute: null,
  },
  /** Given up, kept for replay. */
  dead: {
    about: 'retries have ended, can be replayed',
    ended: true,
    open: true,
    kept: 'dead',
    replayOption: null,
    story: { name: 'given_up', text: 'Failed, no more retries; can be replayed while it is kept' },
    byRoute: null,
  },
  /** Ended by a person, or discarded by its route. That was intended, so it is not kept as long as dead letters. */
  dropped: {
    about: 'dropped by a person or discarded by its route, can be replayed while it is kept',
    ended: true,
    open: false,
    kept: 'delivered',
    replayOption: null,
    story: { name: 'dropped', text: 'Dropped; can be replayed while it is kept' },
    byRoute: 'discarded by route',
  },
  /** Kept by its route until it is replayed. */
  held: {
    about: 'kept by its route or by loop protection, a replay releases it',
    ended: true,
    open: true,
    kept: 'dead',
    replayOption: 'also held messages',
    story: { name: 'held', text: 'Held; a replay releases it' },
    byRoute: 'held by route',
  },
} as const satisfies Readonly<Record<string, StateFacts>>;

export type DeliveryState = keyof typeof STATES;

/** The states for which a property is true or set. */
type StatesThat<F extends keyof StateFacts> = {
  [S in DeliveryState]: (typeof STATES)[S][F] extends false | null ? never : S;
}[DeliveryState];

function statesThat<F extends keyof StateFacts>(fact: F): readonly StatesThat<F>[] {
  return DELIVERY_STATES.filter((state): state is StatesThat<F> => Boolean(STATES[state][fact]));
}

/** The states by their code in the queue file. */
export const DELIVERY_STATES = namesOf(STATES);

/** The states of deliveries that have ended: those that can be replayed. */
export const ENDED_STATES = statesThat('ended');

/** The states of deliveries that can still be delivered or dropped. */
export const OPEN_STATES = statesThat('open');

/** The ended states that a replay includes only on request. */
export const ASKED_STATES = statesThat('replayOption');

/** A state in which a route may end its mail at once. */
export type RouteState = StatesThat<'byRoute'>;

/** The note of mail that was dropped because another host has taken it over. */
export const TAKEN_OVER = 'another host has taken it over';

/** The states in which a route keeps mail for a decision. */
export const HOLDING_STATES = statesThat('byRoute').filter(
  (state): state is RouteState & OpenState => STATES[state].open,
);

type OpenState = StatesThat<'open'>;

/** The names of the ends of deliveries in the history. */
export type EndName = NonNullable<(typeof STATES)[DeliveryState]['story']>['name'];

const ENDS = ENDED_STATES.map((state) => STATES[state].story);

export const END_NAMES: readonly EndName[] = ENDS.map(({ name }) => name);

/** The text of each end in a timeline. */
export const END_TEXTS: ReadonlyMap<string, string> = new Map(ENDS.map(({ name, text }) => [name, text]));

/** The meanings of the states, for the reference. */
export const STATE_MEANINGS = DELIVERY_STATES.flatMap((state) => {
  const { about } = STATES[state];
  return about === null ? [] : [`${state}: ${about}`];
}).join('; ');

/** The ended states that are kept as long as this one. */
export const keptAs = (kept: StateFacts['kept']): readonly DeliveryState[] =>
  ENDED_STATES.filter((state) => STATES[state].kept === kept);

/** The sum of the counts of all states. */
export const sumOfStates = (counts: Readonly<Record<DeliveryState, number>>): number =>
  DELIVERY_STATES.reduce((sum, state) => sum + counts[state], 0);

/** The properties of a bulk change, and its names in the list of actions. */
interface BulkFacts {
  /** The states in which it is possible; disk/selections.ts has further conditions. */
  readonly states: readonly DeliveryState[];
  /** Its name in the list of actions when a job begins it, and when it has ended. */
  readonly started: string;
  readonly ended: string;
  /** Endpoints that are down are probed after it. */
  readonly probes: boolean;
  /** Whether an API call that names no deliveries must give a maximum. */
  readonly isLimited: boolean;
}

/** The bulk changes of deliveries. */
export const BULK_ACTIONS = {
  /** Makes waiting deliveries due now. */
  retry: { states: ['waiting'], started: 'retry started', ended: 'retried', probes: true, isLimited: false },
  /** Ends deliveries in open states. */
  drop: { states: OPEN_STATES, started: 'drop started', ended: 'dropped', probes: false, isLimited: true },
  /** Makes ended deliveries wait again. */
  replay: { states: ENDED_STATES, started: 'replay started', ended: 'replayed', probes: false, isLimited: false },
} as const satisfies Readonly<Record<string, BulkFacts>>;

export type BulkAction = keyof typeof BULK_ACTIONS;
