import { giveBack } from '../../base/memory.ts';
import { CELLS, encodeForm, SLACK } from './form-bytes.ts';
import type { Piece } from './pieces.ts';

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
export interface Encoding {
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
  return Object.freeze({
    begin(prefix: Uint8Array): void {
      for (const room of [value, form]) if (room.bytes.length > MOST_ROOM) Object.assign(room, createRoom());
      form.bytes.set(prefix);
      form.used = prefix.length;
      value.used = 0;
    },
    add(piece: Piece): void {
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
