/** What a message may have before it counts as an attack; one that breaks a cap is delivered raw. */
export const CAPS = Object.freeze({
  /** Bytes of one header block. Postfix cuts at 100 KiB. */
  headerBytes: 256 * 1024,
  /** Lines of one header block, folded ones included (Haraka's limit). */
  headerLines: 1000,
  /** Bytes of all header blocks of a message together. */
  allHeaderBytes: 1024 * 1024,
  /** Parts of a message (Haraka's limit). */
  parts: 1000,
  /** Multiparts inside multiparts. Postfix stops at 100. */
  nesting: 64,
  /** Characters of all address fields of a message together. */
  addressBytes: 64 * 1024,
});

const LF = 0x0a;

/** Which cap a header block breaks, in words. */
export function breachOfBlock(block: Buffer): string | undefined {
  if (block.length > CAPS.headerBytes) return `a header of more than ${CAPS.headerBytes} bytes`;
  let lines = 0;
  for (let at = block.indexOf(LF); at !== -1; at = block.indexOf(LF, at + 1)) {
    lines += 1;
    if (lines > CAPS.headerLines) return `a header of more than ${CAPS.headerLines} lines`;
  }
  return undefined;
}
