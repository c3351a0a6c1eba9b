import type { Service } from '../base/service.ts';
import type { Envelope } from '../mail/addresses/envelope.ts';
import type { Scan } from '../mail/scan.ts';
import type { AcceptOutcome, Body, Delivery, NewMessage, Spool } from '../queue/delivery.ts';
import type { RouteState } from '../queue/states.ts';
import type { createAcceptance } from './accept.ts';
import type { RouteChoice } from './decision.ts';
import type { PostStyle } from './formats.ts';
import type { Order } from './order.ts';
import type { createReturnAddresses } from './return-addresses.ts';
import type { createRouting } from './routing.ts';

/** The route or own mailbox that an address matched, as recorded in each resulting delivery. */
export interface Match extends Pick<Delivery, 'kind' | 'task' | 'account' | 'routeId' | 'pattern' | 'url'> {
  /** The data sealed into a reply address; recorded in the envelope. */
  readonly replyData?: string | undefined;
  /** The text that each name in the pattern matched, if it has any; recorded in the envelope. */
  readonly captures?: Readonly<Record<string, string>> | undefined;
  /** Tags that routes added to the message; recorded in the envelope. */
  readonly tags?: readonly string[] | undefined;
  /** Further URLs of the route, each with a delivery of its own. */
  readonly also?: readonly Pick<Delivery, 'routeId' | 'url'>[] | undefined;
  /** Set if the route posts its mail in order. */
  readonly order?: Order | undefined;
  /** Set if the route does not post its mail. */
  readonly fate?: RouteState | undefined;
  /** The candidate routes, if the content of the message decides; the match itself is that of the first one. */
  readonly choices?: readonly RouteChoice[] | undefined;
  /** Whether the message may be refused for its content; then it must have no other recipient. */
  readonly refusable?: boolean | undefined;
}

/**
 * matched · no-route: our domain, but no route for the mailbox, or a reply address that is not ours (550 5.1.1) ·
 * expired: an expired reply address of ours (550 5.7.1) · rejected: by a route, before the message is read
 * (550 5.7.1) · not-ours (550 5.7.1) · unknown: not in memory, and the store is unavailable (451) · too-new: a newer
 * version wrote a route that it matches, or the domain (451).
 */
export type Lookup =
  | { readonly kind: 'matched'; readonly match: Match }
  | { readonly kind: 'no-route' | 'expired' | 'rejected' | 'not-ours' | 'unknown' | 'too-new' };

/** The URL of a route, how its messages are posted, and how many may share a POST. */
export interface RouteTarget extends PostStyle {
  readonly url: string;
  readonly batchEvents: number;
  /** For Basic authentication; null: none. */
  readonly password: string | null;
}

/** Finds the route of an address in memory, which is refreshed from the store. */
export type Routing = Omit<ReturnType<typeof createRouting>, keyof Service>;

/** Finds the mailboxes that receive returned mail, in memory. */
export type ReturnAddresses = Omit<ReturnType<typeof createReturnAddresses>, keyof Service>;

export interface RoutedRecipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  readonly match: Match;
}

/** How the message arrived, for our Received field. */
export interface Arrival {
  readonly envelope: Envelope;
  /** "ESMTP", "ESMTPS", "UTF8SMTPS" (RFC 3848, RFC 6531), or "HTTP" for send-raw. */
  readonly protocol: string;
}

export type AcceptResult =
  | {
      readonly outcome: 'accepted';
      readonly messageId: string;
      /** The recipients that get it, if the content decided. */
      readonly routed?: readonly RoutedRecipient[] | undefined;
    }
  | { readonly outcome: 'full' | 'fault' | RefusalReason };

/**
 * unscanned: a scanner is unavailable, so the client must retry · unwanted: a scanner refused the message · unrouted: a
 * route refused it, or none matches · uncopied: no second copy could be made, so the client must retry.
 */
type RefusalReason = 'unscanned' | 'unwanted' | 'unrouted' | 'uncopied';

/** A message before acceptance, for evaluating conditions. */
export interface CandidateMessage extends Pick<Arrival, 'envelope'> {
  readonly id: string;
  readonly trace: string;
  readonly recipients: readonly string[];
  readonly body: Body;
}

/** Scans a message before it is accepted. */
export type PreAcceptanceScan = (
  message: CandidateMessage,
) => Promise<
  { readonly scan: Scan; readonly refused?: undefined } | { readonly scan?: undefined; readonly refused: RefusalReason }
>;

/** The queue as acceptance needs it. `uncopied`: see `RefusalReason`. */
export interface AcceptingQueue extends Pick<Spool, 'body'> {
  accept(message: NewMessage, deliveries: readonly Delivery[]): Promise<AcceptOutcome | 'uncopied'>;
}

/** Writes inbound messages to the spool, for SMTP and for send-raw. */
export type Acceptance = ReturnType<typeof createAcceptance>;
