import { closeSync, openSync, readSync } from 'node:fs';
import { createSum, FRAME_HEADER, HEADER, layoutOf, type Sum, same, sumAt } from './log-format.ts';

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
