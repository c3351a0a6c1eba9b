/** The start of a text, without half a surrogate pair. */
export function truncate(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most);
}

/** Slices of a text that split no character in two. */
export function* slicesOf(text: string, length: number): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const isSplit = (text.codePointAt(at + length - 1) ?? 0) > 0xffff;
    const end = at + length + Number(isSplit);
    yield text.slice(at, end);
    at = end;
  }
}
