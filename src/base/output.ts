import { writeSync } from 'node:fs';

/** What a person has to know of at once, and what may be the last line. */
const URGENT = /^\{"event":"daemon\.|"level":"(?:warn|error)"/;
/** Enough for the lines of one busy turn of the loop; more is written at once. */
const OUTPUT_BYTES = 8 * 1024;
/** How long a line waits for others at most. */
const OUTPUT_MS = 10;
/** How often, and after how many milliseconds, a reader that is behind is tried again. */
const TRIES = 100;
const TRY_MS = 10;

/** Writes bytes and answers how many, or throws what the system says. */
type Write = (bytes: Uint8Array) => number;

/**
 * Lines on standard output, written every few milliseconds: a system call for every line cost 5% of the main thread under
 * load, one for every turn of the loop about 3%. Mail goes before its log: lines that cannot be written, because nobody reads
 * them any more or because their disk is full, are given up, and the next ones are tried anew.
 */
export function createOutput(
  write: Write = (bytes) => writeSync(1, bytes),
  isUrgent: (line: string) => boolean = (line) => URGENT.test(line),
): (line: string) => void {
  let text = '';
  let waiting = false;
  let torn = false;
  const put = createPatience(write);

  const flush = () => {
    waiting = false;
    const bytes = Buffer.from(torn ? `\n${text}` : text);
    text = '';
    const written = put(bytes);
    // A line that was cut must not run into the next.
    if (written > 0) torn = written < bytes.byteLength && bytes[written - 1] !== 0x0a;
  };
  return (line) => {
    text += line;
    if (isUrgent(line) || text.length >= OUTPUT_BYTES) return flush();
    if (!waiting) setTimeout(flush, OUTPUT_MS);
    waiting = true;
  };
}

/** Writes all bytes it can and answers how many. A reader that is behind is waited for a second, and then not again until it reads. */
function createPatience(write: Write): (bytes: Uint8Array) => number {
  let patient = true;
  return (bytes) => {
    let at = 0;
    let tries = patient ? TRIES : 1;
    while (at < bytes.byteLength && tries > 0) {
      try {
        at += write(bytes.subarray(at));
      } catch (error) {
        tries = isBehind(error) ? tries - 1 : 0;
        if (tries > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TRY_MS);
      }
    }
    patient = at === bytes.byteLength;
    return at;
  };
}

function isBehind(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN';
}
