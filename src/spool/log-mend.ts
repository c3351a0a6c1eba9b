import { closeSync, fsyncSync, openSync, readSync, writeSync } from 'node:fs';
import { createSum, FRAME_HEADER, HEADER, layoutOf, type Sum, same, sumAt } from './log-format.ts';

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
