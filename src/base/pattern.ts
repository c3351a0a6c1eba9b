/**
 * A regular expression over several lines: line breaks and the spaces after them are ignored. It may contain others.
 */
export function pattern(flags = '') {
  return ({ raw }: TemplateStringsArray, ...parts: readonly RegExp[]): RegExp => {
    const source = String.raw({ raw }, ...parts.map((part) => part.source));
    return new RegExp(source.replace(/\n */g, ''), flags);
  };
}
