import { closeSync, openSync, readSync } from 'node:fs';

// https://www.sqlite.org/fileformat.html#the_write_ahead_log
const HEADER = 32;
const FRAME_HEADER = 24;
/** The last bit is the byte order of the checksum words. */
const MAGIC = 0x377f0682;
/** Bytes per read. */
const STEP = 1024 * 1024;

/**
 * Looks for damage that SQLite would take for the end of the log. SQLite stops at the first frame with a wrong
 * checksum. After a power cut that is correct: such a frame belongs to the last transaction, since the next one begins
 * only when that is synced. But if two complete transactions follow it, each frame chained to the one before by its
 * checksum, a bit was changed. Returns the frame, from 0, at which SQLite stops reading, and how many complete
 * transactions are behind it; undefined if there is no such damage. Reads the whole file in steps.
 */
export function findLogDamage(path: string) {
  const file = openSync(path, 'r');
  try {
    return walk(file);
  } finally {
    closeSync(file);
  }
}

function walk(file: number) {
  const header = Buffer.alloc(HEADER);
  if (readSync(file, header, 0, HEADER, 0) < HEADER) return undefined;
  const layout = layoutOf(header);
  if (!layout) return undefined;
  const sum = createSum(layout.bigEndian);
  const headerSum = sumAt(header, 24);
  /** The salts of this log; undefined if its header is damaged, then taken from the first frame. */
  let salts = same(sum(header, 0, 24, [0, 0]), headerSum) ? header.readBigUInt64BE(16) : undefined;
  let broken = salts === undefined ? 0 : -1;
  let before = headerSum;
  /** Committed transactions of chained frames behind the damage. */
  let run = 0;
  let most = 0;
  for (const [frame, at] of framesOf(file, FRAME_HEADER + layout.pageSize)) {
    const frameSalts = frame.readBigUInt64BE(8);
    const stored = sumAt(frame, 16);
    salts ??= frameSalts;
    const bound =
      frameSalts === salts && same(sum(frame, FRAME_HEADER, frame.length, sum(frame, 0, 8, before)), stored);
    before = stored;
    if (!bound && broken === -1) broken = at;
    const commits = frame.readUInt32BE(4) !== 0;
    if (!bound) run = 0;
    else if (broken !== -1 && commits) run++;
    most = Math.max(most, run);
  }
  return most >= 2 ? { frame: broken, transactions: most } : undefined;
}

/** Returns the layout of a log; undefined if the header is not that of a log. */
function layoutOf(header: Buffer): { readonly pageSize: number; readonly bigEndian: boolean } | undefined {
  const [magic, pageSize] = [header.readUInt32BE(0), header.readUInt32BE(8)];
  if ((magic & ~1) !== MAGIC || pageSize < 512 || pageSize > 65_536 || (pageSize & (pageSize - 1)) !== 0)
    return undefined;
  return { pageSize, bigEndian: (magic & 1) === 1 };
}

/** Yields every complete frame with its number. The buffer is reused. */
function* framesOf(file: number, size: number): Generator<[frame: Buffer, at: number]> {
  const step = Buffer.allocUnsafe(Math.max(1, Math.floor(STEP / size)) * size);
  for (let at = 0; ; ) {
    const whole = Math.floor(readSync(file, step, 0, step.length, HEADER + at * size) / size);
    for (let n = 0; n < whole; n++) yield [step.subarray(n * size, (n + 1) * size), at + n];
    if (whole * size < step.length) return;
    at += whole;
  }
}

/** The two words of a checksum, each from 0 to 2^32 - 1. */
type Sum = readonly [number, number];

/** Returns the checksum function, which continues from a previous checksum. */
function createSum(bigEndian: boolean): (bytes: Buffer, from: number, to: number, before: Sum) => Sum {
  return (bytes, from, to, before) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let [a, b] = before;
    for (let at = from; at < to; at += 8) {
      a = (a + view.getUint32(at, !bigEndian) + b) >>> 0;
      b = (b + view.getUint32(at + 4, !bigEndian) + a) >>> 0;
    }
    return [a, b];
  };
}

const sumAt = (bytes: Buffer, at: number): Sum => [bytes.readUInt32BE(at), bytes.readUInt32BE(at + 4)];
const same = (one: Sum, other: Sum): boolean => one[0] === other[0] && one[1] === other[1];
