import type { Context } from 'koa';
import bodyParser from 'koa-bodyparser';
import { MAX_CODE_BYTES, MAX_TEXT_BYTES } from '../mail/template.ts';
import type { Clock } from '../base/clock.ts';
import { invalid, refusal, Refusal } from './errors.ts';

/** JSON writes a line end or a quote as two bytes and a control character as six; mail has few of them. */
const MESSAGE_IN_JSON = 1.4;
const SLACK_BYTES = 65_536;
/** Bodies are held in memory before anybody knows whose they are, for the key is inside: so many of the largest at a time. */
const LARGEST_AT_A_TIME = 8;
/** How long a body may take to arrive, absolutely: milliseconds. */
const BODY_MS = 30_000;
const LARGE_BODY_MS = 120_000;
/** How long the rest of a refused body is read and thrown away, so that the client gets to read the refusal. */
const LINGER_MS = 5_000;

export interface BodySettings {
  readonly maxBodyBytes: number;
  readonly maxMessageBytes: number;
}

/** Reads bodies within their limits of size, time and number. */
export interface BodyReader {
  /** The bytes, decompressed. `large`: a message or a template may be inside. Throws refusals only. */
  read(ctx: Context, large: boolean): Promise<Uint8Array>;
  /** Whether the header of a request already says that its body will be refused. */
  tooLarge(contentLength: string | undefined, large: boolean): boolean;
}

export function createBodyReader(settings: BodySettings, deps: { clock: Clock }): BodyReader {
  // Where messages are small a template may still be as large as its own limits say.
  const largest = Math.max(settings.maxMessageBytes, MAX_CODE_BYTES + MAX_TEXT_BYTES);
  const limits = { small: settings.maxBodyBytes, large: Math.ceil(largest * MESSAGE_IN_JSON) + SLACK_BYTES };
  const parsers = { small: bytesOf(limits.small), large: bytesOf(limits.large) };
  const room = LARGEST_AT_A_TIME * limits.large;
  let held = 0;

  const limit = (large: boolean) => large ? limits.large : limits.small;
  const tooLarge = (length: string | undefined, large: boolean) => length !== undefined && Number(length) > limit(large);

  async function parse(ctx: Context, large: boolean): Promise<Uint8Array> {
    // The parser chooses by content type; every body is read as bytes here, and understood in formats.ts.
    if (ctx.req.headers['transfer-encoding'] !== undefined || ctx.req.headers['content-length'] !== undefined) ctx.req.headers['content-type'] = 'text/plain';
    await (large ? parsers.large : parsers.small)(ctx, () => Promise.resolve());
    return Buffer.isBuffer(ctx.request.rawBody) ? ctx.request.rawBody : new Uint8Array();
  }

  async function within(ctx: Context, large: boolean): Promise<Uint8Array> {
    const late = Promise.withResolvers<never>();
    const cancel = deps.clock.after(large ? LARGE_BODY_MS : BODY_MS, () => late.reject(refusal('RequestTimeout')));
    try {
      return await Promise.race([parse(ctx, large), late.promise]);
    } catch (error) {
      throw toRefusal(error, limit(large));
    } finally {
      cancel();
    }
  }

  /** Takes room for a body until its call has been answered. */
  function hold({ req, res }: Context, large: boolean): void {
    const length = req.headers['content-encoding'] === undefined ? Number(req.headers['content-length'] ?? limit(large)) : limit(large);
    if (held + length > room) throw refusal('ServiceUnavailable');
    held += length;
    res.once('close', () => { held -= length; });
  }

  function linger({ req, res }: Context): void {
    if (req.complete) return;
    const cancel = deps.clock.after(LINGER_MS, () => req.socket.destroy());
    req.once('close', cancel);
    res.once('finish', () => req.resume());
  }

  return Object.freeze({
    tooLarge,
    async read(ctx: Context, large: boolean) {
      try {
        if (tooLarge(ctx.req.headers['content-length'], large)) throw overLimit(limit(large));
        hold(ctx, large);
        return await within(ctx, large);
      } catch (error) {
        linger(ctx);
        if (error instanceof Refusal && error.name === 'RequestTimeout') ctx.set('Connection', 'close');
        throw error;
      }
    },
  });
}

function bytesOf(limit: number) {
  const options = { enableTypes: ['text'], textLimit: String(limit), encoding: null };
  return bodyParser(options);
}

function overLimit(limit: number): Refusal {
  return invalid({ body: `The body is larger than ${limit} bytes` }, 413);
}

/** Whatever goes wrong while a body is read is the client's doing: cut off, compressed wrongly, too large. */
function toRefusal(error: unknown, limit: number): Refusal {
  if (error instanceof Refusal) return error;
  const status = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
  if (status === 413) return overLimit(limit);
  if (status === 415) return invalid({ body: 'The content encoding is not supported' }, 415);
  return invalid({ body: 'The body could not be read' });
}
