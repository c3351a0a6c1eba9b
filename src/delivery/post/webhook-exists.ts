import { isIP } from 'node:net';
import type { Log } from '../../base/log.ts';
import { mandrillSignature } from '../../mail/signature.ts';
import type { AttemptError, AttemptResult, PostBody, Poster } from '../types.ts';
import type { Guard, Verdict } from './guard.ts';

// What Mandrill posts when it looks whether a URL exists, signed with a key that everybody knows: consumers written for it
// recognise both.
const TEST_KEY = 'test-webhook';
const NO_EVENTS = '[]';
const BODY: PostBody = { kind: 'bytes', bytes: new TextEncoder().encode('mandrill_events=%5B%5D') };

interface UrlCheckDeps {
  readonly poster: Pick<Poster, 'head' | 'post'>;
  readonly guard: Guard;
  readonly log: Pick<Log, 'info'>;
}

/**
 * Why no webhook can be at a URL, in words for whoever named it; undefined when one can: HEAD answers 200, or one POST
 * without events is answered 2xx. An endpoint that cannot be connected to is asked once only.
 */
export function createUrlCheck({ poster, guard, log }: UrlCheckDeps): (url: string) => Promise<string | undefined> {
  return async (url) => {
    const result = await lastWord(poster, url);
    if (result === undefined || isSuccess(result)) return undefined;
    log.info('endpoint.unverified', {
      host: URL.parse(url)?.host,
      ...(result.kind === 'answered' ? { status: result.status } : { error: result.error }),
      ms: result.durationMs,
    });
    return result.kind === 'answered'
      ? `a POST without events was answered ${result.status}`
      : why(result.error, await guard.check(url));
  };
}

/**
 * What is told of a failure: where the connection went, when the guard lets it go there, for whoever named the URL sees
 * the answers from there too. Where it does not, all causes sound alike: a name that is nowhere, and one that the
 * resolver knows in a network which webhooks may not reach. Else the answer would say which internal names there are.
 */
function why(error: AttemptError, target: Verdict): string {
  if (!target.ok) {
    return target.error === 'DNS failure'
      ? 'the name servers did not answer'
      : 'the host has no address that webhooks may reach';
  }
  const places = target.addresses.map((address) => `${isIP(address) === 6 ? `[${address}]` : address}:${target.port}`);
  return `${error} at ${places.join(', ')}`;
}

/** What decides when HEAD was not answered 200. */
async function lastWord(poster: Pick<Poster, 'head' | 'post'>, url: string): Promise<AttemptResult | undefined> {
  const head = await poster.head(url);
  if (head.kind === 'answered' && head.status === 200) return undefined;
  if (head.kind === 'unanswered' && !head.connected) return head;
  return poster.post(
    url,
    {
      'content-type': 'application/x-www-form-urlencoded',
      'x-mandrill-signature': mandrillSignature(TEST_KEY, url, { mandrill_events: NO_EVENTS }),
    },
    BODY,
  );
}

function isSuccess(result: AttemptResult): boolean {
  return result.kind === 'answered' && result.status >= 200 && result.status < 300;
}
