import { Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Context } from 'koa';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { networkOf } from '../../base/networks.ts';
import { createShares, isTooSlow, type Shares } from '../../base/shares.ts';
import { MAX_CODE_BYTES, MAX_TEXT_BYTES } from '../../mail/merge/language.ts';
import { invalid, Refusal, refusal } from '../errors.ts';
import { createBodyCheck, JSON_OPENING } from './body-check.ts';
import type { BodyParser, WholeBody } from './body-parser.ts';

// Bodies are read within limits and checked while they arrive (body-check.ts), then parsed (body-parser.ts).

export interface BodySettings {
  readonly maxBodyBytes: number;
  readonly maxMessageBytes: number;
  /** Minimum speed of a body: bytes per second over any ten seconds. */
  readonly minBodyRate: number;
}

/** The expected content of a body. */
export interface WantedBody {
  /** It may hold a message or a template. */
  readonly large: boolean;
  /** Its parameters besides the key; undefined: any. */
  readonly params?: { readonly shape: object };
}

/**
 * Size of a message in JSON relative to its raw size: line ends and quotes take two bytes and control characters six,
 * but mail has few of them.
 */
const MESSAGE_IN_JSON = 1.4;
const SLACK_BYTES = 65_536;
/**
 * Bodies are buffered before the caller is known, because the key is inside. Bytes count when they arrive; a large
 * Content-Length alone reserves nothing. This many bytes of every body are not counted, so that small calls are never
 * refused for lack of room; over all connections (http/server.ts), they add up to at most 128 MiB.
 */
const FREE_BYTES = 65_536;
/** Beyond that, there is room for this many bodies of maximum size: in total, and per address. */
const LARGE = { all: 8, each: 2 };
/** The same for operations that carry no message: a separate pool, so that small calls do not wait for large ones. */
const SMALL = { all: 64, each: 16 };
/** Time limit for a whole body, in milliseconds. */
const BODY_MS = 30_000;
const LARGE_BODY_MS = 120_000;
/** Window of the minimum speed, in seconds. SMTP's is longer, because mail servers queue and HTTP clients do not. */
const RATE_WINDOW_S = 10;
const SECOND_MS = 1000;
/** How long the rest of a refused body is read and discarded, so that the client can read the answer. */
const LINGER_MS = 5_000;

/**
 * Values that JSON may hold. A message to the maximum number of recipients has three for each, and two for each of
 * their merge variables: 60 of these fit. Such a body is parsed in 20 ms; the limit is for the work that follows.
 */
const LARGE_VALUES = 200_000;
const SMALL_VALUES = 100_000;

/** Limits of bodies of one size class. */
interface SizeClass {
  readonly limit: number;
  readonly maxValues: number;
  readonly room: Shares;
  readonly deadlineMs: number;
}

interface BodyDeps {
  readonly parser: Pick<BodyParser, 'parse'>;
  readonly clock: Clock;
}

/** Reads bodies within limits on size, time, speed and number. */
export function createBodyReader(settings: BodySettings, { parser, clock }: BodyDeps) {
  const roomFor = ({ all, each }: typeof LARGE, limit: number) =>
    createShares({ all: all * limit, each: each * limit });
  const small: SizeClass = {
    limit: settings.maxBodyBytes,
    maxValues: SMALL_VALUES,
    room: roomFor(SMALL, settings.maxBodyBytes),
    deadlineMs: BODY_MS,
  };
  // Even where messages must be small, templates may be as large as their own limits allow.
  const largest = Math.max(settings.maxMessageBytes, MAX_CODE_BYTES + MAX_TEXT_BYTES);
  const limit = Math.ceil(largest * MESSAGE_IN_JSON) + SLACK_BYTES;
  const large: SizeClass = {
    limit,
    maxValues: LARGE_VALUES,
    room: roomFor(LARGE, limit),
    deadlineMs: LARGE_BODY_MS,
  };
  const floor = { rate: settings.minBodyRate, seconds: RATE_WINDOW_S };

  /** `late` rejects when the deadline has passed or the body arrives too slowly. */
  function watch({ req }: Context, deadlineMs: number) {
    const { promise, reject } = Promise.withResolvers<never>();
    let arrived = 0;
    const totals = [arrived];
    const note = (chunk: Buffer) => {
      arrived += chunk.length;
    };
    const look = () => {
      if (isTooSlow(totals, arrived, floor)) reject(refusal('RequestTimeout'));
      else cancelLook = clock.after(SECOND_MS, look);
    };
    let cancelLook = clock.after(SECOND_MS, look);
    const cancelDeadline = clock.after(deadlineMs, () => reject(refusal('RequestTimeout')));
    req.on('data', note);
    return {
      late: promise,
      stop() {
        cancelLook();
        cancelDeadline();
        req.off('data', note);
      },
    };
  }

  async function receive(ctx: Context, size: SizeClass, client: string): Promise<Omit<WholeBody, 'names'>> {
    const { stream, check } = openBody(ctx, size, networkOf(client));
    const watched = watch(ctx, size.deadlineMs);
    try {
      const chunks = await Promise.race([stream.toArray(), watched.late]);
      return { chunks, count: check.count(), isForm: isForm(ctx, check.opening()) };
    } catch (error) {
      throw error instanceof Refusal ? error : invalid({ body: 'The body could not be read' });
    } finally {
      watched.stop();
      ctx.req.unpipe();
      stream.destroy();
    }
  }

  function linger({ req, res }: Context): void {
    if (req.complete) return;
    const cancel = clock.after(LINGER_MS, () => req.socket.destroy());
    req.once('close', cancel);
    res.once('finish', () => req.resume());
  }

  return frozen({
    /** Reads the parameters of a call. `client`: the client's address. Throws refusals. */
    async read(ctx: Context, { large: isLarge, params }: WantedBody, client: string) {
      const size = isLarge ? large : small;
      const names = params && ['key', ...Object.keys(params.shape)];
      const { headers, httpVersion } = ctx.req;
      try {
        if (Number(headers['content-length'] ?? 0) > size.limit) throw overLimit(size.limit);
        // Answer `Expect: 100-continue` (RFC 9110 section 10.1.1). If the call is refused instead, Node closes the
        // connection.
        if (headers.expect !== undefined && httpVersion === '1.1') ctx.res.writeContinue();
        return await parser.parse(ctx, { ...(await receive(ctx, size, client)), names });
      } catch (error) {
        linger(ctx);
        if (error instanceof Refusal && error.name === 'RequestTimeout') ctx.set('Connection', 'close');
        throw error;
      }
    },
  });
}

/** The largest ratio of a body to its compressed form, beyond the first bytes: honest mail and its lists reach 20. */
const MAX_RATIO = 50;

/**
 * The body of a request, decoded, without leading space, and checked while it arrives. The decoded size counts as room
 * taken, from arrival until the call is answered.
 */
function openBody({ req, res }: Context, { limit, room, maxValues }: SizeClass, who: string) {
  const decoder = decoderOf(req.headers['content-encoding']);
  const check = createBodyCheck(maxValues);
  let arrived = 0;
  let space = 0;
  let size = 0;
  let held = 0;
  let answered = false;
  res.once('close', () => {
    answered = true;
    room.give(who, held);
  });

  function takeRoom(bytes: number): Refusal | undefined {
    size += bytes;
    if (size > limit) return overLimit(limit);
    if (decoder && size > FREE_BYTES + arrived * MAX_RATIO) return overRatio();
    const more = Math.max(0, size - FREE_BYTES) - held;
    const taken = more > 0 && !answered ? room.take(who, more) : undefined;
    if (taken === 'own-share') return refusal('RequestLimitExceeded');
    if (taken === 'all') return refusal('ServiceUnavailable');
    if (taken === 'taken') held += more;
    return undefined;
  }

  const checked = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (check.opening() === '' && chunk.every(isSpace)) {
        space += chunk.length;
        return done(space > limit ? overLimit(limit) : null);
      }
      const fault = takeRoom(chunk.length) ?? check.faultOf(chunk);
      if (fault) return done(fault);
      done(null, chunk);
    },
    flush: (done) => done(check.faultOf(undefined)),
  });
  checked.on('error', () => undefined); // its reader gets the error
  const fail = (error: Error) => checked.destroy(error);
  // Not `pipeline`: it would close the connection with the body, before the client reads the error.
  req.on('data', ({ length }: Buffer) => {
    arrived += length;
  });
  req.once('error', fail);
  req.once('close', () => {
    if (!req.complete) fail(new Error('the request was cut off'));
  });
  decoder?.once('error', fail);
  if (decoder) req.pipe(decoder).pipe(checked);
  else req.pipe(checked);
  return { stream: checked, check };
}

/** Only gzip: no client of the API compresses on its own, and proxies that do use it (docs/decisions/0048). */
function decoderOf(encoding = 'identity'): Transform | undefined {
  if (/^identity$/i.test(encoding)) return undefined;
  if (/^gzip$/i.test(encoding)) return createGunzip();
  throw invalid({ body: 'The content encoding is not supported; please send the body as it is, or with gzip' }, 415);
}

/** Whitespace between JSON values. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/**
 * A body that looks like JSON is JSON, because callers omit Content-Type or send the wrong one; so is a body without
 * Content-Type.
 */
function isForm(ctx: Context, opening: string): boolean {
  return !JSON_OPENING.test(opening) && typeof ctx.is('*/*') === 'string' && !ctx.is('json', '+json');
}

function overLimit(limit: number): Refusal {
  return invalid({ body: `The body is larger than ${limit} bytes` }, 413);
}

function overRatio(): Refusal {
  return invalid({ body: `The body unpacks to more than ${MAX_RATIO} times its size; please send it as it is` }, 413);
}
