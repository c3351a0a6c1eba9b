import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import { mayBeOutdated } from '../inbound/routing.ts';
import type { Acceptance, Lookup, Match } from '../inbound/types.ts';
import type { Address } from '../mail/addresses/address.ts';
import type { Admission, LocalAdmission } from './admission.ts';
import type { ListenerDeps, ListenerSettings } from './listener.ts';
import { REFUSALS, type Reply } from './replies.ts';

/**
 * What sessions for inbound mail need from the rest of the daemon. On the main thread (`createLocalBackend`) an address
 * with a known route is answered at once; on other threads the same interface sends requests over a port
 * (threads/backend-calls.ts).
 */
export interface SmtpBackend {
  readonly admission: Admission;
  /** Whether the disk has room for mail. */
  hasRoom(): boolean;
  /** Routes an address, or refuses it; `sender` is the reverse-path. */
  route(address: Address, sender: string): InboundRcptResult | Promise<InboundRcptResult>;
  readonly acceptance: Acceptance;
}

/** A match, or a refusal and the account that owns the domain. */
export type InboundRcptResult =
  | { readonly refused: Reply; readonly owner: string | undefined }
  | { readonly refused?: undefined; readonly value: Match };

// A mailbox that contains another address is an old form of relay request (RFC 5321 section 3.6.1).
const RELAY_TRICK = /[@%!]/;
/** Limit of messages kept for the postmaster until the operator sets a forwarding address: anyone can send them. */
const MAX_KEPT = 100;
const REFUSAL_OF_LOOKUP = {
  'no-route': REFUSALS.noMailbox,
  expired: REFUSALS.expiredAddress,
  rejected: REFUSALS.unrouted,
  'not-ours': REFUSALS.noRelay,
  unknown: REFUSALS.fault,
  'too-new': REFUSALS.tooNew,
} as const;

/** The `SmtpBackend` of the main thread. */
export interface LocalBackend extends SmtpBackend {
  readonly admission: LocalAdmission;
}

interface BackendParts
  extends Pick<ListenerDeps, 'routing' | 'returnAddresses' | 'postmaster' | 'acceptance' | 'spool'> {
  readonly admission: LocalAdmission;
}

export function createLocalBackend(
  settings: Pick<ListenerSettings, 'keepsPostmaster' | 'maxBacklogPerAccount'>,
  { admission, routing, returnAddresses, postmaster, acceptance, spool }: BackendParts,
): LocalBackend {
  /** Looks up return addresses, then the table of routes in memory. */
  const lookUp = ({ mailbox, domain }: Address, sender: string): Lookup =>
    postmaster.lookup(
      mailbox,
      domain,
      returnAddresses?.lookup(mailbox, domain) ?? routing.lookup(mailbox, domain, sender),
    );

  const maxWaiting = (account: string) =>
    account === POSTMASTER && settings.keepsPostmaster ? MAX_KEPT - 1 : settings.maxBacklogPerAccount;

  const refuse = (refused: Reply, domain: string): InboundRcptResult => ({ refused, owner: routing.ownerOf(domain) });

  function answer(found: Lookup, domain: string): InboundRcptResult {
    if (found.kind !== 'matched') return refuse(REFUSAL_OF_LOOKUP[found.kind], domain);
    if (!spool.hasRoom()) return refuse(REFUSALS.full, domain);
    const { account } = found.match;
    return spool.backlog(account, 'in') > maxWaiting(account) || !spool.isWithinShare(account)
      ? refuse(REFUSALS.backlog, domain)
      : { value: found.match };
  }

  return frozen({
    admission,
    hasRoom: () => spool.hasRoom(),
    acceptance,
    route(address, sender) {
      const { mailbox, domain } = address;
      if (domain.startsWith('[') || RELAY_TRICK.test(mailbox)) return refuse(REFUSALS.noRelay, domain);
      const found = lookUp(address, sender);
      if (!mayBeOutdated(found, mailbox)) return answer(found, domain);
      // Another host, or the command line, may have added it a moment ago: a 550 would be final.
      return routing.refresh().then(() => answer(lookUp(address, sender), domain));
    },
  });
}
