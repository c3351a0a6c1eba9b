import { readFileSync } from 'node:fs';
import { frozen } from './frozen.ts';

/**
 * Passes over bytes, 16 at a time, in WebAssembly, since JavaScript cannot do that (wasm/byte-passes.ts,
 * docs/decisions/0031). All arguments are offsets and lengths in `memory`.
 */
interface BytePasses extends Exports {
  /** Laid out by the caller. */
  readonly memory: Buffer<ArrayBuffer>;
}

/** The functions of the module. */
interface Exports {
  /**
   * Writes text in two encodings: as a value at `value`, and as part of a form at `form`. Bytes of the set `plain` are
   * equal in both, except for the space; all others have a cell (`toCells`). Unless `toLf` is 0, the CR of a CRLF is
   * left out. The ends of value and form are written at `ends`, in 32 bits each.
   */
  encode(
    from: number,
    length: number,
    plain: number,
    cells: number,
    toLf: number,
    value: number,
    form: number,
    ends: number,
  ): void;
  /**
   * Counts line ends and padding among bytes of the set `alphabet`, at `counts` (32 bits each); 0 if there is any other
   * byte.
   */
  countBase64(from: number, length: number, alphabet: number, counts: number): number;
  /**
   * The number of bytes of mail, from within a line on, without a dot at the start of a line, a bare line end or a NUL;
   * it may stop before the first of these.
   */
  contentLength(from: number, length: number): number;
}

/**
 * The parts that we use of a global that Node's types lack. It is read by its name, because the type check of the
 * console's page includes this file, with the types of a browser.
 */
interface Wasm {
  readonly Module: new (bytes: Uint8Array) => object;
  /** In pages of 64 KiB. */
  readonly Memory: new (pages: {
    readonly initial: number;
    readonly maximum: number;
  }) => { readonly buffer: ArrayBuffer };
  readonly Instance: new (module: object, imports: { readonly env: object }) => { readonly exports: Exports };
}

const wasm: Wasm = Reflect.get<object, string>(globalThis, 'WebAssembly');
const MODULE = new wasm.Module(readFileSync(new URL('wasm/byte-passes.wasm', import.meta.url)));
const PAGE = 64 * 1024;

/** Bytes beyond the end of input and output that may be read or overwritten. */
export const OVERREAD_BYTES = 128;

/** `size`: bytes of the memory. */
export function createBytePasses(size: number): BytePasses {
  const pages = Math.ceil(size / PAGE);
  const memory = new wasm.Memory({ initial: pages, maximum: pages });
  const { exports } = new wasm.Instance(MODULE, { env: { memory } });
  return frozen({ ...exports, memory: Buffer.from(memory.buffer) });
}

/** Bytes that a set takes in the memory. */
export const SET_BYTES = 32;

/**
 * A set of ASCII bytes as two tables, indexed by the lower and by the upper half of a byte: a byte is in the set if its
 * two entries have a bit in common. Upper halves with the same lower halves share a bit; there are eight.
 */
export function toByteSet(has: (byte: number) => boolean): Uint8Array {
  const set = new Uint8Array(SET_BYTES);
  const bits = new Map<string, number>();
  for (let high = 0; high < 8; high++) {
    const lows = Array.from({ length: 16 }, (_, low) => low).filter((low) => has(high * 16 + low));
    if (lows.length === 0) continue;
    const bit = bits.get(lows.join()) ?? 1 << bits.size;
    bits.set(lows.join(), bit);
    set[16 + high] = bit;
    for (const low of lows) set[low] = (set[low] ?? 0) | bit;
  }
  return set;
}

const CELL_BYTES = 32;
/** One cell for every byte, and an empty one. */
export const CELLS_BYTES = 257 * CELL_BYTES;

/** The replacement of each byte: at most 8 bytes in the value, and 8 in the form. */
export function toCells(cellOf: (byte: number) => { readonly value: Uint8Array; readonly form: Uint8Array }): Buffer {
  const cells = Buffer.alloc(CELLS_BYTES);
  for (let byte = 0; byte < 256; byte++) {
    const { value, form } = cellOf(byte);
    const at = byte * CELL_BYTES;
    cells.set(value, at);
    cells.set(form, at + 8);
    cells.writeUInt32LE(value.length, at + 16);
    cells.writeUInt32LE(form.length, at + 20);
  }
  return cells;
}
