import { createHash } from 'node:crypto';
import type { Link, SenderDomains } from '../../sending/domains/sender-domains.ts';
import { StoreAway } from '../../store/driver/port.ts';

/** What of a request and its answer is needed here. */
export interface VerifyContext {
  readonly method: string;
  set(headers: Record<string, string>): void;
  status: number;
  type: string;
  body: unknown;
}

/** Answers GET and POST of a verification link. Only POST verifies: mail scanners follow the links that they find. */
export type VerifyPage = (ctx: VerifyContext, token: string) => Promise<void>;

const STYLE = `
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#dfe3e8;--paper:#fff;--mark:#0b5cad}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#303845;--paper:#14181f;--mark:#2f7fd0}}
*{box-sizing:border-box}body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
main{max-width:36rem;margin:12vh auto 0;padding:2rem;border:1px solid var(--line);border-radius:.5rem;overflow-wrap:anywhere}
h1{margin:0 0 .8rem;font-size:1.4rem}.soft{color:var(--soft)}
button{font:inherit;font-weight:600;color:#fff;background:var(--mark);border:0;border-radius:.4rem;padding:.6rem 1.4rem;cursor:pointer}
button:focus-visible{outline:3px solid var(--ink);outline-offset:2px}
@media(max-width:40rem){main{margin:0;border:0}}
`;
const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;

/** A token as `Ids.key` makes it. */
const TOKEN = /^[\w-]{22}$/;

interface Page {
  readonly status: number;
  readonly title: string;
  readonly main: string;
}

export function createVerifyPage(senderDomains: Pick<SenderDomains, 'look' | 'follow'>): VerifyPage {
  return async (ctx, token) => {
    const page = await pageFor(token, ctx.method === 'POST' ? senderDomains.follow : senderDomains.look);
    // The button posts to this very page, so here, and only here, a form may be sent.
    ctx.set({
      'Content-Security-Policy': `default-src 'none'; style-src '${STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'`,
      'Referrer-Policy': 'no-referrer',
      'Cache-Control': 'no-store',
      'X-Robots-Tag': 'noindex',
    });
    ctx.status = page.status;
    ctx.type = 'text/html; charset=utf-8';
    ctx.body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${page.title}</title><style>${STYLE}</style></head>
<body><main><h1>${page.title}</h1>${page.main}</main></body></html>
`;
  };
}

async function pageFor(token: string, read: (token: string) => Promise<Link>): Promise<Page> {
  if (!TOKEN.test(token)) return toPage({ state: 'unknown' });
  try {
    return toPage(await read(token));
  } catch (error) {
    if (!(error instanceof StoreAway)) throw error;
    return {
      status: 503,
      title: 'Please try again in a moment',
      main: '<p>The service is not able to look at this link just now. It stays good.</p>',
    };
  }
}

/** The domain was read as A-labels, which hold nothing that HTML would take for more than text. */
function toPage(link: Link): Page {
  switch (link.state) {
    case 'open':
      return {
        status: 200,
        title: `Is ${link.domain} yours?`,
        main: `<p>Somebody asked to send mail from <strong>${link.domain}</strong>. If it was you, confirm it.</p>
<form method="post"><button type="submit">Yes, verify ${link.domain}</button></form><p class="soft">If it was not you, close this page. Nothing has happened yet.</p>`,
      };
    case 'done':
      return {
        status: 200,
        title: 'Thank you',
        main: `<p><strong>${link.domain}</strong> is verified. You can close this page.</p>`,
      };
    case 'used':
      return {
        status: 410,
        title: 'This link has been used',
        main: '<p>It works once, and it has done its work. Nothing is left to do.</p>',
      };
    case 'expired':
      return {
        status: 410,
        title: 'This link has expired',
        main: '<p>It worked for seven days. Please ask for a new one where you asked for this.</p>',
      };
    case 'unknown':
      return {
        status: 404,
        title: 'There is nothing here',
        main: '<p>This link is not one of ours, or a part of it is missing. Please copy the whole of it from the mail.</p>',
      };
  }
}
