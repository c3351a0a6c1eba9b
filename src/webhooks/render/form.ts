import { type FileHandle, open } from 'node:fs/promises';
import { CELLS_BYTES, createBytePasses, SET_BYTES, SLACK, toByteSet, toCells } from '../../base/byte-passes.ts';
import { frozen } from '../../base/frozen.ts';
import { giveBack } from '../../base/room.ts';
import { runningMandrillSignature, runningStandardSignature } from '../signing.ts';
import type { PostBody } from '../types.ts';
import type { Piece } from './payload.ts';

/** What the signatures of a POST are made with. */
interface Signing {
  /** The first one signs for X-Mandrill-Signature, all sign for webhook-signature. */
  readonly keys: readonly string[];
  /** Exactly as configured. */
  readonly url: string;
  /** Travels as `webhook-id`. */
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
}

type FormHeaders = Readonly<Record<string, string>>;

const PARAMETER = 'mandrill_events';
const PREFIX = Buffer.from(`${PARAMETER}=`, 'latin1');

/** Makes form bodies of JSON text, and their signatures on the way. */
export interface FormEncoder {
  /** For what fits in memory; the bytes are in memory of their own. */
  toBytes(
    pieces: Iterable<Piece>,
    signing: Signing,
  ): { readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: FormHeaders };
  /**
   * In memory of its own while it has no more than `most` bytes, else in a file. Never more than that and some pieces
   * are in memory, and the thread can do other work between them. Throws when the disk fails.
   */
  toBody(
    pieces: Iterable<Piece>,
    signing: Signing,
    place: { readonly path: string; readonly most: number },
  ): Promise<{ readonly body: PostBody; readonly headers: FormHeaders }>;
}

export function createFormEncoder(): FormEncoder {
  const encoding = createEncoding();
  return frozen({
    toBytes(pieces, signing) {
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
    async toBody(pieces, signing, { path, most }) {
      const signatures = startSignatures(signing);
      const store = createStore(path, most);
      const take = (value: Uint8Array, form: Uint8Array): void => {
        signatures.add(value, form);
        store.add(form);
      };
      try {
        encoding.begin(take);
        for (const piece of pieces) {
          encoding.add(piece);
          if (!store.isFull()) continue;
          // Other forms are made while this one waits for the disk.
          encoding.end();
          await store.flush();
          encoding.resume(take);
        }
        encoding.end();
        return { body: await store.finish(), headers: signatures.headers() };
      } finally {
        await store.close();
      }
    },
  });
}

/** A copy of all. */
function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** From so many bytes on a form is written to the file. */
const MUCH = 256 * 1024;

/** Keeps the parts of a form in memory, or in a file once they are more than `most` bytes. */
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
  /** The next parts may be made while these are written. */
  async function flush(): Promise<void> {
    file ??= await open(path, 'w', 0o600);
    await writing;
    writing = write(file, parts);
    writing.catch(() => undefined); // whoever waits for it hears of it
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
    async finish(): Promise<PostBody> {
      if (file === undefined && size <= most) return { kind: 'bytes', bytes: joined(parts) };
      await flush();
      await writing;
      return { kind: 'file', path, size };
    },
    /** Gives memory back now, and not when the collector finds it. */
    async close(): Promise<void> {
      await writing.catch(() => undefined);
      for (const { buffer } of [...parts, ...spare]) giveBack(new Uint8Array(buffer));
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
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': standard.digest(),
    }),
  };
}

/** Takes text as UTF-8, and as it stands in a form. Both are valid during the call only. */
type Take = (value: Uint8Array, form: Uint8Array) => void;

/** JSON text as UTF-8, and as it stands in a form: both are written in one pass. */
interface Encoding {
  /** Forgets everything, and writes the name of the parameter. */
  begin(take: Take): void;
  /** The same within a form. */
  resume(take: Take): void;
  add(piece: Piece): void;
  /** Hands over what is left; `add` may follow no more. */
  end(): void;
}

/** The most that a byte of text becomes: `\u001f`, and `%5Cu001f`. */
const MOST_VALUE = 6;
const MOST_FORM = 8;
/** So many bytes are written at once. */
const SLICE = 16 * 1024;
/** There is room for a slice, whatever becomes of it, and for some that do not grow. */
const VALUE_ROOM = MOST_VALUE * SLICE + 64 * 1024;
const FORM_ROOM = MOST_FORM * SLICE + 80 * 1024;

// The memory of an encoding, from its beginning.
const PLAIN = 0;
const ENDS = SET_BYTES;
const TEXT_CELLS = 64;
const JSON_CELLS = TEXT_CELLS + CELLS_BYTES;
const LINES_CELLS = JSON_CELLS + CELLS_BYTES;
const INPUT = LINES_CELLS + CELLS_BYTES;
const VALUE = INPUT + SLICE + SLACK;
const FORM = VALUE + VALUE_ROOM + SLACK;
const MEMORY = FORM + FORM_ROOM + SLACK;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const HEX = Buffer.from('0123456789ABCDEF', 'latin1');

// Letters, digits and -_. stand for themselves, a space is +, everything else is %XX (as PHP's urlencode has it). In
// JSON all of these stand for themselves too.
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
/** Text inside a JSON string, as JSON.stringify has it; bytes above ASCII are UTF-8. */
const CELLS_OF_TEXT = cellsOf((byte) =>
  byte < 128 ? Buffer.from(JSON.stringify(String.fromCharCode(byte)).slice(1, -1)) : Uint8Array.of(byte),
);
/** JSON as it stands. */
const CELLS_OF_JSON = cellsOf((byte) => Uint8Array.of(byte));
/** The same without line ends. */
const CELLS_OF_LINES = cellsOf((byte) => (byte === CR || byte === LF ? new Uint8Array(0) : Uint8Array.of(byte)));

export function createEncoding(): Encoding {
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
  /** Writes what stands in `input`, and behind that the byte that comes next. */
  function write(length: number, cells: number, toLf: boolean): void {
    if (value + MOST_VALUE * length > FORM - SLACK || form + MOST_FORM * length > MEMORY - SLACK) drain();
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
        // Its LF may be the next character.
        from -= 1;
        written -= 1;
      }
      memory[INPUT + written] = 0;
      write(written, cells, toLf);
    }
  }

  function resume(by: Take): void {
    take = by;
    value = VALUE;
    form = FORM;
  }
  return frozen({
    begin(by): void {
      resume(by);
      memory.set(PREFIX, FORM);
      form += PREFIX.length;
    },
    resume,
    add(piece): void {
      if (typeof piece === 'string') addText(piece, JSON_CELLS, false);
      else if ('lines' in piece) addBytes(piece.lines, LINES_CELLS, false);
      else if (typeof piece.text === 'string') addText(piece.text, TEXT_CELLS, piece.toLf);
      else addBytes(piece.text, TEXT_CELLS, piece.toLf);
    },
    end: drain,
  });
}
