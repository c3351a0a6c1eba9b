import { createBytePasses, OVERREAD_BYTES } from '../base/byte-passes.ts';
import { freeChunk } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { queued, REFUSALS, type Reply } from './replies.ts';

/** The result of a message: its reply and size, and its id if it was accepted. */
export interface Received {
  readonly reply: Reply;
  readonly messageId?: string;
  readonly size: number;
}

/** The result of a chunk: empty while more is expected, else the result of the message and the bytes after it. */
type Progress = { readonly ended?: undefined } | { readonly ended: Received; readonly rest: Buffer };

/** The reception of one message, from 354 to its final reply. */
export type Reception = ReturnType<typeof openReception>;

/** The destination of a message's bytes: the spool, or memory until it is submitted. */
export interface MessageSink {
  readonly messageId: string;
  /**
   * Returns undefined or a promise to await. It resolves with a refusal if no more fits: the rest of the message is
   * then read and discarded.
   */
  write(bytes: Buffer): Promise<Reply | undefined> | undefined;
  /** Takes responsibility for the message, and only then returns the id for the reply. */
  finish(): Promise<{ readonly id: string } | { readonly id?: undefined; readonly refused: Reply }>;
  /** Discards what was written; may be called again, and after `finish`. */
  abort(): Promise<void>;
}

const MORE: Progress = {};
const NOTHING: Buffer = Buffer.alloc(0);

/**
 * Receives a message into a sink. After an error the bytes are still read to their end and discarded, because the
 * client expects no reply before that.
 */
export function openReception(
  settings: {
    readonly maxMessageBytes: number;
    /** The maximum size by the number of recipients (workload.ts). */
    readonly mostBytes: number;
    readonly maxReceived: number;
    readonly bareNewline: BareNewline;
  },
  deps: { readonly sink: MessageSink; readonly log: Log },
) {
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

  /** Returns undefined if there is nothing to wait for, as for all but large messages. */
  function keep(pieces: readonly Buffer[]): Promise<unknown> | undefined {
    for (const piece of pieces) size += piece.length;
    if (refused) return void pieces.forEach(freeChunk);
    if (size > settings.maxMessageBytes) return refuse(REFUSALS.tooBig);
    if (size > settings.mostBytes) return refuse(REFUSALS.tooMuchInAll);
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
    /** Processes the next bytes from the client; await the result before the next. Never throws. */
    async take(chunk: Buffer): Promise<Progress> {
      const { pieces, state, rest } = scanner.scan(chunk);
      if (state === 'bare') {
        await sink.abort();
        return { ended: { reply: REFUSALS.bareLineEnding, size }, rest: NOTHING };
      }
      // A copy: the memory of the chunks may be transferred to another thread with the message.
      const behind = rest.length === 0 ? NOTHING : Buffer.from(rest);
      const kept = keep(pieces);
      if (kept) await kept;
      if (state === 'more') return MORE;
      return { ended: await finish(), rest: behind };
    },
    /** Called when the client disconnects. */
    abort: (): Promise<void> => sink.abort(),
  });
}

/** The result of scanning a chunk of DATA: content without dot-stuffing, and the state after it. */
interface Scanned {
  readonly pieces: readonly Buffer[];
  /**
   * more: no end yet · end: CRLF.CRLF was found · bare: a NUL, or a bare CR or LF that is not accepted; nothing after
   * it can be trusted.
   */
  readonly state: 'more' | 'end' | 'bare';
  /** The bytes after the end. */
  readonly rest: Buffer;
}

/** How to handle a CR or LF that is not part of a CRLF: reject the message, or store it as a line end, CRLF. */
export type BareNewline = 'reject' | 'normalize';

const NUL = 0;
const LF = 10;
const CR = 13;
const DOT = 46;
// Slices of the slab that Node uses for short strings, which `freeChunk` does not free.
const ONE_CR: Buffer = Buffer.from('\r');
const ONE_LF: Buffer = Buffer.from('\n');
const CRLF: Buffer = Buffer.from('\r\n');

/** The most bytes that a socket reads at once. */
const WASM_CHUNK_BYTES = 64 * 1024;
/** For shorter chunks the copy costs more than it saves. */
const MIN_WASM_BYTES = 256;
const passes = createBytePasses(WASM_CHUNK_BYTES + OVERREAD_BYTES);

/** Copies a chunk to where `passes.contentLength` reads it; returns the number of bytes copied. */
function copyToWasm(chunk: Buffer): number {
  if (chunk.length < MIN_WASM_BYTES) return 0;
  return chunk.copy(passes.memory, 0, 0, WASM_CHUNK_BYTES);
}

/**
 * Scans the bytes between 354 and CRLF.CRLF, in chunks of any size.
 *
 * Only CRLF.CRLF ends a message: a server that takes "LF.LF" as the end sees two messages where the sender's server saw
 * one (SMTP smuggling). This holds even if bare line ends are accepted: they end lines of the content, and a dot after
 * one is content, or the dot-stuffing of a client that sends no other line ends. One pass over the bytes; a chunk
 * without a dot at the start of a line or a bare line end is returned uncopied.
 */
export function createDataScanner(bareNewline: BareNewline) {
  const refuses = bareNewline === 'reject';
  // Where the last chunk ended: within a line, after its CR, at the start of a line, after a dot or dot and CR there.
  let at: 'line' | 'cr' | 'start' | 'dot' | 'dotcr' = 'start';
  // Whether the current line began after a CRLF. No other line can be the end.
  let proper = true;

  function scan(chunk: Buffer): Scanned {
    const length = chunk.length;
    const laid = copyToWasm(chunk);
    const pieces: Buffer[] = [];
    let from = 0;
    let i = 0;
    const keep = (end: number) => {
      if (end > from) pieces.push(chunk.subarray(from, end));
    };
    /** Keeps the bytes read so far, then adds bytes that were not sent. */
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
        // Skips nearly all bytes. Of the remaining ones, all above CR are content.
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
        // Only the first dot of a line is removed (RFC 5321 section 4.5.2), whatever follows it.
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

// A header section is not examined beyond this size: 50 Received fields need a tenth of it.
const MAX_EXAMINED = 256 * 1024;
const END_OF_HEADER = '\r\n\r\n';

/** Counts the Received fields of a message as it arrives, to detect mail loops (RFC 5321 section 6.3). */
function createReceivedCount() {
  // Starts with CRLF, so that every field, even the first, follows a line end.
  let header = '\r\n';
  let complete = false;
  return frozen({
    see(bytes: Buffer) {
      if (complete) return;
      const already = Math.max(0, header.length - END_OF_HEADER.length);
      const end = bytes.indexOf(END_OF_HEADER);
      // The first empty line of this chunk is far enough; one split across two chunks is found below.
      header += bytes.toString('latin1', 0, end < 0 ? bytes.length : end + END_OF_HEADER.length);
      complete = header.indexOf(END_OF_HEADER, already) >= 0 || header.length > MAX_EXAMINED;
    },
    count: (): number => header.slice(0, endOf(header)).match(/\r\nreceived[ \t]*:/gi)?.length ?? 0,
  });
}

function endOf(header: string): number {
  const end = header.indexOf(END_OF_HEADER);
  return end < 0 ? header.length : end;
}
