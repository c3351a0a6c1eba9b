import { toReverseName } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import { type Check, type CheckContext, type Finding, isLocal, ok, skipped, warning } from './finding.ts';
import { reverse } from './names.ts';
import { publicAddresses } from './published.ts';

/** The public addresses of this host and their reverse DNS, also before its name is in the DNS. */
export async function* hostAddresses(
  addresses: readonly string[],
  { settings: { hostname }, resolver }: Pick<CheckContext, 'settings' | 'resolver'>,
): AsyncGenerator<Finding> {
  if (addresses.length === 0)
    return yield warning(
      'addresses',
      'this machine has no public address',
      `If a router forwards port 25 to it, pass the public address of ${hostname} with --address.`,
    );
  yield ok('addresses', addresses.join(', '));
  yield* await Promise.all(addresses.map((address) => reverse(address, hostname, resolver)));
}

/** Lists of addresses that send unwanted mail; large receivers refuse mail from those on them. */
const BLOCK_LISTS = ['zen.spamhaus.org', 'bl.spamcop.net'];
/** Every list has this address, so that its use can be tested (RFC 5782 section 5). */
const ALWAYS_LISTED = '127.0.0.2';
/** The answers that mean a listing. Others do not: zen.spamhaus.org refuses a resolver with 127.255.255.254. */
const LISTED = /^127\.0\.\d+\.\d+$/;

/** The addresses of this host are not on block lists. */
export const blockLists: Check = {
  name: 'block lists',
  async *run(world) {
    const check = 'block lists';
    const { settings, resolver } = world;
    if (isLocal(world)) return yield skipped(check, 'every listener is on loopback');
    if (settings.outbound.relay !== '') return yield skipped(check, 'a relay sends all mail');
    yield* await blockedAddresses(await publicAddresses(resolver, settings.hostname), resolver);
  },
};

/** Looks for addresses on the block lists that answer this resolver. */
export async function* blockedAddresses(addresses: readonly string[], resolver: Resolver): AsyncGenerator<Finding> {
  const check = 'block lists';
  if (addresses.length === 0) return yield skipped(check, 'no public address');
  const answers = await Promise.all(BLOCK_LISTS.map((list) => isOn(ALWAYS_LISTED, list, resolver)));
  const lists = BLOCK_LISTS.filter((_, at) => answers[at] === true);
  if (lists.length === 0) return yield skipped(check, `${BLOCK_LISTS.join(' and ')} do not answer this resolver`);
  const pairs = addresses.flatMap((address) => lists.map((list) => ({ address, list })));
  const found = await Promise.all(pairs.map(({ address, list }) => isOn(address, list, resolver)));
  const listed = pairs.filter((_, at) => found[at] === true);
  if (listed.length === 0) return yield ok(check, `no address is on ${lists.join(' or ')}`);
  yield* listed.map(({ address, list }) =>
    warning(
      `block list ${list}`,
      `lists ${address}`,
      `Many servers refuse mail from listed addresses. Ask ${list} to remove it, or your provider for another address.`,
    ),
  );
}

/** Whether a list has an address; undefined if it does not answer. */
async function isOn(address: string, list: string, resolver: Resolver): Promise<boolean | undefined> {
  const name = toReverseName(address)?.replace(/\.(?:in-addr|ip6)\.arpa$/, '');
  const answer = await resolver.resolve(`${name}.${list}`, 'A');
  if (answer.kind === 'failure') return undefined;
  return answer.kind === 'records' && answer.records.some((record) => LISTED.test(record));
}
