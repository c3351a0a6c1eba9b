import type { Clock } from '../base/clock.ts';
import type { Resolver } from '../dns/types.ts';
import { type Policy, parsePolicy, parsePolicyId } from './mta-sts-policy.ts';

/** The MTA-STS policies of domains (RFC 8461), remembered as long as they ask for. */
export interface Policies {
  /** The policy that holds for mail to a domain (A-labels); undefined: none. Never throws. */
  of(domain: string): Promise<Policy | undefined>;
}

/** The text at `https://mta-sts.<domain>/.well-known/mta-sts.txt`; throws when it cannot be had. */
export type FetchPolicy = (domain: string) => Promise<string>;

interface Known {
  readonly id: string;
  readonly policy: Policy;
  readonly until: number;
}

const MOST_KNOWN = 10_000;
/** After a policy could not be fetched (RFC 8461 section 3.3). */
const PAUSE_MS = 300_000;
/** A year (RFC 8461 section 3.2). */
const LONGEST_S = 31_557_600;

export function createPolicies({
  resolver,
  clock,
  fetchPolicy,
}: {
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly fetchPolicy: FetchPolicy;
}): Policies {
  const known = new Map<string, Known>();
  const paused = new Map<string, number>();
  const asked = new Map<string, Promise<Policy | undefined>>();

  async function find(domain: string): Promise<Policy | undefined> {
    const now = clock.monotonic();
    const found = known.get(domain);
    const current = found && now < found.until ? found : undefined;
    const answer = await resolver.resolve(`_mta-sts.${domain}`, 'TXT');
    const id = answer.kind === 'records' ? parsePolicyId(answer.records) : undefined;
    // A policy holds to its end, whatever became of its record: else whoever can hide the record could switch it off.
    if (id === undefined || id === current?.id || now < (paused.get(domain) ?? 0)) return current?.policy;
    return (await refresh(domain, id)) ?? current?.policy;
  }

  async function refresh(domain: string, id: string): Promise<Policy | undefined> {
    const text = await fetchPolicy(domain).catch(() => undefined);
    const policy = text === undefined ? undefined : parsePolicy(text);
    if (!policy) {
      remember(paused, domain, clock.monotonic() + PAUSE_MS);
      return undefined;
    }
    remember(known, domain, { id, policy, until: clock.monotonic() + Math.min(policy.maxAgeS, LONGEST_S) * 1000 });
    return policy;
  }

  return Object.freeze({
    of(domain: string) {
      const running = asked.get(domain);
      if (running) return running;
      const next = find(domain).finally(() => asked.delete(domain));
      asked.set(domain, next);
      return next;
    },
  });
}

/** The oldest gives way: what a stranger can make us remember must have an end. */
function remember<T>(map: Map<string, T>, name: string, value: T): void {
  map.delete(name);
  map.set(name, value);
  const [oldest] = map.keys();
  if (map.size > MOST_KNOWN && oldest !== undefined) map.delete(oldest);
}

/** Whether a policy lists a host; `*.` stands for one label (RFC 8461 section 4.1). */
export function policyAllows({ hosts }: Policy, host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '');
  const parent = name.slice(name.indexOf('.') + 1);
  return hosts.some((pattern) =>
    pattern.startsWith('*.') ? name.includes('.') && parent === pattern.slice(2) : name === pattern,
  );
}
