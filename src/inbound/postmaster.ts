import { frozen } from '../base/frozen.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { POSTMASTER_URL } from '../mail/addresses/return-address.ts';
import type { Lookup } from './types.ts';

interface PostmasterSettings {
  /** Our own names, which belong to no account, as A-labels: host name, return domain, other hosts of the cluster. */
  readonly names: readonly string[];
  /** The operator's address (`smtp.postmaster`); if empty, such mail is kept on the queue. */
  readonly address: string;
}

/** Decides who receives mail to postmaster. */
export type Postmaster = ReturnType<typeof createPostmaster>;

/** The account of deliveries to the postmaster. No account has this id. */
export const POSTMASTER = 'postmaster';

const TO_OPERATOR: Lookup = {
  kind: 'matched',
  match: { kind: 'return', task: 'forward', account: POSTMASTER, routeId: '', pattern: '', url: POSTMASTER_URL },
};

/**
 * A server must accept mail to the postmaster of each domain that it serves (RFC 5321 section 4.5.1). For our own names
 * it goes to the operator. For the domain of an account it follows the account's routes, or goes to the operator if
 * none matches. A route for one of our own names, which older versions allowed, is used until `smtp.postmaster` is set.
 */
export function createPostmaster({ names, address }: PostmasterSettings) {
  const ours = new Set<string | undefined>(names);
  return frozen({
    /** `found` is the lookup result without postmaster handling. */
    lookup(mailbox: string, domain: string, found: Lookup): Lookup {
      if (mailbox.toLowerCase() !== 'postmaster') return found;
      if (!ours.has(toAsciiDomain(domain))) return found.kind === 'no-route' ? TO_OPERATOR : found;
      return address === '' && ['matched', 'unknown', 'too-new'].includes(found.kind) ? found : TO_OPERATOR;
    },
  });
}
