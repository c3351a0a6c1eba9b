import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Acceptance, Match } from '../inbound/types.ts';
import type { Address } from '../mail/address.ts';
import type { Admission, Counting } from './admission.ts';
import type { ListenerDeps, ListenerSettings } from './listener.ts';
import { REFUSALS, type Reply } from './replies.ts';

/**
 * What sessions for inbound mail ask of the rest of the daemon. On the main thread the parts answer at once
 * (`createDesk`); on a thread of its own a session asks over a port (threads/asking.ts) and cannot tell the difference.
 */
export interface Desk {
  readonly admission: Admission;
  /** Whether the disk has room for mail. */
  hasRoom(): boolean;
  /** Where mail for an address goes, or why it is not taken. */
  route(address: Address): RoutedHere | Promise<RoutedHere>;
  readonly acceptance: Acceptance;
}

/** A match, or a refusal and the account whose mail is refused. */
export type RoutedHere =
  | { readonly refused: Reply; readonly owner: string | undefined }
  | { readonly refused?: undefined; readonly value: Match };

// A mailbox that carries another address inside is the old way to ask for relaying (RFC 5321 section 3.6.1).
const RELAY_TRICK = /[@%!]/;
/** Messages to the postmaster that wait for the operator to say where he reads them: anybody may send such. */
const MAX_KEPT = 100;
const WHY = { 'no-route': REFUSALS.noMailbox, 'not-ours': REFUSALS.noRelay, unknown: REFUSALS.fault } as const;

/** `Desk` where the parts are, which answers at once. */
export interface LocalDesk extends Desk {
  readonly admission: Counting;
  route(address: Address): RoutedHere;
}

interface DeskParts extends Pick<ListenerDeps, 'routing' | 'returnAddresses' | 'postmaster' | 'acceptance' | 'spool'> {
  readonly admission: Counting;
}

export function createDesk(
  settings: Pick<ListenerSettings, 'keepsPostmaster' | 'maxBacklogPerAccount'>,
  { admission, routing, returnAddresses, postmaster, acceptance, spool }: DeskParts,
): LocalDesk {
  const maxWaiting = (account: string) =>
    account === POSTMASTER && settings.keepsPostmaster ? MAX_KEPT - 1 : settings.maxBacklogPerAccount;

  return frozen({
    admission,
    hasRoom: () => spool.hasRoom(),
    acceptance,
    route({ mailbox, domain }): RoutedHere {
      const refuse = (refused: Reply): RoutedHere => ({ refused, owner: routing.ownerOf(domain) });
      if (domain.startsWith('[') || RELAY_TRICK.test(mailbox)) return refuse(REFUSALS.noRelay);
      const routed = returnAddresses?.lookup(mailbox, domain) ?? routing.lookup(mailbox, domain);
      const found = postmaster.lookup(mailbox, domain, routed);
      if (found.kind !== 'matched') return refuse(WHY[found.kind]);
      return spool.backlog(found.match.account, 'in') > maxWaiting(found.match.account)
        ? refuse(REFUSALS.backlog)
        : { value: found.match };
    },
  });
}
