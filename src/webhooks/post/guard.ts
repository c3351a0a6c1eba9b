import { isIP } from 'node:net';
import { frozen } from '../../base/frozen.ts';
import { allowedNetworks, bareHost, isAllowedAddress, type Network, type OpenNetworks } from '../../base/networks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { AttemptError } from '../../queue/settle.ts';

/** An endpoint that the guard allows, at these addresses only. */
interface Target {
  readonly ok: true;
  /** All addresses of the host, checked, in the order of the resolver. The connection goes to one of them. */
  readonly addresses: readonly string[];
  readonly port: number;
}

export type AddressVerdict = Target | Refusal;

/** `cause`: the details, unless they would reveal names in a network that webhooks may not reach. */
interface Refusal {
  readonly ok: false;
  readonly error: AttemptError;
  readonly cause?: string | undefined;
}

/** Decides which hosts a POST may go to. */
export type Guard = ReturnType<typeof createGuard>;

const refuse = (error: AttemptError, cause?: string): AddressVerdict => ({ ok: false, error, ...(cause && { cause }) });

/** Creates the guard that checks every connection to an endpoint. */
export function createGuard(settings: OpenNetworks, deps: { readonly resolver: Pick<Resolver, 'addresses'> }) {
  const allowed = allowedNetworks(settings);

  /** Looks up the host and checks all its addresses. The resolver caches answers for their TTL, so no cache here. */
  async function check(url: string | URL): Promise<AddressVerdict> {
    const parsed = typeof url === 'string' ? URL.parse(url) : url;
    if (!parsed) return refuse('host not found');
    const port = portOf(parsed);
    if (port === undefined) return refuse('forbidden address', 'the URL must begin with http:// or https://');
    if (!isOpen(port))
      return refuse('forbidden address', `webhooks may use port 80, 443 and those above 1023, not port ${port}`);
    // Node does not call `lookup` for IP literals, so they are checked here. new URL() has normalized them: 0x7f.1,
    // 2130706433 and full-width digits are already 127.0.0.1.
    const hostname = bareHost(parsed);
    if (isIP(hostname) !== 0) return judge([hostname], port, allowed);
    const answer = await deps.resolver.addresses(hostname.replace(/\.$/, ''));
    if (answer.kind === 'failure') return refuse('DNS failure');
    if (answer.kind !== 'records') return refuse('host not found');
    return judge(answer.records, port, allowed);
  }

  return frozen({ check });
}

/** Returns the port; undefined for schemes other than http(s). */
function portOf(url: URL): number | undefined {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return undefined;
  return url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : Number(url.port);
}

/** Below 1024 are services that a POST must not reach, such as mail servers. */
const isOpen = (port: number): boolean => port === 80 || port === 443 || port > 1023;

/** One forbidden address refuses the host, because any of its addresses might be the one connected to. */
function judge(addresses: readonly string[], port: number, allowed: readonly Network[]): AddressVerdict {
  if (addresses.length === 0) return refuse('host not found');
  if (!addresses.every((each) => isAllowedAddress(each, allowed))) return refuse('forbidden address');
  return { ok: true, addresses, port };
}
