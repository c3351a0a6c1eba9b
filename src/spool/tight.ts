/** The final dot of a message and a command or two behind it. */
const MOST_SPARE = 1024;

/**
 * Whether bytes are nearly all of the memory behind them. Keeping a view keeps all of that, and posting one to a thread copies
 * all of it, which may be a slab that is shared with others.
 */
export function isTight(bytes: Uint8Array): boolean {
  return bytes.buffer.byteLength - bytes.byteLength <= MOST_SPARE;
}
