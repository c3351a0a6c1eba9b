import type { Context } from 'koa';
import type { PageDeps } from './index.ts';
import { answerLine } from './small-page.ts';

/**
 * Answers GET and HEAD of a link to an attachment (RFC 9110: one range, ETag, If-None-Match, If-Range); the token is
 * the only credential. Always a download: files from strangers must not open in a browser under our origin. `fetch`
 * gets a file from another host that has it; false if none has.
 */
export function createInboundFiles({ linkedFiles, log }: Pick<PageDeps, 'linkedFiles' | 'log'>) {
  return async (ctx: Context, token: string, fetch?: () => Promise<boolean>): Promise<void> => {
    ctx.set({
      'Cache-Control': 'private, no-cache',
      'Content-Security-Policy': "default-src 'none'; sandbox",
      'Cross-Origin-Resource-Policy': 'same-origin',
      'Referrer-Policy': 'no-referrer',
      'X-Content-Type-Options': 'nosniff',
      'X-Robots-Tag': 'noindex',
    });
    const opened = await linkedFiles.open(token);
    if (opened.kind === 'missing' && (await fetch?.())) return;
    if (opened.kind !== 'file') {
      const [status, text] = ANSWERS[opened.kind];
      return answerLine(ctx, status, text);
    }
    const { file, size, hash } = opened;
    const etag = `"${hash}"`;
    ctx.set({ ETag: etag, 'Accept-Ranges': 'bytes' });
    ctx.attachment();
    ctx.type = 'application/octet-stream';
    ctx.status = 200;
    const range =
      ctx.get('if-range') === '' || ctx.get('if-range') === etag ? toRange(ctx.get('range'), size) : undefined;
    if (ctx.fresh || range === 'outside' || ctx.method === 'HEAD') {
      await file.close();
      if (ctx.fresh) ctx.status = 304;
      else if (range === 'outside') {
        ctx.set('Content-Range', `bytes */${size}`);
        ctx.status = 416;
        ctx.body = null;
        ctx.status = 416;
      } else ctx.length = size;
      return;
    }
    const { from, to } = range ?? { from: 0, to: size - 1 };
    if (range) {
      ctx.status = 206;
      ctx.set('Content-Range', `bytes ${from}-${to}/${size}`);
    }
    // The stream closes the file, even if the client disconnects.
    ctx.body = file.createReadStream(size === 0 ? {} : { start: from, end: to });
    ctx.length = to - from + 1;
    log.info('attachment.fetched', { file: hash.slice(0, 12), bytes: to - from + 1 });
  };
}

const ANSWERS = {
  unknown: [404, 'There is no file at this address.'],
  expired: [410, 'This link has expired.'],
  // 404, so that a proxy in front of several hosts can be configured to try the next one.
  missing: [404, 'This file is not on this host: it was removed to make room, or another host has it.'],
} as const;

/** The range of a Range header; undefined: the whole file, also for several ranges and for invalid ones. */
function toRange(header: string, size: number): { readonly from: number; readonly to: number } | 'outside' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header) ?? [];
  if (first === '' && last === '') return undefined;
  if (first !== '' && last !== '' && Number(last) < Number(first)) return undefined;
  const from = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const to = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return from > to ? 'outside' : { from, to };
}
