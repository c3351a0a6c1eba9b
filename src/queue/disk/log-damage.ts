import { closeSync, openSync, readSync } from 'node:fs';

/** What is wrong with a write-ahead log. */
interface LogDamage {
  /** The frame, from 0, behind which SQLite reads nothing. */
  readonly frame: number;
  /** Transactions behind it that were committed whole. */
  readonly transactions: number;
}

// https://www.sqlite.org/fileformat.html#the_write_ahead_log
const HEADER = 32;
const FRAME_HEADER = 24;
/** The last bit says in which order the bytes of a checksum's words stand. */
const MAGIC = 0x377f0682;
/** Bytes that are read in one go. */
const STEP = 1024 * 1024;

/**
 * Looks for damage in a log that SQLite would take for its end. SQLite stops at the first frame whose checksum is
 * wrong, which is right for a log that was being written when the power went: there it can be the last transaction
 * only, for the next one is begun when that is synced. Two whole transactions behind such a frame, each frame bound to
 * the one before it by its checksum, mean that a bit was changed. Undefined: nothing of that kind. Reads all of the
 * file, a step at a time.
 */
export function findLogDamage(path: string): LogDamage | undefined {
  const file = openSync(path, 'r');
  try {
    return walk(file);
  } finally {
    closeSync(file);
  }
}

function walk(file: number): LogDamage | undefined {
  const header = Buffer.alloc(HEADER);
  if (readSync(file, header, 0, HEADER, 0) < HEADER) return undefined;
  const layout = layoutOf(header);
  if (!layout) return undefined;
  const sum = createSum(layout.bigEndian);
  const headerSum = sumAt(header, 24);
  /** Those of this log; undefined when its header is damaged: then the first frame has to know. */
  let salts = same(sum(header, 0, 24, [0, 0]), headerSum) ? header.readBigUInt64BE(16) : undefined;
  let broken = salts === undefined ? 0 : -1;
  let before = headerSum;
  /** Committed transactions of frames that are bound together, behind the damage. */
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

/** How a log is laid out; undefined when this is the header of none. */
function layoutOf(header: Buffer): { readonly pageSize: number; readonly bigEndian: boolean } | undefined {
  const [magic, pageSize] = [header.readUInt32BE(0), header.readUInt32BE(8)];
  if ((magic & ~1) !== MAGIC || pageSize < 512 || pageSize > 65_536 || (pageSize & (pageSize - 1)) !== 0)
    return undefined;
  return { pageSize, bigEndian: (magic & 1) === 1 };
}

/** Every whole frame with its number. What is handed out is overwritten by the next ones. */
function* framesOf(file: number, size: number): Generator<[frame: Buffer, at: number]> {
  const step = Buffer.allocUnsafe(Math.max(1, Math.floor(STEP / size)) * size);
  for (let at = 0; ; ) {
    const whole = Math.floor(readSync(file, step, 0, step.length, HEADER + at * size) / size);
    for (let n = 0; n < whole; n++) yield [step.subarray(n * size, (n + 1) * size), at + n];
    if (whole * size < step.length) return;
    at += whole;
  }
}

/** The two words of a checksum, each from 0 to 2^32. */
type Sum = readonly [number, number];

/** The checksum over bytes, going on from the one before. */
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
