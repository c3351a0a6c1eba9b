import { type FileHandle, open } from 'node:fs/promises';
import {
  CELLS_BYTES,
  createBytePasses,
  OVERREAD_BYTES,
  SET_BYTES,
  toByteSet,
  toCells,
} from '../../base/byte-passes.ts';
import { type Bytes, freeChunk, joined } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import { runningMandrillSignature, runningStandardSignature } from '../signing.ts';
import type { Piece, Plain } from './pieces.ts';

/** The input of a POST's signatures. */
interface Signing {
  /** The first one signs for X-Mandrill-Signature, all sign for webhook-signature. */
  readonly keys: readonly string[];
  /** Exactly as configured. */
  readonly url: string;
  /** Sent as `webhook-id`. */
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
}

type FormHeaders = Readonly<Record<string, string>>;

const PARAMETER = 'mandrill_events';
const PREFIX = Buffer.from(`${PARAMETER}=`, 'latin1');

/** Encodes JSON text as form bodies, and signs them in the same pass. */
export type FormEncoder = ReturnType<typeof createFormEncoder>;

/** The file for a body of more than `most` bytes. */
interface BodyFile {
  readonly path: string;
  readonly most: number;
}

export function createFormEncoder() {
  const encoding = createEncoding();

  /** `keep` selects the encoding of each piece that becomes the body. */
  async function writeBody(
    pieces: Iterable<Piece | Plain>,
    { path, most }: BodyFile,
    keep: (value: Uint8Array, form: Uint8Array) => Uint8Array,
  ): Promise<Bytes> {
    const store = createStore(path, most);
    const take = (value: Uint8Array, form: Uint8Array): void => store.add(keep(value, form));
    try {
      encoding.begin(take);
      for (const piece of pieces) {
        if (typeof piece !== 'string' && 'bytes' in piece) {
          encoding.end();
          for (let at = 0; at < piece.bytes.length; at += MUCH_AT_ONCE) {
            const bytes = piece.bytes.subarray(at, at + MUCH_AT_ONCE);
            take(bytes, bytes);
            if (store.isFull()) await store.flush();
          }
          encoding.resume(take);
        } else encoding.add(piece);
        if (!store.isFull()) continue;
        // The encoder is shared: other forms use it while this one waits for the disk.
        encoding.end();
        await store.flush();
        encoding.resume(take);
      }
      encoding.end();
      return await store.finish();
    } finally {
      await store.close();
    }
  }

  return frozen({
    /** For events that fit in memory. The bytes have their own buffer. */
    toBytes(
      pieces: Iterable<Piece>,
      signing: Signing,
    ): { readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: FormHeaders } {
      const signatures = startSignatures(signing);
      const forms: Uint8Array<ArrayBuffer>[] = [];
      encoding.begin((value, form) => {
        signatures.add(value, form);
        forms.push(new Uint8Array(form));
      });
      for (const piece of pieces) encoding.add(piece);
      encoding.end();
      const [only] = forms;
      return { bytes: forms.length === 1 && only ? only : joined(forms), headers: signatures.headers() };
    },
    /**
     * Writes a form of more than `most` bytes to a file; a smaller one has its own buffer. Holds at most that and a
     * few pieces in memory, and lets the thread do other work in between. Throws if the disk fails.
     */
    async toBody(
      pieces: Iterable<Piece>,
      signing: Signing,
      file: BodyFile,
    ): Promise<{ readonly body: Bytes; readonly headers: FormHeaders }> {
      const signatures = startSignatures(signing);
      const body = await writeBody(pieces, file, (value, form) => {
        signatures.add(value, form);
        return form;
      });
      return { body, headers: signatures.headers() };
    },
    /** As `toBody`, but writes the pieces unencoded and unsigned. */
    toJson: (pieces: Iterable<Piece | Plain>, file: BodyFile) => writeBody(pieces, file, (value) => value),
    /** As `toBody`, but writes the pieces unencoded, with the headers of every format. */
    async toPost(
      { type, pieces }: { readonly type: string; readonly pieces: Iterable<Piece | Plain> },
      { keys, id, at }: Signing,
      file: BodyFile,
    ): Promise<{ readonly body: Bytes; readonly headers: FormHeaders }> {
      const timestamp = Math.floor(at / 1000);
      const signature = runningStandardSignature(keys, id, timestamp);
      const body = await writeBody(pieces, file, (value) => {
        signature.update(value);
        return value;
      });
      return { body, headers: { 'Content-Type': type, ...standardHeaders(id, timestamp, signature.digest()) } };
    },
  });
}

/** Bytes to collect before a write to the file. */
const MUCH = 256 * 1024;

/** Keeps the parts of a form in memory, or in a file once they exceed `most` bytes. */
function createStore(path: string, most: number) {
  let size = 0;
  let held = 0;
  let parts: Buffer<ArrayBuffer>[] = [];
  const spare: Buffer<ArrayBuffer>[] = [];
  let file: FileHandle | undefined;
  let writing: Promise<void> = Promise.resolve();

  async function write(target: FileHandle, some: readonly Buffer<ArrayBuffer>[]): Promise<void> {
    for (const part of some) {
      await target.writeFile(part);
      spare.push(Buffer.from(part.buffer));
    }
  }
  /** Starts the write; the next parts may be encoded meanwhile. */
  async function flush(): Promise<void> {
    file ??= await open(path, 'w', 0o600);
    await writing;
    writing = write(file, parts);
    writing.catch(() => undefined); // the next flush, or finish, rejects with it
    parts = [];
    held = 0;
  }

  return {
    add(form: Uint8Array): void {
      const room = spare.pop() ?? Buffer.allocUnsafeSlow(FORM_ROOM);
      room.set(form);
      parts.push(room.subarray(0, form.length));
      held += form.length;
      size += form.length;
    },
    isFull: () => held > (file ? MUCH : Math.max(MUCH, most)),
    flush,
    async finish(): Promise<Bytes> {
      if (file === undefined && size <= most) return { kind: 'memory', bytes: joined(parts) };
      await flush();
      await writing;
      return { kind: 'file', path, size };
    },
    /** Frees memory now instead of at the next garbage collection. */
    async close(): Promise<void> {
      await writing.catch(() => undefined);
      for (const { buffer } of [...parts, ...spare]) freeChunk(new Uint8Array(buffer));
      await file?.close();
    },
  };
}

function startSignatures({ keys, url, id, at }: Signing) {
  const timestamp = Math.floor(at / 1000);
  const mandrill = runningMandrillSignature(keys[0] ?? '', url, PARAMETER);
  const standard = runningStandardSignature(keys, id, timestamp);
  return {
    add(value: Uint8Array, form: Uint8Array): void {
      mandrill.update(value);
      standard.update(form);
    },
    headers: (): FormHeaders => ({
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Mandrill-Signature': mandrill.digest(),
      ...standardHeaders(id, timestamp, standard.digest()),
    }),
  };
}

/** The headers of Standard Webhooks. */
function standardHeaders(id: string, timestamp: number, signature: string): FormHeaders {
  return { 'webhook-id': id, 'webhook-timestamp': String(timestamp), 'webhook-signature': signature };
}

/** Receives text as UTF-8 and as form encoding. Both are valid only during the call. */
type Take = (value: Uint8Array, form: Uint8Array) => void;

/** Maximum output bytes per byte of text: `\u001f`, and `%5Cu001f`. */
const MAX_VALUE = 6;
const MAX_FORM = 8;
/** Bytes that are copied at once; they must fit into the room of a form. */
const MUCH_AT_ONCE = 128 * 1024;
/** Input bytes per pass. */
const SLICE = 16 * 1024;
/** Room for one slice of maximum growth and several that do not grow. */
const VALUE_ROOM = MAX_VALUE * SLICE + 64 * 1024;
const FORM_ROOM = MAX_FORM * SLICE + 80 * 1024;

// Memory layout of an encoding: offsets.
const PLAIN = 0;
const ENDS = SET_BYTES;
const TEXT_CELLS = 64;
const JSON_CELLS = TEXT_CELLS + CELLS_BYTES;
const LINES_CELLS = JSON_CELLS + CELLS_BYTES;
const INPUT = LINES_CELLS + CELLS_BYTES;
const VALUE = INPUT + SLICE + OVERREAD_BYTES;
const FORM = VALUE + VALUE_ROOM + OVERREAD_BYTES;
const MEMORY = FORM + FORM_ROOM + OVERREAD_BYTES;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const HEX = Buffer.from('0123456789ABCDEF', 'latin1');

// Letters, digits and -_. are unchanged, a space is +, everything else is %XX (as PHP's urlencode). None of the
// unchanged bytes needs an escape in JSON either.
const isPlain = (byte: number): boolean => /[A-Za-z0-9._-]/.test(String.fromCharCode(byte));

function toForm(bytes: Uint8Array): Uint8Array {
  const form: number[] = [];
  for (const byte of bytes) {
    if (isPlain(byte)) form.push(byte);
    else if (byte === SPACE) form.push(0x2b);
    else form.push(0x25, HEX[byte >> 4] ?? 0, HEX[byte & 15] ?? 0);
  }
  return Uint8Array.from(form);
}

function cellsOf(valueOf: (byte: number) => Uint8Array): Buffer {
  return toCells((byte) => ({ value: valueOf(byte), form: toForm(valueOf(byte)) }));
}

const PLAIN_SET = toByteSet((byte) => isPlain(byte) || byte === SPACE);
/** Text inside a JSON string, escaped as by JSON.stringify; bytes above ASCII are UTF-8. */
const CELLS_OF_TEXT = cellsOf((byte) =>
  byte < 128 ? Buffer.from(JSON.stringify(String.fromCharCode(byte)).slice(1, -1)) : Uint8Array.of(byte),
);
/** JSON, unchanged. */
const CELLS_OF_JSON = cellsOf((byte) => Uint8Array.of(byte));
/** JSON, without line ends. */
const CELLS_OF_LINES = cellsOf((byte) => (byte === CR || byte === LF ? new Uint8Array(0) : Uint8Array.of(byte)));

/** Writes JSON text as UTF-8 and as form encoding in one pass. */
export function createEncoding() {
  const { memory, encode } = createBytePasses(MEMORY);
  memory.set(PLAIN_SET, PLAIN);
  memory.set(CELLS_OF_TEXT, TEXT_CELLS);
  memory.set(CELLS_OF_JSON, JSON_CELLS);
  memory.set(CELLS_OF_LINES, LINES_CELLS);
  const input = memory.subarray(INPUT, INPUT + SLICE);
  const ends = new Uint32Array(memory.buffer, ENDS, 2);
  const encoder = new TextEncoder();
  let take: Take = () => undefined;
  let value = VALUE;
  let form = FORM;

  function drain(): void {
    if (form > FORM) take(memory.subarray(VALUE, value), memory.subarray(FORM, form));
    value = VALUE;
    form = FORM;
  }
  /** Encodes `length` bytes of `input`. The byte after them is read as well, to detect a CRLF. */
  function write(length: number, cells: number, toLf: boolean): void {
    if (value + MAX_VALUE * length > FORM - OVERREAD_BYTES || form + MAX_FORM * length > MEMORY - OVERREAD_BYTES)
      drain();
    encode(INPUT, length, PLAIN, cells, toLf ? 1 : 0, value, form, ENDS);
    value = ends[0] ?? VALUE;
    form = ends[1] ?? FORM;
  }
  function addBytes(bytes: Uint8Array, cells: number, toLf: boolean): void {
    for (let from = 0; from < bytes.length; from += SLICE) {
      const length = Math.min(SLICE, bytes.length - from);
      memory.set(bytes.subarray(from, from + length), INPUT);
      memory[INPUT + length] = bytes[from + length] ?? 0;
      write(length, cells, toLf);
    }
  }
  function addText(text: string, cells: number, toLf: boolean): void {
    for (let from = 0; from < text.length; ) {
      let { read, written } = encoder.encodeInto(from === 0 ? text : text.slice(from), input);
      from += read;
      if (from < text.length && written > 1 && input[written - 1] === CR) {
        // Its LF may be the next character, so it goes into the next slice.
        from -= 1;
        written -= 1;
      }
      memory[INPUT + written] = 0;
      write(written, cells, toLf);
    }
  }

  /** As `begin`, in the middle of a form: writes no name. */
  function resume(by: Take): void {
    take = by;
    value = VALUE;
    form = FORM;
  }
  return frozen({
    /** Discards any previous state, and writes the name of the parameter. */
    begin(by: Take): void {
      resume(by);
      memory.set(PREFIX, FORM);
      form += PREFIX.length;
    },
    resume,
    add(piece: Piece): void {
      if (typeof piece === 'string') addText(piece, JSON_CELLS, false);
      else if ('lines' in piece) addBytes(piece.lines, LINES_CELLS, false);
      else if (typeof piece.text === 'string') addText(piece.text, TEXT_CELLS, piece.toLf);
      else addBytes(piece.text, TEXT_CELLS, piece.toLf);
    },
    /** Passes on the remaining output. `add` must not follow. */
    end: drain,
  });
}
