/** Bytes of an answer that are read at most; then the connection is closed. */
export const ANSWER_BYTES = 16 * 1024;
/** Characters of it that the history keeps. */
const ANSWER_CHARACTERS = 512;

const UNPRINTABLE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** The start of an answer as text for the history: no control or bidi characters, line ends as spaces. */
export function toAnswerText(chunks: readonly Uint8Array[]): string {
  if (chunks.length === 0) return '';
  // A character has at most four bytes, so this is enough for all that is kept.
  const [first] = chunks;
  const whole =
    chunks.length === 1 && first
      ? Buffer.from(first.buffer, first.byteOffset, first.byteLength)
      : Buffer.concat(chunks);
  const bytes = whole.subarray(0, 4 * ANSWER_CHARACTERS);
  const text = bytes.toString('utf8').replace(/\s+/g, ' ').replace(UNPRINTABLE, '\ufffd').trim();
  return text.length > ANSWER_CHARACTERS ? cut(text) : text;
}

/** Not between the two halves of a character beyond the basic plane. */
function cut(text: string): string {
  const last = text.charCodeAt(ANSWER_CHARACTERS - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? ANSWER_CHARACTERS - 1 : ANSWER_CHARACTERS);
}
