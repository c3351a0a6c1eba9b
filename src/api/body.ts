import { type Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createUnzip } from 'node:zlib';
import type { Context, Middleware } from 'koa';
import bodyParser from 'koa-bodyparser';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { networkOf } from '../base/networks.ts';
import { createShares, isTooSlow, type Shares } from '../base/shares.ts';
import { MAX_CODE_BYTES, MAX_TEXT_BYTES } from '../mail/merge/language.ts';
import { invalid, Refusal, refusal } from './errors.ts';
import { MAX_DEPTH, type Params, paramsOfBody, parseForm, UnreadableForm } from './parameters.ts';

// koa-bodyparser parses JSON and forms and limits their size. A stream in front of it checks what must be known before
// parsing: room and speed, the encoding, the nesting, and how the body begins.

export interface BodySettings {
  readonly maxBodyBytes: number;
  readonly maxMessageBytes: number;
  /** Minimum speed of a body: bytes per second over any ten seconds. */
  readonly minBodyRate: number;
}

/** Reads bodies within limits on size, time, speed and number. */
interface BodyReader {
  /**
   * Reads the parameters of a call. `large`: the body may hold a message or a template. `client`: the client's address.
   * Throws only `Refusal`.
   */
  read(ctx: Context, large: boolean, client: string): Promise<Params>;
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
 * refused for lack of room; over all connections (server.ts), they add up to at most 128 MiB.
 */
const FREE_BYTES = 65_536;
/** Beyond that, there is room for this many bodies of maximum size: in total, and per address. */
const LARGE = { all: 8, each: 2 };
/** The same for operations that carry no message: a separate pool, so that small calls do not wait for large ones. */
const SMALL = { all: 64, each: 16 };
/** Deadline for a whole body, in milliseconds. */
const BODY_MS = 30_000;
const LARGE_BODY_MS = 120_000;
/** Window of the minimum speed, in seconds. SMTP's is longer, because mail servers queue and HTTP clients do not. */
const RATE_WINDOW_S = 10;
const SECOND_MS = 1000;
/** How long the rest of a refused body is read and discarded, so that the client can read the answer. */
const LINGER_MS = 5_000;

/** Limits of bodies of one size class. */
interface SizeClass {
  readonly limit: number;
  readonly room: Shares;
  readonly parse: Middleware;
  readonly deadlineMs: number;
}

export function createBodyReader(settings: BodySettings, deps: { clock: Clock }): BodyReader {
  const classOf = (limit: number, { all, each }: typeof LARGE, deadlineMs: number): SizeClass => ({
    limit,
    room: createShares({ all: all * limit, each: each * limit }),
    parse: createParser(limit),
    deadlineMs,
  });
  const small = classOf(settings.maxBodyBytes, SMALL, BODY_MS);
  // Even where messages must be small, templates may be as large as their own limits allow.
  const largest = Math.max(settings.maxMessageBytes, MAX_CODE_BYTES + MAX_TEXT_BYTES);
  const large = classOf(Math.ceil(largest * MESSAGE_IN_JSON) + SLACK_BYTES, LARGE, LARGE_BODY_MS);
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
      else cancelLook = deps.clock.after(SECOND_MS, look);
    };
    let cancelLook = deps.clock.after(SECOND_MS, look);
    const cancelDeadline = deps.clock.after(deadlineMs, () => reject(refusal('RequestTimeout')));
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

  async function within(ctx: Context, size: SizeClass, client: string): Promise<Params> {
    const { body, opening } = openBody(ctx, size, networkOf(client));
    const watched = watch(ctx, size.deadlineMs);
    const parse = async () => {
      ctx.state.opening = await opening;
      // The parser reads `ctx.req`; here it gets the same body, decoded and checked.
      const checked: Context = Object.create(ctx, { req: { value: body } });
      await size.parse(checked, () => Promise.resolve());
      return paramsOfBody(ctx.request.body);
    };
    try {
      return await Promise.race([parse(), watched.late]);
    } catch (error) {
      ctx.req.unpipe();
      body.destroy();
      throw toRefusal(body.errored ?? error, size.limit);
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
    async read(ctx, isLarge, client) {
      const size = isLarge ? large : small;
      const { headers, httpVersion } = ctx.req;
      try {
        if (Number(headers['content-length'] ?? 0) > size.limit) throw overLimit(size.limit);
        // Answer `Expect: 100-continue` (RFC 9110 section 10.1.1). If the call is refused instead, Node closes the
        // connection.
        if (headers.expect !== undefined && httpVersion === '1.1') ctx.res.writeContinue();
        return await within(ctx, size, client);
      } catch (error) {
        linger(ctx);
        if (error instanceof Refusal && error.name === 'RequestTimeout') ctx.set('Connection', 'close');
        throw error;
      }
    },
  });
}

const JSON_OPENING = /^[[{]$/;

/**
 * A body that looks like JSON is JSON, because callers omit Content-Type or send the wrong one; so is a body without
 * Content-Type.
 */
function createParser(limit: number): Middleware {
  const options = {
    detectJSON: (ctx: Context) => JSON_OPENING.test(ctx.state.opening) || ctx.is('*/*') === false,
    extendTypes: { form: ['*/*'] },
    jsonLimit: String(limit),
    formLimit: String(limit),
    // Parameters are looked up by name in a Map, where `__proto__` is a name like any other.
    onProtoPoisoning: 'ignore',
    // Replaces the package qs, which merges the structs of a list as Ruby writes them (`to[][email]=a&to[][name]=A`)
    // into one.
    qs: { parse: parseForm },
  };
  return bodyParser(options);
}

const DECODERS = new Map<string, () => Transform>([
  ['gzip', createUnzip],
  ['deflate', createUnzip],
  ['br', createBrotliDecompress],
]);

interface OpenBody {
  /** Decoded; without headers, because those of the request describe the encoded body. */
  readonly body: Readable & { readonly headers: object };
  /** The first character that is not space; '' if there is none. Rejects if the body fails first. */
  readonly opening: Promise<string>;
}

/**
 * The body of a request, decoded here and not by the parser, because the decoded size counts as room taken, from
 * arrival until the call is answered. Discards leading space.
 */
function openBody({ req, res }: Context, { limit, room }: SizeClass, who: string): OpenBody {
  const encoding = (req.headers['content-encoding'] ?? 'identity').toLowerCase();
  const decoder = DECODERS.get(encoding)?.();
  if (!decoder && encoding !== 'identity') throw invalid({ body: 'The content encoding is not supported' }, 415);
  const { promise: opening, resolve, reject } = Promise.withResolvers<string>();
  const text = createTextCheck();
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
    const more = Math.max(0, size - FREE_BYTES) - held;
    const taken = more > 0 && !answered ? room.take(who, more) : undefined;
    if (taken === 'own-share') return refusal('RequestLimitExceeded');
    if (taken === 'all') return refusal('ServiceUnavailable');
    if (taken === 'taken') held += more;
    return undefined;
  }

  const checked = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (text.opening() === '' && chunk.every(isSpace)) {
        space += chunk.length;
        return done(space > limit ? overLimit(limit) : null);
      }
      const fault = text.faultOf(chunk) ?? takeRoom(chunk.length);
      if (fault) return done(fault);
      if (text.opening() !== '') resolve(text.opening());
      done(null, chunk);
    },
    flush(done) {
      resolve(text.opening());
      done(text.faultOf(undefined));
    },
  });
  const fail = (error: Error) => checked.destroy(error);
  checked.on('error', reject);
  // Not `pipeline`: it would close the connection with the body, before the client reads the error.
  req.once('error', fail);
  req.once('close', () => {
    if (!req.complete) fail(new Error('the request was cut off'));
  });
  decoder?.once('error', fail);
  if (decoder) req.pipe(decoder).pipe(checked);
  else req.pipe(checked);
  return { body: Object.assign(checked, { headers: {} }), opening };
}

/** Whitespace between JSON values. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** Checks the text of a body as it streams by: the parser would turn invalid UTF-8 into U+FFFD and accept any depth. */
function createTextCheck() {
  const utf8 = new TextDecoder('utf-8', { fatal: true });
  const isTooDeep = createDepthCheck(MAX_DEPTH);
  let opening = '';
  return {
    opening: () => opening,
    /** What is wrong with the next chunk; `undefined` stands for the end of the body. */
    faultOf(chunk: Buffer | undefined): Refusal | null {
      try {
        const text = utf8.decode(chunk, { stream: chunk !== undefined });
        if (opening === '') opening = /[^ \t\r\n]/.exec(text)?.[0] ?? '';
      } catch {
        return invalid({ body: 'The body is not valid UTF-8' });
      }
      return chunk && JSON_OPENING.test(opening) && isTooDeep(chunk)
        ? invalid({ body: `The JSON is nested deeper than ${MAX_DEPTH} levels` })
        : null;
    },
  };
}

/**
 * Counts nesting levels before JSON is parsed: JSON.parse accepts 200,000 of them, and code that walks the result would
 * overflow the stack. Strings are skipped by byte search, so a message of megabytes costs next to nothing.
 */
function createDepthCheck(limit: number): (chunk: Buffer) => boolean {
  let depth = 0;
  let inString = false;
  /** The previous chunk ended in a string, with a backslash that escapes the first byte of this one. */
  let escaped = false;
  return (chunk) => {
    for (let at = 0; at < chunk.length; at++) {
      if (inString) {
        const quote = chunk.indexOf(0x22, at);
        const end = quote < 0 ? chunk.length : quote;
        let slashes = end;
        while (slashes > at && chunk[slashes - 1] === 0x5c) slashes--;
        const isOdd = (end - slashes + Number(escaped && slashes === at)) % 2 === 1;
        escaped = quote < 0 && isOdd;
        inString = quote < 0 || isOdd;
        at = end;
        continue;
      }
      const byte = chunk[at];
      if (byte === 0x22) inString = true;
      else if (byte === 0x7b || byte === 0x5b) {
        if (++depth > limit) return true;
      } else if (byte === 0x7d || byte === 0x5d) depth--;
    }
    return false;
  };
}

function overLimit(limit: number): Refusal {
  return invalid({ body: `The body is larger than ${limit} bytes` }, 413);
}

/**
 * Errors while reading a body are the client's fault. A parser's message is not passed on: it would echo the body, and
 * with it the key.
 */
function toRefusal(error: unknown, limit: number): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof UnreadableForm) return invalid({ body: error.message });
  if (error instanceof SyntaxError) return invalid({ body: 'The body is not valid JSON' });
  const status = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
  return status === 413 ? overLimit(limit) : invalid({ body: 'The body could not be read' });
}
