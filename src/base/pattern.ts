/** A pattern over several lines: line breaks and the spaces after them do not count. Patterns may be parts of it. */
export function pattern(flags = '') {
  return ({ raw }: TemplateStringsArray, ...parts: readonly RegExp[]): RegExp => {
    const source = String.raw({ raw }, ...parts.map((part) => part.source));
    return new RegExp(source.replace(/\n */g, ''), flags);
  };
}
