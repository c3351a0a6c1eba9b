import { type Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createUnzip } from 'node:zlib';
import type { Context } from 'koa';
import bodyParser from 'koa-bodyparser';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { networkOf } from '../base/networks.ts';
import { createShares, isTooSlow, type Shares } from '../base/shares.ts';
import { MAX_CODE_BYTES, MAX_TEXT_BYTES } from '../mail/merge/language.ts';
import { invalid, Refusal, refusal } from './errors.ts';

/** JSON writes a line end or a quote as two bytes and a control character as six; mail has few of them. */
const MESSAGE_IN_JSON = 1.4;
const SLACK_BYTES = 65_536;
/**
 * Bodies are held in memory before anybody knows whose they are, for the key is inside. What is counted is what has arrived: a header
 * that promises megabytes takes room from nobody. So many bytes of every body are free, so that a small call is never refused for
 * room; what all connections (server.ts) could hold of them is 128 MiB.
 */
const FREE_BYTES = 65_536;
/** Beyond them there is room for so many of the largest bodies in all, and for so many of one address. */
const LARGE = { all: 8, each: 2 };
/** The same for operations that carry no message: theirs is room of its own, because small calls must not wait for large ones. */
const SMALL = { all: 64, each: 16 };
/** How long a body may take to arrive, absolutely: milliseconds. */
const BODY_MS = 30_000;
const LARGE_BODY_MS = 120_000;
/** The window of the floor of speed, in seconds. That of SMTP is longer, because mail servers queue and HTTP clients do not. */
const RATE_WINDOW_S = 10;
const SECOND_MS = 1000;
/** How long the rest of a refused body is read and thrown away, so that the client gets to read the refusal. */
const LINGER_MS = 5_000;

const DECODERS = new Map<string, () => Transform>([
  ['gzip', createUnzip],
  ['deflate', createUnzip],
  ['br', createBrotliDecompress],
]);

export interface BodySettings {
  readonly maxBodyBytes: number;
  readonly maxMessageBytes: number;
  /** The slowest that a body may arrive: bytes a second over any ten seconds. */
  readonly minBodyRate: number;
}

/** Reads bodies within their limits of size, time, speed and number. */
export interface BodyReader {
  /** The bytes, decompressed. `large`: a message or a template may be inside. `client` is its address. Throws refusals only. */
  read(ctx: Context, large: boolean, client: string): Promise<Uint8Array>;
  /** Whether the header of a request already says that its body will be refused. */
  tooLarge(contentLength: string | undefined, large: boolean): boolean;
}

/** What bodies of one kind are held to. */
interface Kind {
  readonly limit: number;
  readonly room: Shares;
  readonly parse: ReturnType<typeof bodyParser>;
  readonly deadlineMs: number;
}

export function createBodyReader(settings: BodySettings, deps: { clock: Clock }): BodyReader {
  const kindOf = (limit: number, { all, each }: typeof LARGE, deadlineMs: number): Kind => ({
    limit,
    room: createShares({ all: all * limit, each: each * limit }),
    parse: asBytes(limit),
    deadlineMs,
  });
  const small = kindOf(settings.maxBodyBytes, SMALL, BODY_MS);
  // Where messages are small a template may still be as large as its own limits say.
  const largest = Math.max(settings.maxMessageBytes, MAX_CODE_BYTES + MAX_TEXT_BYTES);
  const large = kindOf(Math.ceil(largest * MESSAGE_IN_JSON) + SLACK_BYTES, LARGE, LARGE_BODY_MS);
  const floor = { rate: settings.minBodyRate, seconds: RATE_WINDOW_S };

  const tooLarge = (length: string | undefined, { limit }: Kind) => length !== undefined && Number(length) > limit;

  /** Rejects when the deadline has passed, or the body comes too slowly. */
  function watch(ctx: Context, deadlineMs: number) {
    const { promise, reject } = Promise.withResolvers<never>();
    let arrived = 0;
    const totals = [arrived];
    const note = (chunk: Buffer) => {
      arrived += chunk.length;
    };
    const look = () => {
      if (isTooSlow(totals, arrived, floor)) reject(refusal('RequestTimeout'));
      else cancelLook = deps.clock.after(SECOND_MS, look);
    };
    let cancelLook = deps.clock.after(SECOND_MS, look);
    const cancelDeadline = deps.clock.after(deadlineMs, () => reject(refusal('RequestTimeout')));
    ctx.req.on('data', note);
    return {
      late: promise,
      stop() {
        cancelLook();
        cancelDeadline();
        ctx.req.off('data', note);
      },
    };
  }

  async function within(ctx: Context, kind: Kind, client: string): Promise<Uint8Array> {
    const body = openBody(ctx, kind, networkOf(client));
    const watched = watch(ctx, kind.deadlineMs);
    try {
      // The parser reads `ctx.req`; what it is handed here is the same body, decoded and counted.
      const counted: Context = Object.create(ctx, { req: { value: body } });
      await Promise.race([kind.parse(counted, () => Promise.resolve()), watched.late]);
      return Buffer.isBuffer(ctx.request.rawBody) ? ctx.request.rawBody : new Uint8Array();
    } catch (error) {
      ctx.req.unpipe();
      body.destroy();
      throw toRefusal(error, kind.limit);
    } finally {
      watched.stop();
    }
  }

  function linger({ req, res }: Context): void {
    if (req.complete) return;
    const cancel = deps.clock.after(LINGER_MS, () => req.socket.destroy());
    req.once('close', cancel);
    res.once('finish', () => req.resume());
  }

  return frozen({
    tooLarge: (length, isLarge) => tooLarge(length, isLarge ? large : small),
    async read(ctx, isLarge, client) {
      const kind = isLarge ? large : small;
      // No body at all: nothing to read, and no reason to begin.
      if (ctx.request.is('*/*') === null) return new Uint8Array();
      // A body of no type, or of what is none, is bytes (RFC 9110 section 8.3); the parser passes over it otherwise.
      if (ctx.request.is('*/*') === false) ctx.req.headers['content-type'] = 'application/octet-stream';
      try {
        if (tooLarge(ctx.req.headers['content-length'], kind)) throw overLimit(kind.limit);
        return await within(ctx, kind, client);
      } catch (error) {
        linger(ctx);
        if (error instanceof Refusal && error.name === 'RequestTimeout') ctx.set('Connection', 'close');
        throw error;
      }
    },
  });
}

/** Every type is read as bytes here, and understood in formats.ts: callers forget the type, or name the wrong one. */
function asBytes(limit: number) {
  const options = { enableTypes: ['text'], extendTypes: { text: ['*/*'] }, textLimit: String(limit), encoding: null };
  return bodyParser(options);
}

/** The body of a request, decoded, with what arrives taken out of the room until its call has been answered. */
function openBody({ req, res }: Context, { limit, room }: Kind, who: string): Readable & { readonly headers: object } {
  const encoding = (req.headers['content-encoding'] ?? 'identity').toLowerCase();
  const decoder = DECODERS.get(encoding)?.();
  if (!decoder && encoding !== 'identity') throw invalid({ body: 'The content encoding is not supported' }, 415);
  let size = 0;
  let held = 0;
  let answered = false;
  res.once('close', () => {
    answered = true;
    room.give(who, held);
  });

  const counting = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      size += chunk.length;
      if (size > limit) return done(overLimit(limit));
      const more = Math.max(0, size - FREE_BYTES) - held;
      const taken = more > 0 && !answered ? room.take(who, more) : undefined;
      if (taken === 'own-share') return done(refusal('RequestLimitExceeded'));
      if (taken === 'all') return done(refusal('ServiceUnavailable'));
      if (taken === 'taken') held += more;
      done(null, chunk);
    },
  });
  const fail = (error: Error) => counting.destroy(error);
  // Not `pipeline`: that would end the connection with the body, and the client would never read why.
  req.once('error', fail);
  req.once('close', () => {
    if (!req.complete) fail(new Error('the request was cut off'));
  });
  decoder?.once('error', fail);
  if (decoder) req.pipe(decoder).pipe(counting);
  else req.pipe(counting);
  return Object.assign(counting, { headers: {} });
}

function overLimit(limit: number): Refusal {
  return invalid({ body: `The body is larger than ${limit} bytes` }, 413);
}

/** Whatever goes wrong while a body is read is the client's doing: cut off, compressed wrongly, too large. */
function toRefusal(error: unknown, limit: number): Refusal {
  if (error instanceof Refusal) return error;
  const status = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
  return status === 413 ? overLimit(limit) : invalid({ body: 'The body could not be read' });
}
