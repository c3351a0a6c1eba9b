import type { Log } from '../../base/log.ts';
import { mandrillSignature } from '../../mail/signature.ts';
import type { AttemptResult, PostBody, Poster } from '../types.ts';

// What Mandrill posts when it looks whether a URL exists, signed with a key that everybody knows: consumers written for it
// recognise both.
const TEST_KEY = 'test-webhook';
const NO_EVENTS = '[]';
const BODY: PostBody = { kind: 'bytes', bytes: new TextEncoder().encode('mandrill_events=%5B%5D') };

/**
 * Whether a webhook can be at a URL: HEAD answers 200, or one POST without events is answered 2xx. An endpoint that cannot
 * be connected to is asked once only. Why not is for the log: the answer to the call would tell strangers about our network.
 */
export function createUrlCheck({ poster, log }: { readonly poster: Pick<Poster, 'head' | 'post'>; readonly log: Pick<Log, 'info'> }): (url: string) => Promise<boolean> {
  return async (url) => {
    const result = await lastWord(poster, url);
    if (result === undefined || isSuccess(result)) return true;
    log.info('endpoint.unverified', { host: URL.parse(url)?.host, ...(result.kind === 'answered' ? { status: result.status } : { error: result.error }), ms: result.durationMs });
    return false;
  };
}

/** What decides when HEAD was not answered 200. */
async function lastWord(poster: Pick<Poster, 'head' | 'post'>, url: string): Promise<AttemptResult | undefined> {
  const head = await poster.head(url);
  if (head.kind === 'answered' && head.status === 200) return undefined;
  if (head.kind === 'unanswered' && !head.connected) return head;
  return poster.post(url, {
    'content-type': 'application/x-www-form-urlencoded',
    'x-mandrill-signature': mandrillSignature(TEST_KEY, url, { mandrill_events: NO_EVENTS }),
  }, BODY);
}

function isSuccess(result: AttemptResult): boolean {
  return result.kind === 'answered' && result.status >= 200 && result.status < 300;
}
