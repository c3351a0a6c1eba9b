import type { IncomingMessage } from 'node:http';
import type { Context } from 'koa';
import { formPairs } from '../../base/form-pairs.ts';
import { frozen } from '../../base/frozen.ts';
import { escapeHtml } from '../../base/html.ts';
import type { OpenClickTracking, TrackedClient } from '../../returns/opens-and-clicks.ts';
import type { Subscription, UnsubscribeLinks } from '../../returns/unsubscribe.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { answerLine, answerPage, LINK_NOT_FOUND, type SmallPage } from './small-page.ts';

/** Records the events of recipients: open, click, unsubscribe. */
export interface Tracking {
  readonly openClickTracking: OpenClickTracking;
  readonly unsubscribeLinks: UnsubscribeLinks;
}

/** One transparent pixel. */
const PICTURE = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7', 'base64');
const PRIVATE = { 'Cache-Control': 'no-store', 'Referrer-Policy': 'no-referrer', 'X-Robots-Tag': 'noindex' };

/** Answers the links in messages. Sets no cookies, and redirects only to URLs that we signed. */
export function createTrackPages(
  { openClickTracking, unsubscribeLinks }: Tracking,
  clientAddress: (req: IncomingMessage) => string,
) {
  const visitorOf = ({ req }: Context): TrackedClient => ({
    address: clientAddress(req),
    userAgent: req.headers['user-agent'] ?? '',
  });

  return frozen({
    /** The tracking pixel of opens; the same for every token, so that the answer does not reveal which are valid. */
    async open(ctx: Context, token: string) {
      // Not awaited: the response time would reveal whether a token is valid.
      if (ctx.method === 'GET') void openClickTracking.opened(token, visitorOf(ctx));
      // Webmail loads images from other origins, and may require this header.
      ctx.set({ ...PRIVATE, 'Cross-Origin-Resource-Policy': 'cross-origin' });
      ctx.status = 200;
      ctx.type = 'image/gif';
      ctx.body = PICTURE;
    },
    /** Redirects to the URL of a link. */
    async click(ctx: Context, token: string) {
      const url = urlOf(ctx.querystring);
      const location = url === undefined ? undefined : locationOf(url);
      if (url === undefined || location === undefined) return say(ctx, 404, 'Not found: this link is incomplete.');
      try {
        const ours =
          ctx.method === 'GET'
            ? await openClickTracking.clicked(token, url, visitorOf(ctx))
            : await openClickTracking.isOurLink(token, url);
        if (!ours) return say(ctx, 404, 'Not found: this link is invalid or incomplete.');
        say(ctx, 302, 'Please follow the Location header.');
        ctx.set({ Location: location });
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
        say(ctx, 503, 'Please try again in a moment.');
      }
    },
    /**
     * GET asks for confirmation, because programs follow links too; POST unsubscribes: the page's button, and
     * one-click unsubscribe of mail clients (RFC 8058).
     */
    async unsubscribe(ctx: Context, token: string) {
      const pressed = ctx.method === 'POST';
      try {
        const { unsubscribe, find } = unsubscribeLinks;
        answerPage(ctx, toPage(await (pressed ? unsubscribe : find)(token), pressed));
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
        answerPage(ctx, {
          status: 503,
          title: 'Please try again in a moment',
          main: '<p>The service cannot do this right now. The link stays valid.</p>',
        });
      }
    },
  });
}

function toPage(found: Subscription | 'unknown' | 'gone', pressed: boolean): SmallPage {
  if (found === 'unknown') return LINK_NOT_FOUND;
  if (found === 'gone')
    return {
      status: 410,
      title: 'This link has expired',
      main: '<p>Please use the link in a newer message, or reply to the sender.</p>',
    };
  const [email, sender] = [escapeHtml(found.email), escapeHtml(found.sender)];
  if (pressed)
    return {
      status: 200,
      title: 'You are unsubscribed',
      main: `<p><strong>${email}</strong> will get no more mail from <strong>${sender}</strong>.</p>`,
    };
  return {
    status: 200,
    title: 'Unsubscribe?',
    main: `<p><strong>${email}</strong> gets mail from <strong>${sender}</strong>.</p>
<form method="post"><button type="submit">Unsubscribe</button></form>`,
  };
}

/** The only `u` of a query; with a second one it would be unclear which of them was signed. */
function urlOf(query: string): string | undefined {
  const [found, ...more] = [...formPairs(query)].filter(([name]) => name === 'u');
  return more.length === 0 ? found?.[1] : undefined;
}

/**
 * The URL in a form that fits a header; undefined if it is not an HTTP URL. Only invalid characters are changed: line
 * ends and tabs are removed, as browsers do.
 */
function locationOf(written: string): string | undefined {
  const url = written.replaceAll(/[\t\r\n]/g, '').trim();
  if (!/^https?:\/\/[^/?#]/i.test(url) || /\p{Cc}/u.test(url) || !url.isWellFormed() || !URL.canParse(url))
    return undefined;
  return url.replace(/[^!-~]/gu, encodeURIComponent);
}

function say(ctx: Context, status: number, text: string): void {
  ctx.set(PRIVATE);
  answerLine(ctx, status, text);
}
