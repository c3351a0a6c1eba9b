import { TextDecoder } from 'node:util';

/** Text from bytes; may be called for piece after piece of one text, `final` with the last. */
export type Decode = (bytes: Buffer, final: boolean) => string;

// Without a name, and as US-ASCII, a body is UTF-8 more often than anything else.
const UTF8_BODY = new Set(['', 'utf-8', 'utf8', 'us-ascii', 'ascii']);

/**
 * The decoder for the charset that a body names, by the labels of the WHATWG encoding standard ("latin1" is windows-1252, as
 * it is in the field). A charset nobody knows is read as UTF-8; what is not valid becomes U+FFFD.
 */
export function decoderOfBody(name: string | undefined): Decode {
  const known = (name ?? '').toLowerCase();
  return (UTF8_BODY.has(known) ? undefined : legacyDecoder(known)) ?? utf8Decoder();
}

/** The decoder for the charset of an encoded word; undefined for one nobody knows. */
export function decoderOfWord(name: string): Decode | undefined {
  const known = name.toLowerCase();
  return known === 'utf-8' || known === 'utf8' ? utf8Decoder() : legacyDecoder(known);
}

function utf8Decoder(): Decode {
  let decoder: TextDecoder | undefined;
  return (bytes, final) => {
    // A whole text in one piece is the common case, and Buffer is faster at it.
    if (final && decoder === undefined) return bytes.toString('utf8');
    decoder ??= new TextDecoder('utf-8', { ignoreBOM: true });
    return decoder.decode(bytes, { stream: !final });
  };
}

function legacyDecoder(label: string): Decode | undefined {
  try {
    const decoder = new TextDecoder(label, { ignoreBOM: true });
    return (bytes, final) => decoder.decode(bytes, { stream: !final });
  } catch {
    return undefined;
  }
}
