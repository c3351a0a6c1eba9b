import { frozen } from '../base/frozen.ts';
import { toAsciiDomain } from '../mail/address.ts';
import { POSTMASTER_URL } from '../mail/return-address.ts';
import type { Lookup } from './types.ts';

interface PostmasterSettings {
  /**
   * Names of ours, which no account has, as A-labels: the host name, the return domain, other hosts that share the
   * work.
   */
  readonly names: readonly string[];
  /** Where the operator reads such mail (`smtp.postmaster`); empty: it waits on the queue. */
  readonly address: string;
}

/** Whose mail to a postmaster is. */
export interface Postmaster {
  /** `found`: what the mailbox would be without this. */
  lookup(mailbox: string, domain: string, found: Lookup): Lookup;
}

/** The account of deliveries to the postmaster. No account has this id. */
export const POSTMASTER = 'postmaster';

const TAKEN: Lookup = {
  kind: 'matched',
  match: { kind: 'return', task: 'forward', account: POSTMASTER, routeId: '', pattern: '', url: POSTMASTER_URL },
};

/**
 * A server must take mail for the postmaster of each domain that it serves (RFC 5321 section 4.5.1). At names of ours
 * that is the operator. At the domain of an account it is whoever its routes name, and the operator when they name
 * nobody. A route for one of our names, which an older version let in, counts as long as the operator has not said
 * where he reads his mail.
 */
export function createPostmaster({ names, address }: PostmasterSettings): Postmaster {
  const ours = new Set<string | undefined>(names);
  return frozen({
    lookup(mailbox, domain, found): Lookup {
      if (mailbox.toLowerCase() !== 'postmaster') return found;
      if (!ours.has(toAsciiDomain(domain))) return found.kind === 'no-route' ? TAKEN : found;
      return address === '' && (found.kind === 'matched' || found.kind === 'unknown') ? found : TAKEN;
    },
  });
}
