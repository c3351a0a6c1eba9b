// The package's own declarations are of the whole of it, the compiler to JavaScript included; this file of it only
// parses.
declare module 'handlebars/dist/cjs/handlebars/compiler/base.js' {
  import 'handlebars';

  export function parseWithoutProcessing(input: string): hbs.AST.Program;
}
