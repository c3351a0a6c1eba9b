import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Acceptance, Match } from '../inbound/types.ts';
import type { Address } from '../mail/address.ts';
import type { Admission, Counting } from './admission.ts';
import type { ListenerDeps, ListenerSettings } from './listener.ts';
import { REFUSALS, type Reply } from './replies.ts';

/**
 * What sessions for inbound mail need from the rest of the daemon. On the main thread the answers are immediate
 * (`createDesk`); on other threads the same interface sends requests over a port (threads/asking.ts).
 */
export interface Desk {
  readonly admission: Admission;
  /** Whether the disk has room for mail. */
  hasRoom(): boolean;
  /** Routes an address, or refuses it; `sender` is the reverse-path. */
  route(address: Address, sender: string): RoutedHere | Promise<RoutedHere>;
  readonly acceptance: Acceptance;
}

/** A match, or a refusal and the account that owns the domain. */
export type RoutedHere =
  | { readonly refused: Reply; readonly owner: string | undefined }
  | { readonly refused?: undefined; readonly value: Match };

// A mailbox that contains another address is an old form of relay request (RFC 5321 section 3.6.1).
const RELAY_TRICK = /[@%!]/;
/** Limit of messages kept for the postmaster until the operator sets a forwarding address: anyone can send them. */
const MAX_KEPT = 100;
const WHY = {
  'no-route': REFUSALS.noMailbox,
  expired: REFUSALS.expiredAddress,
  rejected: REFUSALS.unrouted,
  'not-ours': REFUSALS.noRelay,
  unknown: REFUSALS.fault,
} as const;

/** The `Desk` of the main thread, which answers synchronously. */
export interface LocalDesk extends Desk {
  readonly admission: Counting;
  route(address: Address, sender: string): RoutedHere;
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
    route({ mailbox, domain }, sender): RoutedHere {
      const refuse = (refused: Reply): RoutedHere => ({ refused, owner: routing.ownerOf(domain) });
      if (domain.startsWith('[') || RELAY_TRICK.test(mailbox)) return refuse(REFUSALS.noRelay);
      const routed = returnAddresses?.lookup(mailbox, domain) ?? routing.lookup(mailbox, domain, sender);
      const found = postmaster.lookup(mailbox, domain, routed);
      if (found.kind !== 'matched') return refuse(WHY[found.kind]);
      if (!spool.hasRoom()) return refuse(REFUSALS.full);
      const { account } = found.match;
      return spool.backlog(account, 'in') > maxWaiting(account) || !spool.isWithinShare(account)
        ? refuse(REFUSALS.backlog)
        : { value: found.match };
    },
  });
}
