// AssemblyScript, a subset of TypeScript that compiles to WebAssembly: `npm run wasm` makes byte-passes.wasm of it.
// One instruction processes 16 bytes, which JavaScript cannot express. All arguments are addresses in the
// memory that byte-passes.ts lays out; nothing here allocates, or keeps anything between calls. Up to `OVERREAD_BYTES`
// bytes (byte-passes.ts) behind the end of what is read or written may be touched.

const LF: u32 = 10;
const CR: u32 = 13;
const SPACE: u32 = 32;
const PLUS: u32 = 43;
const DOT: u32 = 46;
const EQUALS: u32 = 61;

/** If at least this many of 64 bytes need a cell, copying 64 after each costs more than a branch. */
const DENSE: i32 = 7;
/** The cell behind those of the 256 bytes: nothing, which a CR becomes that is to be left out. */
const EMPTY: u32 = 256;
/** A cell of 32 bytes: what stands for a byte in the value (up to 8 bytes), in the form, and both lengths. */
const CELL_SHIFT: usize = 5;

/** A bit for each of 16 bytes that is not of the set; createByteSet of byte-passes.ts has the two tables. */
function outside(x: v128, lows: v128, highs: v128): u32 {
  const low = i8x16.swizzle(lows, v128.and(x, i8x16.splat(15)));
  const high = i8x16.swizzle(highs, i8x16.shr_u(x, 4));
  return <u32>i8x16.bitmask(i8x16.eq(v128.and(low, high), i8x16.splat(0)));
}

function copy16(from: usize, value: usize, form: usize): void {
  const x = v128.load(from);
  v128.store(value, x);
  v128.store(form, v128.bitselect(i8x16.splat(<i8>PLUS), x, i8x16.eq(x, i8x16.splat(<i8>SPACE))));
}

function copy64(from: usize, value: usize, form: usize): void {
  copy16(from, value, form);
  copy16(from + 16, value + 16, form + 16);
  copy16(from + 32, value + 32, form + 32);
  copy16(from + 48, value + 48, form + 48);
}

/** The cell of the byte at `at`. */
function cellAt(at: usize, cells: usize, toLf: u32): usize {
  const byte: u32 = load<u8>(at);
  const next: u32 = load<u8>(at, 1);
  const gone = u32(byte === CR) & u32(next === LF) & toLf;
  return cells + ((<usize>select<u32>(EMPTY, byte, gone)) << CELL_SHIFT);
}

/**
 * Writes text in two encodings, at `value` and at `form`, by the `cells` of its bytes; those of the set `plain` are
 * equal in both, except for the space, which is a plus in the form. With `toLf`, the CR of a CRLF is left out. The ends
 * of both are written at `ends`.
 */
export function encode(
  from: usize,
  length: usize,
  plain: usize,
  cells: usize,
  toLf: u32,
  value: usize,
  form: usize,
  ends: usize,
): void {
  const lows = v128.load(plain);
  const highs = v128.load(plain, 16);
  const end = from + length;
  while (from < end) {
    let special: u64 =
      u64(outside(v128.load(from), lows, highs)) |
      (u64(outside(v128.load(from, 16), lows, highs)) << 16) |
      (u64(outside(v128.load(from, 32), lows, highs)) << 32) |
      (u64(outside(v128.load(from, 48), lows, highs)) << 48);
    let count: usize = 64;
    if (end - from < 64) {
      count = end - from;
      special &= (u64(1) << u64(count)) - 1;
    }
    // All 64 bytes are copied, and those after the next byte with a cell are overwritten later: unpredictable branches
    // cost more.
    copy64(from, value, form);
    const dense = i32(popcnt(special)) >= DENSE;
    let at: usize = 0;
    while (special !== 0) {
      const next = usize(ctz(special));
      special &= special - 1;
      if (dense && next - at > 16) copy64(from + at, value, form);
      value += next - at;
      form += next - at;
      const cell = cellAt(from + next, cells, toLf);
      store<u64>(value, load<u64>(cell));
      store<u64>(form, load<u64>(cell, 8));
      value += load<u32>(cell, 16);
      form += load<u32>(cell, 20);
      at = next + 1;
      if (dense) copy16(from + at, value, form);
      else copy64(from + at, value, form);
    }
    if (dense) copy64(from + at, value, form);
    value += count - at;
    form += count - at;
    from += count;
  }
  store<u32>(ends, value);
  store<u32>(ends, form, 4);
}

/**
 * Counts line ends (at `counts`) and padding (behind it) among bytes of the set `alphabet`; returns 0 if there is any
 * other byte.
 */
export function countBase64(from: usize, length: usize, alphabet: usize, counts: usize): u32 {
  const lows = v128.load(alphabet);
  const highs = v128.load(alphabet, 16);
  const end = from + length;
  let breaks: u32 = 0;
  let padding: u32 = 0;
  for (; from < end; from += 16) {
    const x = v128.load(from);
    let other = outside(x, lows, highs);
    if (end - from < 16) other &= (1 << u32(end - from)) - 1;
    if (other === 0) continue;
    const lineEnd = v128.or(i8x16.eq(x, i8x16.splat(<i8>CR)), i8x16.eq(x, i8x16.splat(<i8>LF)));
    const breaksHere = u32(i8x16.bitmask(lineEnd)) & other;
    const paddingHere = u32(i8x16.bitmask(i8x16.eq(x, i8x16.splat(<i8>EQUALS)))) & other;
    if ((breaksHere | paddingHere) !== other) return 0;
    breaks += popcnt(breaksHere);
    padding += popcnt(paddingHere);
  }
  store<u32>(counts, breaks);
  store<u32>(counts, padding, 4);
  return 1;
}

/**
 * The number of bytes from here, within a line, without a NUL, a CR or LF alone, or a dot at the start of a line. It
 * may stop before the first of these; the next byte is within a line too.
 */
export function contentLength(from: usize, length: usize): usize {
  const end = from + length;
  let at = from;
  let afterCr: u32 = 0;
  let afterLf: u32 = 0;
  for (; end - at >= 16; at += 16) {
    const x = v128.load(at);
    const controls = u32(i8x16.bitmask(i8x16.lt_u(x, i8x16.splat(<i8>(CR + 1)))));
    if ((controls | afterCr | afterLf) === 0) continue;
    const cr = u32(i8x16.bitmask(i8x16.eq(x, i8x16.splat(<i8>CR))));
    const lf = u32(i8x16.bitmask(i8x16.eq(x, i8x16.splat(<i8>LF))));
    const nul = u32(i8x16.bitmask(i8x16.eq(x, i8x16.splat(0))));
    const dot = u32(i8x16.bitmask(i8x16.eq(x, i8x16.splat(<i8>DOT))));
    const bare = (((cr << 1) | afterCr) & 0xffff) ^ lf;
    const dotted = dot & ((lf << 1) | afterLf);
    if ((nul | bare | dotted) !== 0) break;
    afterCr = cr >> 15;
    afterLf = lf >> 15;
  }
  // Leaves out a line end that is cut in two, or whose next line begins in the next 16 bytes: the caller passes it
  // again.
  return at - from - afterCr - 2 * afterLf;
}
