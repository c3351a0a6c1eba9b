// Text beyond ASCII in header fields (RFC 2047), in UTF-8.

/** Characters of an encoded word, with its delimiters (RFC 2047 section 2). */
const LONGEST_WORD = 75;
const [BEFORE, AFTER] = ['=?utf-8?Q?', '?='];
/** Characters that need no encoding in any position where encoded words are allowed (RFC 2047 section 5, rule 3). */
const LITERAL = /^[A-Za-z0-9!*+/-]$/;
/** A character of the first word must fit, however long the name of the field is. */
const SHORTEST_WORD = 40;

/**
 * A text as encoded words with blanks between them, for phrases, comments and texts. `column`: where the first one
 * begins. Words end between characters (section 5), and no line that they are folded into is too long.
 */
export function encodeWords(text: string, column = 0): string {
  const bytes = Buffer.from(text.toWellFormed());
  const quoted = [...text.toWellFormed()].map(toQ);
  const length = quoted.reduce((sum, { length }) => sum + length, 0);
  // Q unless B is much shorter: people read it in sources.
  const pieces = length <= bytes.length * 2.25 ? quoted : undefined;
  const words: string[] = [];
  let room = Math.max(SHORTEST_WORD, LONGEST_WORD - column);
  let word = '';
  let octets = 0;
  const end = () => {
    if (word === '') return;
    words.push(
      pieces
        ? `${BEFORE}${word}${AFTER}`
        : `${BEFORE.replace('Q', 'B')}${Buffer.from(word).toString('base64')}${AFTER}`,
    );
    room = LONGEST_WORD;
    word = '';
    octets = 0;
  };
  let at = 0;
  for (const char of text.toWellFormed()) {
    const piece = pieces?.[at++] ?? char;
    const added = pieces ? piece.length : Buffer.byteLength(char);
    const taken = pieces ? octets + added : Math.ceil((octets + added) / 3) * 4;
    if (taken > room - BEFORE.length - AFTER.length) end();
    word += piece;
    octets += added;
  }
  end();
  return words.join(' ');
}

function toQ(char: string): string {
  if (LITERAL.test(char)) return char;
  if (char === ' ') return '_';
  return [...Buffer.from(char)].map((byte) => `=${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
