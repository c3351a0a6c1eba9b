import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { TextDecoder } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { isReachable, type Network } from '../base/networks.ts';
import type { Resolver } from '../dns/types.ts';
import type { FetchPolicy } from './mta-sts.ts';

export interface PolicyFetchSettings {
  readonly allowed: readonly Network[];
  /** 443. */
  readonly port: number;
}

/** For everything (RFC 8461 section 3.3 suggests a minute, which a message would wait for). */
const DEADLINE_MS = 10_000;
const MOST_BYTES = 64 * 1024;

/** Fetches policies over HTTPS, from an address that was checked: who asks for one chose the name. No redirects (RFC 8461 section 3.3). */
export function createPolicyFetch(
  { allowed, port }: PolicyFetchSettings,
  { resolver, clock }: { readonly resolver: Resolver; readonly clock: Clock },
): FetchPolicy {
  async function addressOf(host: string): Promise<string> {
    const answer = await resolver.addresses(host);
    if (answer.kind !== 'records') throw new Error(`${host} has no address`);
    if (!answer.records.every((address) => isReachable(address, allowed)))
      throw new Error(`${host} has forbidden addresses`);
    return answer.records[0] ?? '';
  }

  return async (domain) => {
    const host = `mta-sts.${domain}`;
    const late = new AbortController();
    const cancel = clock.after(DEADLINE_MS, () => late.abort());
    try {
      const address = await addressOf(host);
      return await get({ address, host, port }, late.signal);
    } finally {
      cancel();
    }
  };
}

interface Place {
  readonly address: string;
  readonly host: string;
  readonly port: number;
}

function get({ address, host, port }: Place, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { host: port === 443 ? host : `${host}:${port}` };
    // `servername` is what the certificate is held against; the address was checked and is what we connect to.
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
    if (size > MOST_BYTES) throw new Error('the policy is too long');
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}
