import { open } from 'node:fs/promises';
import { frozen } from '../../base/frozen.ts';
import { giveBack } from '../../base/room.ts';
import { runningMandrillSignature, runningStandardSignature } from '../signing.ts';
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
/** From so many bytes on a form is written to the file: a dozen writes a megabyte. */
const MUCH = 64 * 1024;
const PREFIX = Buffer.from(`${PARAMETER}=`, 'latin1');
const NOTHING = new Uint8Array(0);

/** Makes form bodies of JSON text, and their signatures on the way. */
export interface FormEncoder {
  /** For what fits in memory; the bytes are in memory of their own. */
  toBytes(
    pieces: Iterable<Piece>,
    signing: Signing,
  ): { readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: FormHeaders };
  /**
   * Never more than some pieces are in memory, and the thread can do other work between them. Throws when the disk
   * fails.
   */
  toFile(
    pieces: Iterable<Piece>,
    signing: Signing,
    path: string,
  ): Promise<{ readonly size: number; readonly headers: FormHeaders }>;
}

export function createFormEncoder(): FormEncoder {
  const small = createEncoding();
  return frozen({
    toBytes(pieces, signing) {
      small.begin(PREFIX);
      for (const piece of pieces) small.add(piece);
      const bytes = new Uint8Array(small.form()); // a copy, to be handed over
      const signatures = startSignatures(signing);
      signatures.value(small.value());
      signatures.body(bytes);
      return { bytes, headers: signatures.headers() };
    },
    async toFile(pieces, signing, path) {
      const signatures = startSignatures(signing);
      const file = await open(path, 'w', 0o600);
      // Of its own, because other forms are made while this one waits for the disk.
      const encoding = createEncoding();
      let size = 0;
      const flush = async (): Promise<void> => {
        const form = encoding.form();
        signatures.value(encoding.value());
        signatures.body(form);
        await file.writeFile(form);
        size += form.length;
        encoding.begin(NOTHING);
      };
      try {
        encoding.begin(PREFIX);
        for (const piece of pieces) {
          encoding.add(piece);
          if (encoding.form().length > MUCH) await flush();
        }
        await flush();
      } finally {
        encoding.end();
        await file.close();
      }
      return { size, headers: signatures.headers() };
    },
  });
}

function startSignatures({ keys, url, id, at }: Signing) {
  const timestamp = Math.floor(at / 1000);
  const mandrill = runningMandrillSignature(keys[0] ?? '', url, PARAMETER);
  const standard = runningStandardSignature(keys, id, timestamp);
  return {
    value: mandrill.update,
    body: standard.update,
    headers: (): FormHeaders => ({
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Mandrill-Signature': mandrill.digest(),
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': standard.digest(),
    }),
  };
}

/** What stands for a byte inside a JSON string. */
const JSON_ESCAPES = Array.from({ length: 128 }, (_, byte) => JSON.stringify(String.fromCharCode(byte)).slice(1, -1));
/** 1 for the bytes that cannot stand for themselves there. */
const ESCAPES = Uint8Array.from({ length: 256 }, (_, byte) => (byte < 128 && JSON_ESCAPES[byte]?.length !== 1 ? 1 : 0));
const LF = 0x0a;
const CR = 0x0d;

const SLICE = 16 * 1024;
const LEAST_ROOM = 64 * 1024;
/** Room that grew over this is given back. */
const MOST_ROOM = 1024 * 1024;
/** The most that a byte of text becomes: `\u001f`, and `%5Cu001f`. */
const MOST_VALUE = 6;
const MOST_FORM = 8;

/** JSON text as UTF-8, and as it stands in a form: both are written in one pass. */
interface Encoding {
  /** Forgets everything; `prefix` stands in front of the form. */
  begin(prefix: Uint8Array): void;
  add(piece: Piece): void;
  /** What was added since `begin`; valid until the next call. */
  value(): Uint8Array<ArrayBuffer>;
  form(): Uint8Array<ArrayBuffer>;
  /** Gives its memory back now, and not when the collector finds it. Nothing may be added any more. */
  end(): void;
}

interface Room {
  bytes: Buffer<ArrayBuffer>;
  view: DataView;
  used: number;
}

export function createEncoding(): Encoding {
  const value = createRoom();
  const form = createRoom();
  let scratch = Buffer.allocUnsafeSlow(LEAST_ROOM);

  function addJson(text: string): void {
    reserve(value, 3 * text.length);
    const from = value.used;
    value.used += value.bytes.write(text, from, 'utf8');
    reserve(form, 3 * (value.used - from));
    form.used = encodeForm(value.bytes.subarray(from, value.used), form.view, form.used);
  }
  function bytesOf(text: string): Buffer {
    if (3 * text.length > MOST_ROOM) return Buffer.from(text, 'utf8');
    if (3 * text.length > scratch.length) scratch = Buffer.allocUnsafeSlow(MOST_ROOM);
    return scratch.subarray(0, scratch.write(text, 'utf8'));
  }
  return frozen({
    begin(prefix): void {
      for (const room of [value, form]) if (room.bytes.length > MOST_ROOM) Object.assign(room, createRoom());
      form.bytes.set(prefix);
      form.used = prefix.length;
      value.used = 0;
    },
    add(piece): void {
      if (typeof piece === 'string') return addJson(piece);
      const bytes = typeof piece.text === 'string' ? bytesOf(piece.text) : piece.text;
      // In slices, so that the room is for what they became, and not for the most that all of it may become.
      for (let from = 0; from < bytes.length; from += SLICE) {
        const to = Math.min(from + SLICE, bytes.length);
        reserve(value, MOST_VALUE * (to - from));
        reserve(form, MOST_FORM * (to - from));
        encodeText(bytes, from, to, piece.toLf, value, form);
      }
    },
    value: () => value.bytes.subarray(0, value.used),
    form: () => form.bytes.subarray(0, form.used),
    end() {
      for (const bytes of [value.bytes, form.bytes, scratch]) giveBack(bytes);
    },
  });
}

function createRoom(): Room {
  const bytes = Buffer.allocUnsafeSlow(LEAST_ROOM);
  return { bytes, view: viewOf(bytes), used: 0 };
}

function reserve(room: Room, length: number): void {
  const needed = room.used + length + SLACK;
  if (needed <= room.bytes.length) return;
  const larger = Buffer.allocUnsafeSlow(2 * needed);
  room.bytes.copy(larger, 0, 0, room.used);
  giveBack(room.bytes);
  room.bytes = larger;
  room.view = viewOf(larger);
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Writes UTF-8 as the inside of a JSON string, as JSON.stringify would, and at once as it stands in the form. */
function encodeText(bytes: Uint8Array, from: number, to: number, toLf: boolean, value: Room, form: Room): void {
  const { bytes: escaped } = value;
  const { view } = form;
  let used = value.used;
  let end = form.used;
  for (let at = from; at < to; at++) {
    let byte = bytes[at] ?? 0;
    // The hot loop. What stands behind it is rare, and kept out of it.
    while (ESCAPES[byte] === 0) {
      escaped[used] = byte;
      used = (used + 1) | 0;
      const cell = CELLS[byte] ?? 0;
      view.setInt32(end, cell, true);
      end = (end + (cell >> 24)) | 0;
      at = (at + 1) | 0;
      if (at >= to) {
        value.used = used;
        form.used = end;
        return;
      }
      byte = bytes[at] ?? 0;
    }
    if (byte === CR && toLf && bytes[at + 1] === LF) continue;
    const escape = JSON_ESCAPES[byte] ?? '';
    for (let n = 0; n < escape.length; n++) {
      const code = escape.charCodeAt(n);
      escaped[used] = code;
      used = (used + 1) | 0;
      const cell = CELLS[code] ?? 0;
      view.setInt32(end, cell, true);
      end = (end + (cell >> 24)) | 0;
    }
  }
  value.used = used;
  form.used = end;
}

const SPACE = 0x20;
const PLUS = 0x2b;
const PERCENT = 0x25;
const HEX = Buffer.from('0123456789ABCDEF', 'latin1');
/** Under so many bytes a view of the pairs costs more than it saves. */
const FEW = 64;

/** More than stands in the form may be written behind it; there must be room. */
const SLACK = 8;

// Letters, digits and -_. stand for themselves, a space is +, everything else is %XX (as PHP's urlencode has it).
const isPlain = (byte: number): boolean => /[A-Za-z0-9._-]/.test(String.fromCharCode(byte));

/**
 * Per byte one word: up to three bytes that stand for it, the first in the lowest, and in the fourth how many of them
 * count. Signed, for then the loops stay in 32 bits (a fifth faster).
 */
const CELLS = Int32Array.from({ length: 256 }, (_, byte) => {
  if (isPlain(byte)) return byte | (1 << 24);
  if (byte === SPACE) return PLUS | (1 << 24);
  return PERCENT | ((HEX[byte >> 4] ?? 0) << 8) | ((HEX[byte & 15] ?? 0) << 16) | (3 << 24);
});

// The same for two bytes, the first in the lower half, as this processor reads them: twice as fast. None of the numbers
// is NaN, whose bytes an engine may change: all are ASCII.
const PAIRS = new Float64Array(65_536);
const PAIR_LENGTHS = new Uint8Array(65_536);
for (let pair = 0, view = new DataView(PAIRS.buffer); pair < PAIRS.length; pair++) {
  const middle = encodeByte(pair & 0xff, view, 8 * pair);
  const end = encodeByte(pair >> 8, view, middle);
  PAIR_LENGTHS[pair] = end - 8 * pair;
  for (let at = end; at < 8 * pair + 8; at++) view.setUint8(at, 0);
}

/**
 * Writes `bytes` form-encoded at `at`, where there must be room for three bytes for each and `SLACK` more; answers
 * where it ended. Always as much is written as two bytes may become, and then two to six of it counted: a branch per
 * byte costs four times as much.
 */
function encodeForm(bytes: Uint8Array, target: DataView, at: number): number {
  if (bytes.length < FEW) return encodeFew(bytes, target, at);
  const odd = bytes.byteOffset % 2;
  const pairs = new Uint16Array(bytes.buffer, bytes.byteOffset + odd, (bytes.length - odd) >> 1);
  let end = odd === 1 ? encodeByte(bytes[0] ?? 0, target, at) : at;
  for (let i = 0; i < pairs.length; i++) {
    const pair = pairs[i] ?? 0;
    target.setFloat64(end, PAIRS[pair] ?? 0, true);
    end = (end + (PAIR_LENGTHS[pair] ?? 0)) | 0;
  }
  const rest = odd + 2 * pairs.length;
  return rest < bytes.length ? encodeByte(bytes[rest] ?? 0, target, end) : end;
}

function encodeFew(bytes: Uint8Array, target: DataView, at: number): number {
  let end = at;
  for (const byte of bytes) end = encodeByte(byte, target, end);
  return end;
}

function encodeByte(byte: number, target: DataView, at: number): number {
  const cell = CELLS[byte] ?? 0;
  target.setInt32(at, cell, true);
  return at + (cell >> 24);
}
