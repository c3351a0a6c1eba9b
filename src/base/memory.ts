/**
 * Frees memory that is the chunk's alone and that nobody reads any more. The collector of garbage does not see how much hangs on a chunk
 * of a socket: it lets them pile up, and then marks the whole heap for every 64 MB of them.
 */
export function giveBack({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}
