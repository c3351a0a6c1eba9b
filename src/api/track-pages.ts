import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { frozen } from '../base/frozen.ts';
import { escapeHtml } from '../base/html.ts';
import type { Subscription, UnsubscribeLinks } from '../returns/unsubscribe.ts';
import type { Visitor, Visits } from '../returns/visits.ts';
import { StoreAway } from '../store/driver/port.ts';

/** What of a request and its answer is needed here. */
export interface TrackContext extends SmallPageContext {
  readonly method: string;
  readonly req: IncomingMessage;
  /** Without the question mark. */
  readonly querystring: string;
}

/** What happens to a message in the hands of its recipient. */
export interface Tracking {
  readonly visits: Visits;
  readonly unsubscribeLinks: UnsubscribeLinks;
}

/** Answers the links that stand in messages. Nobody gets a cookie here, and nobody is sent to a place that we did not sign. */
export interface TrackPages {
  /** The picture that a message shows when it is opened; the same for every token, so that nobody learns which are good. */
  open(ctx: TrackContext, token: string): Promise<void>;
  /** Leads on to the URL of a link. */
  click(ctx: TrackContext, token: string): Promise<void>;
  /** GET asks, because programs follow links too; POST unsubscribes: the button of the page, and one-click of mail programs (RFC 8058). */
  unsubscribe(ctx: TrackContext, token: string): Promise<void>;
}

/** One transparent pixel. */
const PICTURE = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7', 'base64');
const ALONE = { 'Cache-Control': 'no-store', 'Referrer-Policy': 'no-referrer', 'X-Robots-Tag': 'noindex' };

export function createTrackPages(
  { visits, unsubscribeLinks }: Tracking,
  clientAddress: (req: IncomingMessage) => string,
): TrackPages {
  const visitorOf = ({ req }: TrackContext): Visitor => ({
    address: clientAddress(req),
    userAgent: req.headers['user-agent'] ?? '',
  });

  return frozen({
    async open(ctx, token) {
      // Not waited for: how long it takes would tell a good token from a bad one.
      if (ctx.method === 'GET') void visits.opened(token, visitorOf(ctx));
      // Web mail shows pictures of other origins, and may insist that these say yes.
      ctx.set({ ...ALONE, 'Cross-Origin-Resource-Policy': 'cross-origin' });
      ctx.status = 200;
      ctx.type = 'image/gif';
      ctx.body = PICTURE;
    },
    async click(ctx, token) {
      const url = urlOf(ctx.querystring);
      const location = url === undefined ? undefined : locationOf(url);
      if (url === undefined || location === undefined)
        return say(ctx, 404, 'There is nothing here: a part of this link is missing.');
      try {
        const ours =
          ctx.method === 'GET' ? await visits.clicked(token, url, visitorOf(ctx)) : await visits.leadsTo(token, url);
        if (!ours)
          return say(ctx, 404, 'There is nothing here: this link is not one of ours, or a part of it is missing.');
        say(ctx, 302, 'Please follow the Location header.');
        ctx.set({ Location: location });
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
        say(ctx, 503, 'Please try again in a moment.');
      }
    },
    async unsubscribe(ctx, token) {
      const pressed = ctx.method === 'POST';
      try {
        answerPage(
          ctx,
          toPage(await (pressed ? unsubscribeLinks.follow(token) : unsubscribeLinks.look(token)), pressed),
        );
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
        answerPage(ctx, {
          status: 503,
          title: 'Please try again in a moment',
          main: '<p>The service is not able to do this just now. The link stays good.</p>',
        });
      }
    },
  });
}

function toPage(found: Subscription | 'unknown' | 'gone', pressed: boolean): SmallPage {
  if (found === 'unknown')
    return {
      status: 404,
      title: 'There is nothing here',
      main: '<p>This link is not one of ours, or a part of it is missing. Please copy the whole of it from the mail.</p>',
    };
  if (found === 'gone')
    return {
      status: 410,
      title: 'This link is too old',
      main: '<p>Please use the link in a newer mail, or answer the sender.</p>',
    };
  const [email, sender] = [escapeHtml(found.email), escapeHtml(found.sender)];
  if (pressed)
    return {
      status: 200,
      title: 'You are unsubscribed',
      main: `<p><strong>${email}</strong> gets no more mail from <strong>${sender}</strong>.</p>`,
    };
  return {
    status: 200,
    title: 'Unsubscribe?',
    main: `<p><strong>${email}</strong> gets mail from <strong>${sender}</strong>.</p><form method="post"><button type="submit">Unsubscribe</button></form>`,
  };
}

/** The one `u` of a query; a second would leave open which of them was signed. */
function urlOf(query: string): string | undefined {
  const [url, ...more] = new URLSearchParams(query).getAll('u');
  return more.length === 0 ? url : undefined;
}

/** The URL as a header can hold it; undefined for what is no address in the web. Nothing in it is changed but what no URL may hold: line ends and tabs go, as in every browser. */
function locationOf(written: string): string | undefined {
  const url = written.replaceAll(/[\t\r\n]/g, '').trim();
  if (!/^https?:\/\/[^/?#]/i.test(url) || /\p{Cc}/u.test(url) || !url.isWellFormed() || !URL.canParse(url))
    return undefined;
  return url.replace(/[^!-~]/gu, encodeURIComponent);
}

function say(ctx: TrackContext, status: number, text: string): void {
  ctx.set(ALONE);
  ctx.status = status;
  ctx.type = 'text/plain; charset=utf-8';
  ctx.body = `${text}\n`;
}

/** One thing to read, and at most one button to press. */
export interface SmallPage {
  readonly status: number;
  readonly title: string;
  /** HTML below the title. */
  readonly main: string;
}

/** What of an answer is needed here. */
export interface SmallPageContext {
  set(headers: Record<string, string>): void;
  status: number;
  type: string;
  body: unknown;
}

const STYLE = `
:root{color-scheme:light dark;--ink:#1c2430;--line:#dfe3e8;--paper:#fff;--mark:#0b5cad}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--line:#303845;--paper:#14181f;--mark:#2f7fd0}}
*{box-sizing:border-box}body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
main{max-width:36rem;margin:12vh auto 0;padding:2rem;border:1px solid var(--line);border-radius:.5rem;overflow-wrap:anywhere}
h1{margin:0 0 .8rem;font-size:1.4rem}
button{font:inherit;font-weight:600;color:#fff;background:var(--mark);border:0;border-radius:.4rem;padding:.6rem 1.4rem;cursor:pointer}
button:focus-visible{outline:3px solid var(--ink);outline-offset:2px}
@media(max-width:40rem){main{margin:0;border:0}}
`;
const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;

/** Answers with a page for one person: kept by nobody, shown in no frame, and its form posts to itself only. */
export function answerPage(ctx: SmallPageContext, { status, title, main }: SmallPage): void {
  ctx.set({
    'Content-Security-Policy': `default-src 'none'; style-src '${STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'`,
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-store',
    'X-Robots-Tag': 'noindex',
  });
  ctx.status = status;
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${title}</title><style>${STYLE}</style></head>
<body><main><h1>${title}</h1>${main}</main></body></html>
`;
}
