const DIGITS = '0123456789abcdefghijklmnopqrstuv';

/** base32hex in lower case, without padding (RFC 4648 section 7). */
export function toBase32Hex(bytes: Buffer): string {
  let text = '';
  let held = 0;
  let bits = 0;
  for (const byte of bytes) {
    held = ((held & 31) << 8) | byte; // fewer than five bits remain
    for (bits += 8; bits >= 5; bits -= 5) text += DIGITS.charAt((held >> (bits - 5)) & 31);
  }
  return bits === 0 ? text : text + DIGITS.charAt((held << (5 - bits)) & 31);
}

/** Undefined if it is not what `toBase32Hex` writes: of several spellings of one token only one is valid. */
export function fromBase32Hex(text: string): Buffer | undefined {
  const bytes: number[] = [];
  let held = 0;
  let bits = 0;
  for (const char of text) {
    held = ((held & 0xff) << 5) | DIGITS.indexOf(char);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((held >> bits) & 0xff);
  }
  const decoded = Buffer.from(bytes);
  return toBase32Hex(decoded) === text ? decoded : undefined;
}
