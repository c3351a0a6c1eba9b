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

// koa-bodyparser reads JSON and forms and holds them to their size. In front of it stands a stream of our own, for what
// has to be known before anything is parsed: room and speed, the encoding, the nesting, and how the body begins.

export interface BodySettings {
  readonly maxBodyBytes: number;
  readonly maxMessageBytes: number;
  /** The slowest that a body may arrive: bytes a second over any ten seconds. */
  readonly minBodyRate: number;
}

/** Reads bodies within their limits of size, time, speed and number. */
interface BodyReader {
  /**
   * The parameters of a call. `large`: a message or a template may be inside. `client` is its address. Throws refusals
   * only.
   */
  read(ctx: Context, large: boolean, client: string): Promise<Params>;
}

/** JSON writes a line end or a quote as two bytes and a control character as six; mail has few of them. */
const MESSAGE_IN_JSON = 1.4;
const SLACK_BYTES = 65_536;
/**
 * Bodies are held in memory before anybody knows whose they are, for the key is inside. What is counted is what has
 * arrived: a header that promises megabytes takes room from nobody. So many bytes of every body are free, so that a
 * small call is never refused for room; what all connections (server.ts) could hold of them is 128 MiB.
 */
const FREE_BYTES = 65_536;
/** Beyond them there is room for so many of the largest bodies in all, and for so many of one address. */
const LARGE = { all: 8, each: 2 };
/**
 * The same for operations that carry no message: theirs is room of its own, because small calls must not wait for large
 * ones.
 */
const SMALL = { all: 64, each: 16 };
/** How long a body may take to arrive, absolutely: milliseconds. */
const BODY_MS = 30_000;
const LARGE_BODY_MS = 120_000;
/**
 * The window of the floor of speed, in seconds. That of SMTP is longer, because mail servers queue and HTTP clients do
 * not.
 */
const RATE_WINDOW_S = 10;
const SECOND_MS = 1000;
/** How long the rest of a refused body is read and thrown away, so that the client gets to read the refusal. */
const LINGER_MS = 5_000;

/** What bodies of one size are held to. */
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
  // Where messages are small a template may still be as large as its own limits say.
  const largest = Math.max(settings.maxMessageBytes, MAX_CODE_BYTES + MAX_TEXT_BYTES);
  const large = classOf(Math.ceil(largest * MESSAGE_IN_JSON) + SLACK_BYTES, LARGE, LARGE_BODY_MS);
  const floor = { rate: settings.minBodyRate, seconds: RATE_WINDOW_S };

  /** Rejects when the deadline has passed, or the body comes too slowly. */
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
      // The parser reads `ctx.req`; what it gets here is the same body, decoded and checked.
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
        // A client that asks before it sends (RFC 9110 section 10.1.1) may. Who gets no such word is refused, and Node
        // ends the connection.
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
 * JSON is what looks like JSON, because callers forget the type or name the wrong one; what has no type at all can be
 * nothing else.
 */
function createParser(limit: number): Middleware {
  const options = {
    detectJSON: (ctx: Context) => JSON_OPENING.test(ctx.state.opening) || ctx.is('*/*') === false,
    extendTypes: { form: ['*/*'] },
    jsonLimit: String(limit),
    formLimit: String(limit),
    // Parameters are looked up by name in a Map, where `__proto__` is a name like any other.
    onProtoPoisoning: 'ignore',
    // Instead of the package qs: it reads the structs of a list as Ruby writes them (`to[][email]=a&to[][name]=A`) as
    // one.
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
  /** Decoded, and without headers: those of the request are about what travels. */
  readonly body: Readable & { readonly headers: object };
  /** The first character that is not space; '' when there is none. Rejects when the body fails before. */
  readonly opening: Promise<string>;
}

/**
 * The body of a request, decoded here and not by the parser, because what it becomes is what takes room: from when it
 * arrives until the call has been answered. Space in front of it is thrown away.
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
  // Not `pipeline`: that would end the connection with the body, and the client would never read why.
  req.once('error', fail);
  req.once('close', () => {
    if (!req.complete) fail(new Error('the request was cut off'));
  });
  decoder?.once('error', fail);
  if (decoder) req.pipe(decoder).pipe(checked);
  else req.pipe(checked);
  return { body: Object.assign(checked, { headers: {} }), opening };
}

/** What JSON has between its values. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** Looks at the text of a body as it comes by. The parser would read broken UTF-8 as U+FFFD, and any depth. */
function createTextCheck() {
  const utf8 = new TextDecoder('utf-8', { fatal: true });
  const isTooDeep = createDepthCheck(MAX_DEPTH);
  let opening = '';
  return {
    opening: () => opening,
    /** What is wrong with the next chunk, or with the end. */
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
 * Counts the levels of JSON before it is parsed: JSON.parse takes 200,000 of them, and what touches the result
 * afterwards dies of it. Strings are passed over by a search for bytes, so that a message of megabytes costs next to
 * nothing.
 */
function createDepthCheck(limit: number): (chunk: Buffer) => boolean {
  let depth = 0;
  let inString = false;
  /** The chunk before ended in a string, with a backslash for what comes first in this one. */
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
 * Whatever goes wrong while a body is read is the client's doing. The words of a parser would echo the body, and with
 * it the key.
 */
function toRefusal(error: unknown, limit: number): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof UnreadableForm) return invalid({ body: error.message });
  if (error instanceof SyntaxError) return invalid({ body: 'The body is not valid JSON' });
  const status = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
  return status === 413 ? overLimit(limit) : invalid({ body: 'The body could not be read' });
}
