import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { TextDecoder } from 'node:util';
import { createExpiringCache, createSingleFlight } from '../../base/cache.ts';
import { type Clock, withDeadline } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { isAllowedAddress, type Network } from '../../base/networks.ts';
import type { Resolver } from '../../dns/types.ts';

/** MTA-STS policies of domains (RFC 8461), cached for their max_age. */
export type Policies = ReturnType<typeof createPolicies>;

/** Fetches `https://mta-sts.<domain>/.well-known/mta-sts.txt`; throws if it cannot be fetched. */
type FetchPolicy = (domain: string) => Promise<string>;

interface CachedPolicy {
  readonly id: string;
  readonly policy: Policy;
}

const MAX_KNOWN = 10_000;
/** Before retrying a failed fetch (RFC 8461 section 3.3). */
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
}) {
  const known = createExpiringCache<CachedPolicy>({ most: MAX_KNOWN }, clock);
  const paused = createExpiringCache<true>({ most: MAX_KNOWN }, clock);
  const shared = createSingleFlight<Policy | undefined>();

  async function find(domain: string): Promise<Policy | undefined> {
    const current = known.get(domain);
    const answer = await resolver.resolve(`_mta-sts.${domain}`, 'TXT');
    const id = answer.kind === 'records' ? parsePolicyId(answer.records) : undefined;
    // A policy applies until it expires, even if its record is gone: an attacker may suppress the record to disable it.
    if (id === undefined || id === current?.id || paused.get(domain)) return current?.policy;
    return (await refresh(domain, id)) ?? current?.policy;
  }

  async function refresh(domain: string, id: string): Promise<Policy | undefined> {
    const text = await fetchPolicy(domain).catch(() => undefined);
    const policy = text === undefined ? undefined : parsePolicy(text);
    if (!policy) {
      paused.set(domain, true, PAUSE_MS);
      return undefined;
    }
    known.set(domain, { id, policy }, Math.min(policy.maxAgeS, LONGEST_S) * 1000);
    return policy;
  }

  return frozen({
    /** The policy that applies to a domain (A-labels); undefined: none. Never throws. */
    of: (domain: string): Promise<Policy | undefined> => shared(domain, () => find(domain)),
  });
}

/** Whether a policy lists a host; `*.` matches one label (RFC 8461 section 4.1). */
export function policyAllows({ hosts }: Policy, host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '');
  const parent = name.slice(name.indexOf('.') + 1);
  return hosts.some((pattern) =>
    pattern.startsWith('*.') ? name.includes('.') && parent === pattern.slice(2) : name === pattern,
  );
}

/** An MTA-STS policy (RFC 8461 section 3.2). */
interface Policy {
  readonly mode: 'enforce' | 'testing' | 'none';
  /** Names and patterns of MX hosts, lower case. */
  readonly hosts: readonly string[];
  readonly maxAgeS: number;
}

/** The id in the `_mta-sts` TXT records; undefined unless there is exactly one such record (RFC 8461 section 3.1). */
export function parsePolicyId(records: readonly string[]): string | undefined {
  const ours = records.filter((record) => /^v=STSv1[ \t]*;/.test(record));
  const [record] = ours;
  if (record === undefined || ours.length > 1) return undefined;
  return /;[ \t]*id[ \t]*=[ \t]*([A-Za-z0-9]{1,32})[ \t]*(?:;|$)/.exec(record)?.[1];
}

/** Parses a policy: `name: value` lines; of repeated names the first counts, except `mx`. Undefined if invalid. */
export function parsePolicy(text: string): Policy | undefined {
  const lines = text
    .split(/\r?\n/)
    .map((line) => /^([A-Za-z0-9][\w.-]{0,31})[ \t]*:[ \t]*(.*?)[ \t]*$/.exec(line))
    .filter((line) => line !== null);
  const valueOf = (name: string) => lines.find((line) => line[1] === name)?.[2];
  const mode = valueOf('mode');
  const age = valueOf('max_age');
  const hosts = lines
    .filter((line) => line[1] === 'mx')
    .map((line) => (line[2] ?? '').toLowerCase().replace(/\.$/, ''));
  if (valueOf('version') !== 'STSv1' || age === undefined || !/^\d{1,10}$/.test(age)) return undefined;
  if (mode !== 'enforce' && mode !== 'testing' && mode !== 'none') return undefined;
  if (mode !== 'none' && hosts.length === 0) return undefined;
  return { mode, hosts, maxAgeS: Number(age) };
}

interface PolicyFetchSettings {
  readonly allowed: readonly Network[];
  /** 443. */
  readonly port: number;
}

/** For the whole fetch (RFC 8461 section 3.3 suggests a minute, but the message would have to wait for it). */
const DEADLINE_MS = 10_000;
const MAX_BYTES = 64 * 1024;

/** Fetches policies over HTTPS from a checked address: the name is untrusted. No redirects (RFC 8461 section 3.3). */
export function createPolicyFetch(
  { allowed, port }: PolicyFetchSettings,
  { resolver, clock }: { readonly resolver: Resolver; readonly clock: Clock },
): FetchPolicy {
  async function addressOf(host: string): Promise<string> {
    const answer = await resolver.addresses(host);
    if (answer.kind !== 'records') throw new Error(`${host} has no address`);
    if (!answer.records.every((address) => isAllowedAddress(address, allowed)))
      throw new Error(`${host} has forbidden addresses`);
    return answer.records[0] ?? '';
  }

  return (domain) => {
    const host = `mta-sts.${domain}`;
    return withDeadline(clock, DEADLINE_MS, async (signal) =>
      get({ address: await addressOf(host), host, port }, signal),
    );
  };
}

interface PolicyServer {
  readonly address: string;
  readonly host: string;
  readonly port: number;
}

function get({ address, host, port }: PolicyServer, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { host: port === 443 ? host : `${host}:${port}` };
    // The certificate is checked against `servername`; the connection goes to the checked address.
    const asked = request({
      host: address,
      port,
      servername: host,
      path: '/.well-known/mta-sts.txt',
      headers,
      agent: false,
      signal,
      rejectUnauthorized: true,
    });
    asked
      .on('error', reject)
      .on('response', (response) =>
        read(response)
          .then(resolve, reject)
          .finally(() => asked.destroy()),
      )
      .end();
  });
}

async function read(response: IncomingMessage): Promise<string> {
  if (response.statusCode !== 200) throw new Error(`the policy host answered ${response.statusCode}`);
  if (!/^text\/plain[ \t]*(?:;|$)/i.test(response.headers['content-type'] ?? ''))
    throw new Error('the policy is not text/plain');
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_BYTES) throw new Error('the policy is too long');
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}
