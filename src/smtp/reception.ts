import { createBytePasses, SLACK } from '../base/byte-passes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { giveBack } from '../base/room.ts';
import { queued, REFUSALS, type Reply } from './replies.ts';

/** How a message ended: with a reply, and with its id and size when it is ours now. */
export interface Received {
  readonly reply: Reply;
  readonly messageId?: string;
  readonly size: number;
}

/** What a chunk brought: nothing yet, or the end and the bytes behind it. */
type Progress = { readonly ended?: undefined } | { readonly ended: Received; readonly rest: Buffer };

/** One message between 354 and its reply. */
export interface Reception {
  /** Takes the next bytes as they came from the client; wait for the answer before the next. Never throws. */
  take(chunk: Buffer): Promise<Progress>;
  /** The client went away. */
  abort(): Promise<void>;
}

/** Where the bytes of one message go: the spool, or memory until it is submitted. */
export interface MessageSink {
  readonly messageId: string;
  /**
   * Nothing to wait for, or a wait; answers a refusal when no more can be held: the rest of the message is then read
   * and dropped.
   */
  write(bytes: Buffer): Promise<Reply | undefined> | undefined;
  /** Takes responsibility, and only then answers the id that the client is told. */
  finish(): Promise<{ readonly id: string } | { readonly id?: undefined; readonly refused: Reply }>;
  /** Forgets what was written; may be called again, and after `finish`. */
  abort(): Promise<void>;
}

const MORE: Progress = {};
const NOTHING: Buffer = Buffer.alloc(0);

/**
 * Brings a message from the client to where it is kept. Whatever goes wrong, the bytes are still read to their end,
 * because the client hears nothing before that; they just go nowhere.
 */
export function openReception(
  settings: { readonly maxMessageBytes: number; readonly maxReceived: number; readonly bareNewline: BareNewline },
  deps: { readonly sink: MessageSink; readonly log: Log },
): Reception {
  const { sink } = deps;
  const { messageId } = sink;
  const scanner = createDataScanner(settings.bareNewline);
  const received = createReceivedCount();
  let size = 0;
  let refused: Reply | undefined;

  async function refuse(reply: Reply, fault?: unknown): Promise<Reply> {
    if (fault !== undefined) deps.log.error('smtp.fault', { message: messageId, fault });
    refused ??= reply;
    await sink.abort();
    return refused;
  }

  /** Answers nothing when there is nothing to wait for, as with all but large messages. */
  function keep(pieces: readonly Buffer[]): Promise<unknown> | undefined {
    for (const piece of pieces) size += piece.length;
    if (refused) return void pieces.forEach(giveBack);
    if (size > settings.maxMessageBytes) return refuse(REFUSALS.tooBig);
    const bytes = pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
    if (bytes === undefined || bytes.length === 0) return undefined;
    received.see(bytes);
    return sink
      .write(bytes)
      ?.then((full) => (full === undefined ? undefined : refuse(full)))
      .catch((fault: unknown) => refuse(REFUSALS.fault, fault));
  }

  async function finish(): Promise<Received> {
    if (refused) return { reply: refused, size };
    if (received.count() > settings.maxReceived) return { reply: await refuse(REFUSALS.mailLoop), size };
    try {
      const kept = await sink.finish();
      return kept.id === undefined
        ? { reply: await refuse(kept.refused), size }
        : { reply: queued(kept.id), messageId: kept.id, size };
    } catch (fault) {
      return { reply: await refuse(REFUSALS.fault, fault), size };
    }
  }

  return frozen({
    async take(chunk): Promise<Progress> {
      const { pieces, state, rest } = scanner.scan(chunk);
      if (state === 'bare') {
        await sink.abort();
        return { ended: { reply: REFUSALS.bareLineEnding, size }, rest: NOTHING };
      }
      // A copy: with the message the memory of its chunks may be given away to another thread.
      const behind = rest.length === 0 ? NOTHING : Buffer.from(rest);
      const kept = keep(pieces);
      if (kept) await kept;
      if (state === 'more') return MORE;
      return { ended: await finish(), rest: behind };
    },
    abort: () => sink.abort(),
  });
}

/** What a chunk of DATA was: content without its dot-stuffing, and how it goes on. */
interface Scanned {
  readonly pieces: readonly Buffer[];
  /**
   * more: no end yet · end: CRLF.CRLF came · bare: a NUL came, or a bare CR or LF that is not taken; nothing behind it
   * may be believed.
   */
  readonly state: 'more' | 'end' | 'bare';
  /** What came behind the end. */
  readonly rest: Buffer;
}

/** Reads the bytes between 354 and CRLF.CRLF, in whatever chunks they come. */
interface DataScanner {
  scan(chunk: Buffer): Scanned;
}

/**
 * What becomes of a CR or LF that is not part of a CRLF: the message is refused, or it ends a line and is kept as CRLF.
 */
export type BareNewline = 'reject' | 'normalize';

const NUL = 0;
const LF = 10;
const CR = 13;
const DOT = 46;
// Slices of the slab that Node keeps for short texts: whoever frees the memory of a chunk behind him leaves that alone.
const ONE_CR: Buffer = Buffer.from('\r');
const ONE_LF: Buffer = Buffer.from('\n');
const CRLF: Buffer = Buffer.from('\r\n');

/** What a socket reads at once, at most. */
const ROOM = 64 * 1024;
/** Of a shorter chunk less would be won than lost. */
const WORTH = 256;
const passes = createBytePasses(ROOM + SLACK);

/** Lays a chunk down for `passes.contentLength`; answers how much of it. */
function layDown(chunk: Buffer): number {
  if (chunk.length < WORTH) return 0;
  return chunk.copy(passes.memory, 0, 0, ROOM);
}

/**
 * Only CRLF.CRLF ends a message: whoever reads "LF.LF" as an end sees two messages where the sender's server saw one
 * (SMTP smuggling). That holds too where bare line ends are taken: they end lines of the content, and a dot behind one
 * is content, or the stuffing of a client that knows no other line ends. One pass over the bytes; a chunk that holds no
 * dot at the start of a line and no bare line end comes out as it went in, uncopied.
 */
export function createDataScanner(bareNewline: BareNewline): DataScanner {
  const refuses = bareNewline === 'reject';
  // Where the last chunk ended: within a line, behind its CR, at the start of one, behind a dot there, or behind dot
  // and CR.
  let at: 'line' | 'cr' | 'start' | 'dot' | 'dotcr' = 'start';
  // Whether the present line began behind CRLF. No other can be the end.
  let proper = true;

  function scan(chunk: Buffer): Scanned {
    const length = chunk.length;
    const laid = layDown(chunk);
    const pieces: Buffer[] = [];
    let from = 0;
    let i = 0;
    const keep = (end: number) => {
      if (end > from) pieces.push(chunk.subarray(from, end));
    };
    /** Keeps what was read, and then these bytes, which were not sent so. */
    const insert = (bytes: Buffer) => {
      keep(i);
      pieces.push(bytes);
      from = i;
    };
    const startLine = (behindCrlf: boolean) => {
      at = 'start';
      proper = behindCrlf;
    };
    const done = (state: Scanned['state'], rest = NOTHING): Scanned => ({ pieces, state, rest });
    while (i < length) {
      if (at === 'line') {
        // Nearly everything is passed over here. Of what is left everything above CR is content, whatever it is.
        if (i < laid) i += passes.contentLength(i, laid - i);
        while (i < length && (chunk[i] ?? 0) > CR) i++;
        if (i === length) break;
      }
      const byte = chunk[i] ?? 0;
      if (at === 'line') {
        if (byte === NUL || (byte === LF && refuses)) return done('bare');
        if (byte === CR) at = 'cr';
        if (byte === LF) {
          insert(ONE_CR);
          startLine(false);
        }
        i++;
      } else if (at === 'cr') {
        if (byte === LF) {
          startLine(true);
          i++;
        } else {
          if (refuses) return done('bare');
          insert(ONE_LF);
          startLine(false);
        }
      } else if (at === 'start') {
        if (byte === DOT) {
          keep(i);
          from = ++i;
          at = 'dot';
        } else at = 'line';
      } else if (at === 'dot') {
        // Only the first dot of a line is taken away (RFC 5321 section 4.5.2), whatever comes behind it.
        if (byte === CR) {
          from = ++i;
          at = 'dotcr';
        } else at = 'line';
      } else {
        if (byte === LF && proper) return done('end', chunk.subarray(i + 1));
        if (refuses) return done('bare');
        if (byte === LF) from = ++i;
        insert(CRLF);
        startLine(byte === LF);
      }
    }
    keep(length);
    return done('more');
  }

  return frozen({ scan });
}

// A header section beyond this is refused an examination: 50 Received lines need a tenth of it.
const MAX_EXAMINED = 256 * 1024;
const END_OF_HEADER = '\r\n\r\n';

/**
 * Counts the Received lines of a message while it arrives, to find one that goes in a circle (RFC 5321 section 6.3).
 */
interface ReceivedCount {
  see(bytes: Buffer): void;
  count(): number;
}

function createReceivedCount(): ReceivedCount {
  // With an empty line before it every header line begins behind a line end, the first one too.
  let header = '\r\n';
  let complete = false;
  return frozen({
    see(bytes) {
      if (complete) return;
      const already = Math.max(0, header.length - END_OF_HEADER.length);
      const end = bytes.indexOf(END_OF_HEADER);
      // Up to the first empty line of this chunk is enough; one that lies across two chunks is found below.
      header += bytes.toString('latin1', 0, end < 0 ? bytes.length : end + END_OF_HEADER.length);
      complete = header.indexOf(END_OF_HEADER, already) >= 0 || header.length > MAX_EXAMINED;
    },
    count: () => header.slice(0, endOf(header)).match(/\r\nreceived[ \t]*:/gi)?.length ?? 0,
  });
}

function endOf(header: string): number {
  const end = header.indexOf(END_OF_HEADER);
  return end < 0 ? header.length : end;
}
