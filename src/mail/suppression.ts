import { DAY_MS } from '../base/clock.ts';

// The rules of the rejection list. This file is below the store (layers), so the shapes are declared again here.

/** Why an address is on the list. `custom` entries are made by hand; the others by events of messages. */
export const REJECT_REASONS = ['hard-bounce', 'soft-bounce', 'spam', 'unsub', 'custom'] as const;
export type RejectReason = (typeof REJECT_REASONS)[number];

const YEAR_MS = 365 * DAY_MS;

/** The initial term for each reason. */
const FIRST_TERM: Readonly<Record<Exclude<RejectReason, 'custom'>, number>> = {
  'soft-bounce': DAY_MS,
  'hard-bounce': 7 * DAY_MS,
  spam: YEAR_MS,
  unsub: YEAR_MS,
};
const LONGEST_TERM = YEAR_MS;
/** Event ids remembered per address to detect duplicates; more than are ever in flight together. */
const KEPT_EVENTS = 20;

/** The rules as text for the API reference. */
export const EXPIRY_RULES =
  'A soft bounce expires after 1 day, a hard bounce after 7 days, a spam complaint and an unsubscribe after 1 ' +
  'year, an entry made by hand never. ' +
  'A further event doubles the term, up to 1 year.';

/** An entry of the list: why an address is on it, and until when. */
export interface Listing {
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly createdAt: Date;
  readonly lastEventAt: Date;
  /** Null: never. */
  readonly expiresAt: Date | null;
  readonly expired: boolean;
  /** Length of the last term in milliseconds; 0 if it never expires. */
  readonly termMs: number;
  readonly eventIds?: readonly string[];
  /** Whether this entry was made by hand and replaced one made by events. */
  readonly replacedEvents?: boolean;
}

/** A reason to list an address. */
export interface SuppressionCause {
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly at: Date;
  readonly eventId?: string;
}

/** Creates the entry for an address that was not listed. */
export function newListing(cause: SuppressionCause): Listing {
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
 * Updates the entry of an address that is or was listed; undefined if it does not change. Events do not replace entries
 * made by hand; entries made by hand replace those of events.
 */
export function renewedEntry(listing: Listing, cause: SuppressionCause): Listing | undefined {
  if (cause.reason === 'custom') return byHand(listing, cause);
  if (listing.reason === 'custom') return undefined;
  const known = listing.eventIds ?? [];
  if (cause.eventId !== undefined && known.includes(cause.eventId)) return undefined;
  const termMs = Math.min(LONGEST_TERM, Math.max(FIRST_TERM[cause.reason], 2 * listing.termMs));
  // A late soft bounce must not replace a complaint that is still valid.
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

function byHand(listing: Listing, cause: SuppressionCause): Listing | undefined {
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

/** Whether events contributed to an entry: removing it costs reputation, even if it was replaced by hand in between. */
export function isFromEvents({ reason, replacedEvents = false }: Pick<Listing, 'reason' | 'replacedEvents'>): boolean {
  return reason !== 'custom' || replacedEvents;
}

/** Whether the entry has expired; compared with the clock, because the stored flag is set later. */
export function isExpired({ expired, expiresAt }: Pick<Listing, 'expired' | 'expiresAt'>, now: Date): boolean {
  return expired || (expiresAt !== null && expiresAt <= now);
}

/**
 * The entry that forbids mail to an address: the first unexpired one of its entries (of the whole account, and of the
 * sending subaccount). Undefined for whitelisted addresses.
 */
export function activeEntry<L extends Pick<Listing, 'expired' | 'expiresAt'>>(
  entries: readonly L[],
  whitelisted: boolean,
  now: Date,
): L | undefined {
  return whitelisted ? undefined : entries.find((entry) => !isExpired(entry, now));
}
