// The rules of the rejection list. Layer rule: this file knows nothing of the store, so the shapes are named here
// again, structurally.

/** What puts an address on the list. `custom` is a person; the others are events of messages. */
type RejectReason = 'hard-bounce' | 'soft-bounce' | 'spam' | 'unsub' | 'custom';

const DAY_MS = 86_400_000;
const YEAR_MS = 365 * DAY_MS;

/** How long the first entry of each reason stands. */
const FIRST_TERM: Readonly<Record<Exclude<RejectReason, 'custom'>, number>> = {
  'soft-bounce': DAY_MS,
  'hard-bounce': 7 * DAY_MS,
  spam: YEAR_MS,
  unsub: YEAR_MS,
};
const LONGEST_TERM = YEAR_MS;
/** Events of one address that are told apart; more than are ever on their way at once. */
const KEPT_EVENTS = 20;

/** The rules in words, for the reference. */
export const EXPIRY_RULES =
  'A soft bounce expires after 1 day, a hard bounce after 7 days, a spam complaint and an unsubscribe after 1 year, an entry made by hand never. ' +
  'A further event doubles the term, up to 1 year.';

/** Why an address is on the list, and until when. */
export interface Listing {
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly createdAt: Date;
  readonly lastEventAt: Date;
  /** Null: never. */
  readonly expiresAt: Date | null;
  readonly expired: boolean;
  /** Length of the last term in milliseconds; 0 for one without end. */
  readonly termMs: number;
  readonly eventIds?: readonly string[];
  /** A person replaced an entry that events had made. */
  readonly replacedEvents?: boolean;
}

/** Something that asks for an address to be listed. */
export interface Cause {
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly at: Date;
  readonly eventId?: string;
}

/** The entry of an address that was not listed. */
export function newListing(cause: Cause): Listing {
  const termMs = cause.reason === 'custom' ? 0 : FIRST_TERM[cause.reason];
  return {
    reason: cause.reason,
    detail: cause.detail,
    sender: cause.sender,
    createdAt: cause.at,
    lastEventAt: cause.at,
    expiresAt: endOf(cause.at, termMs),
    expired: false,
    termMs,
    eventIds: cause.eventId === undefined ? [] : [cause.eventId],
  };
}

/**
 * The entry after something more happened to an address that is listed, or was until it expired; undefined when it
 * stays as it is. No event replaces what a person entered; a person replaces what events entered.
 */
export function renewed(listing: Listing, cause: Cause): Listing | undefined {
  if (cause.reason === 'custom') return byHand(listing, cause);
  if (listing.reason === 'custom') return undefined;
  const known = listing.eventIds ?? [];
  if (cause.eventId !== undefined && known.includes(cause.eventId)) return undefined;
  const termMs = Math.min(LONGEST_TERM, Math.max(FIRST_TERM[cause.reason], 2 * listing.termMs));
  // A soft bounce that was on its way must not turn a complaint that still stands into a soft bounce.
  const graver = !isExpired(listing, cause.at) && FIRST_TERM[listing.reason] > FIRST_TERM[cause.reason];
  const { reason, detail, sender } = graver ? listing : cause;
  const lastEventAt = latest(listing.lastEventAt, cause.at);
  const expiresAt = latest(endOf(lastEventAt, termMs), listing.expiresAt);
  const eventIds = (cause.eventId === undefined ? known : [...known, cause.eventId]).slice(-KEPT_EVENTS);
  return {
    reason,
    detail,
    sender,
    createdAt: listing.createdAt,
    lastEventAt,
    expiresAt,
    expired: false,
    termMs,
    eventIds,
  };
}

function byHand(listing: Listing, cause: Cause): Listing | undefined {
  if (listing.reason !== 'custom') return { ...newListing(cause), replacedEvents: true };
  if (cause.detail === null || cause.detail === listing.detail) return undefined;
  return { ...listing, detail: cause.detail, lastEventAt: cause.at };
}

function endOf(at: Date, termMs: number): Date | null {
  return termMs === 0 ? null : new Date(at.getTime() + termMs);
}

function latest<D extends Date | null>(a: D, b: Date | null): D | Date {
  return a !== null && b !== null && b > a ? b : a;
}

/** Whether events have part in an entry: to take it off costs reputation, also when a person replaced it in between. */
export function isOfEvents({ reason, replacedEvents = false }: Pick<Listing, 'reason' | 'replacedEvents'>): boolean {
  return reason !== 'custom' || replacedEvents;
}

/** Whether the entry has run out; told by the clock, because the stored flag comes later. */
export function isExpired({ expired, expiresAt }: Pick<Listing, 'expired' | 'expiresAt'>, now: Date): boolean {
  return expired || (expiresAt !== null && expiresAt <= now);
}

/**
 * Why an address must not be mailed: of the entries for it (of the whole account, and of the subaccount that sends) the
 * first that has not expired. A whitelisted address is mailed whatever its entries say.
 */
export function suppressing<L extends Pick<Listing, 'expired' | 'expiresAt'>>(
  entries: readonly L[],
  whitelisted: boolean,
  now: Date,
): L | undefined {
  return whitelisted ? undefined : entries.find((entry) => !isExpired(entry, now));
}
