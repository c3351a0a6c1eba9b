import type { Clock } from '../base/clock.ts';
import { checkA, toReverseName } from '../dns/address-checks.ts';
import type { Resolver } from '../dns/types.ts';
import { toAsciiDomain } from '../mail/address.ts';

/** What we call ourselves when we come from an address of ours. */
export type SourceNames = (source: string | undefined) => Promise<string>;

const KEPT_MS = 600_000;

/**
 * The name that the reverse DNS of an address gives, when that name has the address: receivers hold the name in EHLO against
 * both. Else our hostname.
 */
export function createSourceNames(
  hostname: string,
  { resolver, clock }: { readonly resolver: Resolver; readonly clock: Clock },
): SourceNames {
  const known = new Map<string, { readonly name: Promise<string>; readonly until: number }>(); // as many as we have addresses

  async function look(source: string): Promise<string> {
    const answer = await resolver.resolve(toReverseName(source) ?? '', 'PTR');
    const name = answer.kind === 'records' ? toAsciiDomain(answer.records[0] ?? '') : undefined;
    if (name === undefined) return hostname;
    const check = await checkA(resolver, name, source);
    return check !== 'unknown' && check.valid ? name : hostname;
  }

  return (source) => {
    if (source === undefined) return Promise.resolve(hostname);
    const found = known.get(source);
    if (found && clock.monotonic() < found.until) return found.name;
    const name = look(source).catch(() => hostname);
    known.set(source, { name, until: clock.monotonic() + KEPT_MS });
    return name;
  };
}
