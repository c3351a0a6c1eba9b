import { changeHtml, changeText, type Relink } from '../../mail/links.ts';
import { unsubAddress } from '../../mail/returns/address.ts';
import { toToken } from '../../mail/send-tokens.ts';
import type { ComposeJob } from '../types.ts';
import { createFilling, type Filling } from './filling.ts';
import { mostOctets } from './too-large.ts';

/** What makes a message that of one recipient. All of it throws `TooLong` for what grows too long, filling `FaultyTemplate` too. */
export interface Personal extends Filling {
  /** Whether links are followed or opens counted. */
  readonly tracks: boolean;
  /** Links and the open pixel of an HTML part; `withPixel` is false for all but the first. */
  trackHtml(html: string, withPixel: boolean): string;
  trackText(text: string): string;
  readonly listUnsubscribe: ReadonlyArray<readonly [name: string, value: string]>;
  readonly messageId: string;
}

/** Characters of a link's target, encoded. A server (ours, Node's) reads 16 KiB of header, the request line included. */
const LONGEST_TARGET = 8000;
const CONTROLS = /\p{Cc}/u;
// encodeURIComponent leaves these, and readers of plain text end a link before some of them.
const LEFT = /[!'()*]/g;

export function createPersonal(job: ComposeJob): Personal {
  const { outgoing, settings, accountNumber, id } = job;
  const { secret, publicUrl } = settings;
  const most = mostOctets(job.body.kind === 'inline' ? job.body.bytes.length : job.body.size);
  const unsubUrl = `${publicUrl}/unsubscribe/${toToken(secret, 'unsub', accountNumber, id)}`;
  const links = new Map<string, string>();
  const relink: Relink = (url) => {
    // Ours already: who wants no more mail is not followed there, and a link to a link would say it twice.
    if (url.startsWith(`${publicUrl}/unsubscribe/`) || url.startsWith(`${publicUrl}/track/`)) return undefined;
    const known = links.get(url);
    if (known !== undefined) return known;
    if (!url.isWellFormed() || CONTROLS.test(url) || !URL.canParse(url)) return undefined; // what could not be led on to stays what it is
    const target = encodeURIComponent(url).replace(LEFT, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    if (target.length > LONGEST_TARGET) return undefined;
    const link = `${publicUrl}/track/click/${toToken(secret, 'click', accountNumber, id, url)}?u=${target}`;
    links.set(url, link);
    return link;
  };
  const clicks = outgoing.trackClicks;
  const pixel = `<img src="${attribute(`${publicUrl}/track/open/${toToken(secret, 'open', accountNumber, id)}`)}" height="1" width="1" alt="">`;
  return Object.freeze({
    ...createFilling(job, unsubUrl, most),
    tracks: outgoing.trackOpens || clicks !== 'none',
    trackHtml(html: string, withPixel: boolean) {
      return changeHtml(html, {
        relink: clicks === 'html' || clicks === 'all' ? relink : undefined, atEnd: outgoing.trackOpens && withPixel ? pixel : undefined,
      }, most);
    },
    trackText: (text: string) => (clicks === 'text' || clicks === 'all' ? changeText(text, relink, most) : text),
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
