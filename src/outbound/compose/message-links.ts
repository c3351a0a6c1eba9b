import { createTagging } from '../../mail/analytics.ts';
import { type Relink, withoutQuery } from '../../mail/links.ts';
import { toToken } from '../../mail/send-tokens.ts';
import { LONGEST_COUNTED_URL, MOST_COUNTED_URLS } from '../../store/urls.ts';
import type { ComposeJob } from '../types.ts';

/** What becomes of the links of a message. */
export interface MessageLinks {
  /** Whether links change that are not followed: some say where they come from. */
  readonly tags: boolean;
  /** For links that are followed, and for those that are not. */
  relink(follows: boolean): Relink | undefined;
  /** The links that are followed so far, each once, as clicks on them are told; at most 100. */
  followed(): readonly string[];
}

/** Characters of a link's target, encoded. A server (ours, Node's) reads 16 KiB of header, the request line included. */
const LONGEST_TARGET = 8000;
const CONTROLS = /\p{Cc}/u;
// encodeURIComponent leaves these, and readers of plain text end a link before some of them.
const LEFT = /[!'()*]/g;

export function createMessageLinks({ outgoing, settings, accountNumber, id }: ComposeJob): MessageLinks {
  const { analytics, stripQuery } = outgoing.extras ?? {};
  const { secret, publicUrl, ownUrl = publicUrl } = settings;
  const links = new Map<string, string>();
  const followed = new Set<string>();
  const tag = analytics && createTagging(analytics, outgoing.sender);
  // Ours already: who wants no more mail is not followed there, and a link to a link would say it twice.
  const isOurs = (url: string) =>
    [publicUrl, ownUrl].some((own) => url.startsWith(`${own}/unsubscribe/`) || url.startsWith(`${own}/track/`));

  function follow(given: string): string | undefined {
    const tagged = tag?.(given);
    const url = tagged ?? given;
    if (!url.isWellFormed() || CONTROLS.test(url) || !URL.canParse(url)) return tagged; // what could not be led on to stays what it is
    const target = encodeURIComponent(url).replace(LEFT, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    if (target.length > LONGEST_TARGET) return tagged;
    const shown = stripQuery ? withoutQuery(url) : url;
    if (shown.length <= LONGEST_COUNTED_URL && followed.size < MOST_COUNTED_URLS) followed.add(shown);
    return `${publicUrl}/track/click/${toToken(secret, stripQuery ? 'bare-click' : 'click', accountNumber, id, url)}?u=${target}`;
  }

  function followOnce(url: string): string | undefined {
    if (isOurs(url)) return undefined;
    const link = links.get(url) ?? follow(url);
    if (link !== undefined) links.set(url, link);
    return link;
  }
  const tagOnly = tag && ((url: string) => (isOurs(url) ? undefined : tag(url)));
  return {
    tags: tag !== undefined,
    relink: (follows) => (follows ? followOnce : tagOnly),
    followed: () => [...followed],
  };
}
