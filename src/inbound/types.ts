import type { Envelope } from '../mail/envelope.ts';
import type { Body, BodyWriter, Delivery } from '../queue/delivery.ts';

/** What an address hit, a route or a mailbox of ours: what each delivery that comes of it says. */
export type Match = Pick<Delivery, 'kind' | 'task' | 'account' | 'routeId' | 'pattern' | 'url'>;

/**
 * matched · no-route: our domain, but no route for the mailbox (550 5.1.1) · not-ours (550 5.7.1) · unknown: the store
 * is away and we never saw it (451).
 */
export type Lookup =
  | { readonly kind: 'matched'; readonly match: Match }
  | { readonly kind: 'no-route' | 'not-ours' | 'unknown' };

/** Which route an address hits; answered from memory, kept fresh from the store. */
export interface Routing {
  /** `domain` in any case, as U-label or A-label; `mailbox` is the local part without quotes. */
  lookup(mailbox: string, domain: string): Lookup;
  /** Where a route of the domain leads to; undefined when there is none of that id, or the table was never read. */
  urlOf(routeId: string, domain: string): string | undefined;
  /** The account that an inbound domain belongs to, as far as the table knows. */
  ownerOf(domain: string): string | undefined;
  /** A domain or its routes changed: tells other hosts by the revision, and holds here from now on. */
  changed(domain: string): Promise<void>;
  /** Whether the table was ever read. */
  ready(): boolean;
}

/** Which mailboxes there are that mail comes back to; answered from memory. */
export interface ReturnAddresses {
  /**
   * `matched` with the kind `return`, `no-route` for a mailbox that we did not make; undefined: another domain, and no
   * mailbox of ours.
   */
  lookup(mailbox: string, domain: string): Lookup | undefined;
}

export interface RoutedRecipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  readonly match: Match;
}

/** Where the message came in, for our Received line. */
export interface Arrival {
  readonly envelope: Envelope;
  /** "ESMTP", "ESMTPS", "UTF8SMTPS" (RFC 3848, RFC 6531), or "HTTP" for send-raw. */
  readonly protocol: string;
}

export type AcceptResult =
  | { readonly outcome: 'accepted'; readonly messageId: string }
  | { readonly outcome: 'full' | 'fault' };

/** The only way onto the spool, for SMTP and for send-raw. */
export interface Acceptance {
  /** A new message: its id and the place its bytes go to. */
  begin(): { readonly messageId: string; readonly body: BodyWriter };
  /** Answers after the sync, and later when more comes in than goes out (pacing.ts). */
  accept(messageId: string, arrival: Arrival, routed: readonly RoutedRecipient[], body: Body): Promise<AcceptResult>;
}

/** The keys that sign posts to an endpoint, the present one first; two while a rotation lasts. */
export interface SigningKeys {
  /** Makes the key on first use. `undefined`: the store is away and it was never seen. */
  keysFor(account: string, url: string): Promise<readonly string[] | undefined>;
  /** A new key; the old one signs too for 24 hours. Answers the new one. */
  rotate(account: string, url: string): Promise<string>;
  /** What is posted to one URL goes to another from now on: the other gets the key, unless it has one of its own. */
  carryOver(account: string, from: string, to: string): Promise<void>;
}
