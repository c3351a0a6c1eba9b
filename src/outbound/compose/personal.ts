import { toHtmlPage } from '../../mail/compose/text-to-html.ts';
import { changeHtml, changeText } from '../../mail/links.ts';
import { unsubAddress } from '../../mail/returns/address.ts';
import { toToken } from '../../mail/send-tokens.ts';
import type { ComposeJob } from '../types.ts';
import { createFilling, type Filling } from './filling.ts';
import { createMessageLinks } from './message-links.ts';
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
  /** The links that are followed in what was written so far, as clicks on them are told. */
  followed(): readonly string[];
  readonly listUnsubscribe: ReadonlyArray<readonly [name: string, value: string]>;
  readonly messageId: string;
}

/** Writes style sheets into the elements of an HTML text, where that is asked for. */
export type Inline = (html: string) => string;

export function createPersonal(job: ComposeJob, inline: Inline | undefined): Personal {
  const { outgoing, settings, accountNumber, id } = job;
  const { secret, publicUrl } = settings;
  const most = mostOctets(job.body.kind === 'inline' ? job.body.bytes.length : job.body.size);
  const unsubUrl = `${publicUrl}/unsubscribe/${toToken(secret, 'unsub', accountNumber, id)}`;
  const links = createMessageLinks(job);
  const clicks = outgoing.trackClicks;
  const pixel = `<img src="${attribute(`${publicUrl}/track/open/${toToken(secret, 'open', accountNumber, id)}`)}" height="1" width="1" alt="">`;
  return Object.freeze({
    ...createFilling(job, unsubUrl, most),
    tracks: outgoing.trackOpens || clicks !== 'none' || links.tags || inline !== undefined,
    trackHtml(html: string, withPixel: boolean) {
      return changeHtml(
        inline ? inline(html) : html,
        {
          relink: links.relink(clicks === 'html' || clicks === 'all'),
          atEnd: outgoing.trackOpens && withPixel ? pixel : undefined,
        },
        most,
      );
    },
    trackText(text: string) {
      const relink = links.relink(clicks === 'text' || clicks === 'all');
      return relink ? changeText(text, relink, most) : text;
    },
    toHtml: (text: string) => toHtmlPage(text, most),
    followed: links.followed,
    listUnsubscribe: [
      [
        'List-Unsubscribe',
        `<${unsubUrl}>, <mailto:${unsubAddress(secret, accountNumber, id, settings.returnDomain, settings.ownReturns ? settings.returnDomain : '')}>`,
      ],
      ['List-Unsubscribe-Post', 'List-Unsubscribe=One-Click'], // RFC 8058 section 3.1
    ] as const,
    messageId: `<${id}@${settings.hostname}>`,
  });
}

function attribute(url: string): string {
  return url.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');
}
