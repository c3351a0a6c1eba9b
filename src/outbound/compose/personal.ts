import { createTagging } from '../../mail/analytics.ts';
import { changeHtml, changeText, type Relink } from '../../mail/links.ts';
import { unsubAddress } from '../../mail/returns/address.ts';
import { toHtmlPage } from '../../mail/compose/text-to-html.ts';
import { toToken } from '../../mail/send-tokens.ts';
import type { ComposeJob } from '../types.ts';
import { createFilling, type Filling } from './filling.ts';
import { mostOctets } from './too-large.ts';

/** What makes a message that of one recipient. All of it throws `TooLong` for what grows too long, filling `FaultyTemplate` too. */
export interface Personal extends Filling {
  /** Whether links are followed or changed, opens counted, or style sheets written into elements. */
  readonly tracks: boolean;
  /** Style sheets, links and the open pixel of an HTML part; `withPixel` is false for all but the first. */
  trackHtml(html: string, withPixel: boolean): string;
  trackText(text: string): string;
  /** HTML of a text part whose tags are replaced, for a message that has none. */
  toHtml(text: string): string;
  readonly listUnsubscribe: ReadonlyArray<readonly [name: string, value: string]>;
  readonly messageId: string;
}

/** Characters of a link's target, encoded. A server (ours, Node's) reads 16 KiB of header, the request line included. */
const LONGEST_TARGET = 8000;
const CONTROLS = /\p{Cc}/u;
// encodeURIComponent leaves these, and readers of plain text end a link before some of them.
const LEFT = /[!'()*]/g;

/** Writes style sheets into the elements of an HTML text, where that is asked for. */
export type Inline = (html: string) => string;

export function createPersonal(job: ComposeJob, inline: Inline | undefined): Personal {
  const { outgoing, settings, accountNumber, id } = job;
  const { analytics, stripQuery } = outgoing.extras ?? {};
  const { secret, publicUrl } = settings;
  const most = mostOctets(job.body.kind === 'inline' ? job.body.bytes.length : job.body.size);
  const unsubUrl = `${publicUrl}/unsubscribe/${toToken(secret, 'unsub', accountNumber, id)}`;
  const links = new Map<string, string>();
  // Ours already: who wants no more mail is not followed there, and a link to a link would say it twice.
  const isOurs = (url: string) => [publicUrl, settings.ownUrl ?? publicUrl].some((own) => url.startsWith(`${own}/unsubscribe/`) || url.startsWith(`${own}/track/`));
  const tag = analytics && createTagging(analytics, outgoing.sender);
  const tagged: Relink = (url) => (isOurs(url) ? undefined : tag?.(url));
  const followed: Relink = (given) => {
    if (isOurs(given)) return undefined;
    const known = links.get(given);
    if (known !== undefined) return known;
    const written = tag?.(given);
    const url = written ?? given;
    if (!url.isWellFormed() || CONTROLS.test(url) || !URL.canParse(url)) return written; // what could not be led on to stays what it is
    const target = encodeURIComponent(url).replace(LEFT, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    if (target.length > LONGEST_TARGET) return written;
    const kind = stripQuery ? 'bare-click' : 'click';
    const link = `${publicUrl}/track/click/${toToken(secret, kind, accountNumber, id, url)}?u=${target}`;
    links.set(given, link);
    return link;
  };
  const relinkOf = (follows: boolean): Relink | undefined => (follows ? followed : tag && tagged);
  const clicks = outgoing.trackClicks;
  const pixel = `<img src="${attribute(`${publicUrl}/track/open/${toToken(secret, 'open', accountNumber, id)}`)}" height="1" width="1" alt="">`;
  return Object.freeze({
    ...createFilling(job, unsubUrl, most),
    tracks: outgoing.trackOpens || clicks !== 'none' || tag !== undefined || inline !== undefined,
    trackHtml(html: string, withPixel: boolean) {
      return changeHtml(inline ? inline(html) : html, {
        relink: relinkOf(clicks === 'html' || clicks === 'all'), atEnd: outgoing.trackOpens && withPixel ? pixel : undefined,
      }, most);
    },
    trackText(text: string) {
      const relink = relinkOf(clicks === 'text' || clicks === 'all');
      return relink ? changeText(text, relink, most) : text;
    },
    toHtml: (text: string) => toHtmlPage(text, most),
    listUnsubscribe: [
      ['List-Unsubscribe', `<${unsubUrl}>, <mailto:${unsubAddress(secret, accountNumber, id, settings.returnDomain)}>`],
      ['List-Unsubscribe-Post', 'List-Unsubscribe=One-Click'], // RFC 8058 section 3.1
    ] as const,
    messageId: `<${id}@${settings.hostname}>`,
  });
}

function attribute(url: string): string {
  return url.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');
}
