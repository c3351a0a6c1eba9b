// The package's own declarations cover all of it, including the compiler to JavaScript; this module only parses.
declare module 'handlebars/dist/cjs/handlebars/compiler/base.js' {
  import 'handlebars';

  export function parseWithoutProcessing(input: string): hbs.AST.Program;
}
