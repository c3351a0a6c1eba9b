import { createHash } from 'node:crypto';
import type { Context } from 'koa';

// Pages behind links in mail: to confirm a domain, to unsubscribe.

/** A page with one message and at most one button. */
export interface SmallPage {
  readonly status: number;
  readonly title: string;
  /** HTML below the title. */
  readonly main: string;
}

const STYLE = `
:root{color-scheme:light dark;--ink:#1b1d22;--soft:#5c6068;--line:#e1e2de;--paper:#fff;--mark:#2f4fc4;--on:#fff}
@media(prefers-color-scheme:dark){
  :root{--ink:#e7e8ec;--soft:#a0a5b1;--line:#2b2f38;--paper:#15171c;--mark:#9bb2ff;--on:#10131c}
}
*{box-sizing:border-box}body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
main{max-width:36rem;margin:12vh auto 0;padding:2rem;border:1px solid var(--line);border-radius:.5rem;
  overflow-wrap:anywhere}
h1{margin:0 0 .8rem;font-size:1.4rem}.soft{color:var(--soft)}
input{font:inherit;padding:.4rem .6rem;width:100%;max-width:16rem}
button{font:inherit;font-weight:600;color:var(--on);background:var(--mark);border:0;border-radius:.4rem;
  padding:.6rem 1.4rem;cursor:pointer}
button:focus-visible{outline:3px solid var(--ink);outline-offset:2px}
@media(max-width:40rem){main{margin:0;border:0}}
`;
const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;
const POLICY =
  `default-src 'none'; style-src '${STYLE_HASH}'; ` + "base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** Answers with a page that is not cached, indexed or framed, and whose form posts only to itself. */
export function answerPage(ctx: Context, { status, title, main }: SmallPage): void {
  ctx.set({
    'Content-Security-Policy': POLICY,
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-store',
    'X-Robots-Tag': 'noindex',
  });
  ctx.status = status;
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${title}</title><style>${STYLE}</style></head>
<body><main><h1>${title}</h1>${main}</main></body></html>
`;
}

export const LINK_NOT_FOUND: SmallPage = {
  status: 404,
  title: 'Link not found',
  main: '<p>This link is invalid or incomplete. Please copy the whole link from the message.</p>',
};

/** Answers with a line of text. */
export function answerLine(ctx: Context, status: number, text: string): void {
  ctx.status = status;
  ctx.type = 'text/plain; charset=utf-8';
  ctx.body = `${text}\n`;
}
