import { closeSync, fsyncSync, openSync, readSync, writeSync } from 'node:fs';

/** What is wrong with a write-ahead log. */
export interface LogDamage {
  /** The frame, from 0, behind which SQLite reads nothing. */
  readonly frame: number;
  /** Transactions behind it that were committed whole. */
  readonly transactions: number;
}

/** Bytes that are read in one go. */
const STEP = 1024 * 1024;

/**
 * Looks for damage in a log that SQLite would take for its end. SQLite stops at the first frame whose checksum is wrong, which
 * is right for a log that was being written when the power went: there it can be the last transaction only, for the next one is
 * begun when that is synced. Two whole transactions behind such a frame, each frame bound to the one before it by its
 * checksum, mean that a bit was changed. Undefined: nothing of that kind. Reads all of the file, a step at a time.
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
  const { pageSize, bigEndian } = layout;
  const sum = createSum(bigEndian);
  const stored = sumAt(header, 24);
  const judge = createJudge(same(sum(header, 0, 24, [0, 0]), stored) ? header.readBigUInt64BE(16) : undefined, stored);
  for (const [frame, at] of framesOf(file, FRAME_HEADER + pageSize)) {
    judge.hear(
      {
        salts: frame.readBigUInt64BE(8),
        stored: sumAt(frame, 16),
        commits: frame.readUInt32BE(4) !== 0,
        sumAfter: (before) => sum(frame, FRAME_HEADER, frame.length, sum(frame, 0, 8, before)),
      },
      at,
    );
  }
  return judge.verdict();
}

interface Frame {
  readonly salts: bigint;
  readonly stored: Sum;
  readonly commits: boolean;
  sumAfter(before: Sum): Sum;
}

/** `current`: the salts of this log, undefined when its header is damaged: then the first frame has to know. */
function createJudge(current: bigint | undefined, first: Sum) {
  let salts = current;
  let before = first;
  let broken = current === undefined ? 0 : -1;
  /** Committed transactions of frames that are bound together, behind the damage. */
  let run = 0;
  let most = 0;
  return {
    hear(frame: Frame, at: number): void {
      salts ??= frame.salts;
      const bound = frame.salts === salts && same(frame.sumAfter(before), frame.stored);
      before = frame.stored;
      if (!bound && broken === -1) broken = at;
      if (!bound) run = 0;
      else if (broken !== -1 && frame.commits) run++;
      most = Math.max(most, run);
    },
    verdict: (): LogDamage | undefined => (most >= 2 ? { frame: broken, transactions: most } : undefined),
  };
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

/** A stretch of the log with a checksum: its header, or a frame. */
interface Block {
  readonly bytes: Buffer;
  readonly at: number;
  /** What the checksum is over, each from and to. */
  readonly summed: readonly (readonly [number, number])[];
  /** Where it stands. */
  readonly sumAt: number;
}

/**
 * Mends a damaged log in its place, as far as one bit was changed in a block: the checksum, which is a sum that weighs each word by
 * its place, tells which. (Not of the nine highest bits of a word, which may weigh the same in several places; what is not certain
 * is left as it is. Several bits that happen to weigh what one does are taken for that one; the checksums of rows and bodies find
 * what that changes.) Answers how many blocks were mended. Whether that was all, `findLogDamage` says.
 */
export function mendLog(path: string): number {
  const file = openSync(path, 'r+');
  try {
    const count = mendAll(file);
    if (count > 0) fsyncSync(file);
    return count;
  } finally {
    closeSync(file);
  }
}

function mendAll(file: number): number {
  const header = read(file, 0, HEADER);
  const layout = header && layoutOf(header);
  if (!header || !layout) return 0;
  const { pageSize, bigEndian } = layout;
  const sum = createSum(bigEndian);
  const sumOf = ({ bytes, summed }: Block, before: Sum) =>
    summed.reduce((last, [from, to]) => sum(bytes, from, to, last), before);
  let mended = 0;
  let before: Sum = [0, 0];
  let block: Block | undefined = { bytes: header, at: 0, summed: [[0, 24]], sumAt: 24 };
  for (let at = HEADER; block; at += FRAME_HEADER + pageSize) {
    const next = frameAt(file, at, pageSize);
    const found = sumOf(block, before);
    const turned =
      !same(found, sumAt(block.bytes, block.sumAt)) &&
      (mend(block, found, bigEndian) || (next !== undefined && bindTo(block, found, sumOf(next, found), next)));
    const salted = block.at > 0 && !block.bytes.subarray(8, 16).equals(header.subarray(16, 24));
    if (salted) header.copy(block.bytes, 8, 16, 24);
    before = sumOf(block, before);
    if (!same(before, sumAt(block.bytes, block.sumAt))) return mended;
    if (turned || salted) {
      writeSync(file, block.bytes, 0, block.bytes.length, block.at);
      mended++;
    }
    block = next;
  }
  return mended;
}

function frameAt(file: number, at: number, pageSize: number): Block | undefined {
  const bytes = read(file, at, FRAME_HEADER + pageSize);
  return (
    bytes && {
      bytes,
      at,
      summed: [
        [0, 8],
        [FRAME_HEADER, bytes.length],
      ],
      sumAt: 16,
    }
  );
}

/** The block is right and its checksum is not, when the next one goes on from what it should be. */
function bindTo(block: Block, found: Sum, nextFound: Sum, next: Block): boolean {
  if (!same(nextFound, sumAt(next.bytes, next.sumAt))) return false;
  for (const [n, word] of found.entries()) block.bytes.writeUInt32BE(word, block.sumAt + 4 * n);
  return true;
}

/** Turns the one bit back by which the checksum would be right, if there is one and no other. */
function mend(block: Block, found: Sum, bigEndian: boolean): boolean {
  const stored = sumAt(block.bytes, block.sumAt);
  const off: Sum = [(stored[0] - found[0]) | 0, (stored[1] - found[1]) | 0];
  const places = placesOf(block, off, bigEndian);
  const [place] = places;
  if (!place || places.length > 1) return false;
  block.bytes[place.byte] = (block.bytes[place.byte] ?? 0) ^ place.mask;
  return true;
}

function placesOf({ bytes, summed }: Block, off: Sum, bigEndian: boolean): { byte: number; mask: number }[] {
  const places: { byte: number; mask: number }[] = [];
  // How much a change by 1 of the first and of the second word of a pair changes the checksum, from the last pair on.
  let [first, second]: [Sum, Sum] = [
    [1, 1],
    [0, 1],
  ];
  const look = (at: number, weight: Sum) => {
    const word = bigEndian ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at);
    for (let bit = 0; bit < 32; bit++) {
      const by = (word >>> bit) & 1 ? -(1 << bit) : 1 << bit;
      if (Math.imul(by, weight[0]) !== off[0] || Math.imul(by, weight[1]) !== off[1]) continue;
      places.push({ byte: at + (bigEndian ? 3 - (bit >> 3) : bit >> 3), mask: 1 << (bit & 7) });
    }
  };
  const older = ([a, b]: Sum): Sum => [(a + b) | 0, (a + 2 * b) | 0];
  for (const [from, to] of summed.toReversed()) {
    for (let at = to - 8; at >= from; at -= 8) {
      look(at, first);
      look(at + 4, second);
      [first, second] = [older(first), older(second)];
    }
  }
  return places;
}

function read(file: number, at: number, length: number): Buffer | undefined {
  const bytes = Buffer.alloc(length);
  return readSync(file, bytes, 0, length, at) === length ? bytes : undefined;
}

/** The two words of a checksum of SQLite's log, each from 0 to 2^32. */
export type Sum = readonly [number, number];

// https://www.sqlite.org/fileformat.html#the_write_ahead_log
export const HEADER = 32;
export const FRAME_HEADER = 24;
/** The last bit says in which order the bytes of a checksum's words stand. */
const MAGIC = 0x377f0682;

/** How a log is laid out; undefined when this is the header of none. */
export function layoutOf(header: Buffer): { readonly pageSize: number; readonly bigEndian: boolean } | undefined {
  const [magic, pageSize] = [header.readUInt32BE(0), header.readUInt32BE(8)];
  if ((magic & ~1) !== MAGIC || pageSize < 512 || pageSize > 65_536 || (pageSize & (pageSize - 1)) !== 0)
    return undefined;
  return { pageSize, bigEndian: (magic & 1) === 1 };
}

/** The checksum of SQLite's log over `bytes`, going on from the one before. */
export function createSum(bigEndian: boolean): (bytes: Buffer, from: number, to: number, before: Sum) => Sum {
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

/** The checksum that stands at a place. */
export const sumAt = (bytes: Buffer, at: number): Sum => [bytes.readUInt32BE(at), bytes.readUInt32BE(at + 4)];
/** Whether two are the same. */
export const same = (one: Sum, other: Sum) => one[0] === other[0] && one[1] === other[1];
