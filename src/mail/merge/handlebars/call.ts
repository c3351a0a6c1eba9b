import { parseWithoutProcessing } from 'handlebars/dist/cjs/handlebars/compiler/base.js';
import { pattern } from '../../../base/pattern.ts';
import { TemplateError } from '../../template-errors.ts';
import { type Expression, HELPERS, type Helper, type Operator } from './program.ts';

// The only file that uses the handlebars package, and only its parser: its compiler turns templates into JavaScript,
// which is not safe with untrusted templates.

/** The content of a tag: a path or a name, and its arguments. */
export interface TagCall {
  /** As written; the closing tag of a block repeats it. */
  readonly name: string;
  readonly target: Expression;
  readonly params: readonly Expression[];
}

const BACKTICK = /`([^`]*)`/g;
/** The placeholder for expressions in backticks, which the parser does not support. */
const VARIABLE = 'backtick';
const VARIABLE_FORM = new RegExp(`^${VARIABLE}(\\d+)$`);
const DEEPEST = 16;

/** Parses the inside of a tag. Throws `TemplateError`. */
export function parseCall(inside: string): TagCall {
  const backticks: string[] = [];
  const known = inside.replace(BACKTICK, (_, source: string) => ` @${VARIABLE}${backticks.push(source) - 1} `);
  const node = parseOne(known, inside);
  const reader = createReader(backticks.map((source) => parseBacktick(source, readPath)));
  refuseNamed(node);
  return {
    name: 'original' in node.path ? String(node.path.original) : '',
    target: reader(node.path, 0),
    params: node.params.map((param) => reader(param, 0)),
  };
}

/** Parses a path inside backticks, which cannot contain backticks. */
function readPath(text: string): Expression {
  const { path, params, hash } = parseOne(text, text);
  if (params.length > 0 || hash !== undefined) throw new TemplateError(`"${text.slice(0, 100)}" cannot be read`);
  return createReader([])(path, 0);
}

function parseOne(text: string, shown: string): hbs.AST.MustacheStatement {
  const fault = () => new TemplateError(`{{${shown.slice(0, 100)}}} cannot be read`);
  if (depthOf(text) > DEEPEST) throw new TemplateError(`{{${shown.slice(0, 100)}}} is nested too deeply`);
  let statements: hbs.AST.Statement[];
  try {
    statements = parseWithoutProcessing(`{{ ${text} }}`).body;
  } catch {
    throw fault(); // the parser's own message names its internal tokens
  }
  const [statement, ...others] = statements;
  if (!statement || others.length > 0 || !isMustache(statement)) throw fault();
  return statement;
}

/** Nesting depth; the parser takes more than linear time for nested brackets. */
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  for (const char of text) {
    if (char === '(') deepest = Math.max(deepest, ++depth);
    else if (char === ')') depth--;
  }
  return deepest;
}

function createReader(backticks: readonly Expression[]): (node: hbs.AST.Expression, depth: number) => Expression {
  const read = (node: hbs.AST.Expression, depth: number): Expression => {
    if (isPath(node)) return backticks[Number(backtickOf(node))] ?? toPath(node);
    if (isSub(node)) {
      refuseNamed(node);
      return toCall(
        helperOf(node.path.original),
        node.path.original,
        node.params.map((param) => read(param, depth + 1)),
      );
    }
    if (isLiteral(node)) return { kind: 'value', value: node.value };
    return { kind: 'value', value: null };
  };
  return read;
}

function backtickOf({ data, depth, parts }: hbs.AST.PathExpression): string | undefined {
  return data && depth === 0 && parts.length === 1 ? VARIABLE_FORM.exec(parts[0] ?? '')?.[1] : undefined;
}

function toPath({ data, depth, parts, original }: hbs.AST.PathExpression): Expression {
  const scoped = /^(?:this\b|\.)/.test(original);
  const otherwise = !data && !scoped && depth === 0 && parts.length === 1 ? HELPERS.get(original) : undefined;
  return {
    kind: 'path',
    up: depth,
    data,
    scoped,
    parts,
    otherwise: otherwise && otherwise.fewest === 0 ? otherwise : undefined,
  };
}

/** A call of a helper. Throws `TemplateError` if the number of arguments is wrong. */
export function toCall(helper: Helper, name: string, params: readonly Expression[]): Expression {
  const { fewest, most } = helper;
  if (params.length < fewest || params.length > most)
    throw new TemplateError(
      `{{${name}}} takes ${fewest === most ? most : `at most ${most}`} value${most === 1 ? '' : 's'}`,
    );
  return { kind: 'call', helper, params };
}

/** The helper of that name. Throws `TemplateError` if there is none. */
export function helperOf(name: string): Helper {
  const helper = HELPERS.get(name);
  if (!helper) throw new TemplateError(`there is no helper "${name.slice(0, 100)}"`);
  return helper;
}

function refuseNamed({ hash }: { readonly hash?: hbs.AST.Hash }): void {
  const [pair] = hash?.pairs ?? [];
  if (pair) throw new TemplateError(`values with names (${pair.key.slice(0, 100)}=…) are not supported`);
}

const isMustache = (node: hbs.AST.Node): node is hbs.AST.MustacheStatement => node.type === 'MustacheStatement';
const isPath = (node: hbs.AST.Node): node is hbs.AST.PathExpression => node.type === 'PathExpression';
const isSub = (node: hbs.AST.Node): node is hbs.AST.SubExpression => node.type === 'SubExpression';
const isLiteral = (
  node: hbs.AST.Node,
): node is hbs.AST.StringLiteral | hbs.AST.NumberLiteral | hbs.AST.BooleanLiteral =>
  /^(?:String|Number|Boolean)Literal$/.test(node.type);

/** Parses a path in the same way as in a tag of its own. */
type ReadPath = (text: string) => Expression;

// In HTML, an editor writes these as entities.
const ENTITIES: ReadonlyMap<string, string> = new Map([
  ['&lt;', '<'],
  ['&gt;', '>'],
  ['&amp;', '&'],
  ['&quot;', '"'],
  ['&#39;', `'`],
]);
const TOKEN = pattern('uy')`
  \s*(?:(===|!==|==|!=|<>|<=|>=|&&|\|\||[=<>!()])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  |(-?\d{1,15}(?:\.\d{1,15})?)(?![\p{L}\p{N}_])|([@\p{L}\p{N}_./[\]-]+))
`;
const OPERATORS: ReadonlyMap<string, Operator> = new Map<string, Operator>([
  ['=', '=='],
  ['==', '=='],
  ['===', '=='],
  ['!=', '!='],
  ['!==', '!='],
  ['<>', '!='],
  ['<', '<'],
  ['<=', '<='],
  ['>', '>'],
  ['>=', '>='],
  ['&&', 'and'],
  ['and', 'and'],
  ['||', 'or'],
  ['or', 'or'],
]);
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map<string, boolean | null>([
  ['true', true],
  ['false', false],
  ['null', null],
  ['undefined', null],
]);
const DEEPEST_BACKTICK = 16;

interface Token {
  readonly kind: 'sign' | 'text' | 'number' | 'word';
  readonly text: string;
}

/** Parses the content of backticks: comparisons, and, or, not, parentheses. Throws `TemplateError`. */
function parseBacktick(source: string, readPath: ReadPath): Expression {
  const tokens = createTokens(source, readPath);
  const whole = either(tokens, 0);
  if (tokens.peek() !== undefined) throw tokens.fault();
  return whole;
}

/** The tokens of an expression, in order. */
type Tokens = ReturnType<typeof createTokens>;

function createTokens(source: string, readPath: ReadPath) {
  const tokens = toTokens(source.replace(/&(?:lt|gt|amp|quot|#39);/g, (entity) => ENTITIES.get(entity) ?? entity));
  let at = 0;
  return {
    peek: () => tokens[at],
    /** The next token, if it is an operator. */
    operator() {
      const token = tokens[at];
      return token?.kind === 'sign' || token?.kind === 'word' ? OPERATORS.get(token.text.toLowerCase()) : undefined;
    },
    pass() {
      at++;
    },
    fault: () => new TemplateError(`\`${source.slice(0, 100)}\` cannot be read`),
    readPath,
  };
}

type Parse = (tokens: Tokens, depth: number) => Expression;

const either: Parse = (tokens, depth) => chain(tokens, depth, both, (found) => found === 'or');
const both: Parse = (tokens, depth) => chain(tokens, depth, negated, (found) => found === 'and');

/** Parses operands joined by `wanted` operators of equal precedence, left-associative. */
function chain(tokens: Tokens, depth: number, next: Parse, wanted: (found: Operator) => boolean): Expression {
  let left = next(tokens, depth);
  for (let found = tokens.operator(); found !== undefined && wanted(found); found = tokens.operator()) {
    tokens.pass();
    left = { kind: 'operation', operator: found, left, right: next(tokens, depth) };
  }
  return left;
}

function negated(tokens: Tokens, depth: number): Expression {
  if (depth > DEEPEST_BACKTICK) throw new TemplateError('an expression is nested too deeply');
  const token = tokens.peek();
  if (token?.kind === 'word' && token.text.toLowerCase() === 'not') {
    tokens.pass();
    return { kind: 'not', of: negated(tokens, depth + 1) };
  }
  return chain(tokens, depth, single, (found) => found !== 'and' && found !== 'or');
}

function single(tokens: Tokens, depth: number): Expression {
  const token = tokens.peek();
  if (!token || depth > DEEPEST_BACKTICK) throw tokens.fault();
  tokens.pass();
  switch (token.kind) {
    case 'text':
      return { kind: 'value', value: token.text.slice(1, -1).replace(/\\(.)/gsu, '$1') };
    case 'number':
      return { kind: 'value', value: Number(token.text) };
    case 'word': {
      if (OPERATORS.has(token.text.toLowerCase())) throw tokens.fault();
      const constant = CONSTANTS.get(token.text.toLowerCase());
      return constant === undefined ? tokens.readPath(token.text) : { kind: 'value', value: constant };
    }
    default:
      return parseSigned(token.text, tokens, depth);
  }
}

/** Parses an operand that starts with a sign: a negation, or an expression in parentheses. */
function parseSigned(sign: string, tokens: Tokens, depth: number): Expression {
  if (sign === '!') return { kind: 'not', of: single(tokens, depth + 1) };
  if (sign !== '(') throw tokens.fault();
  const inside = either(tokens, depth + 1);
  const close = tokens.peek();
  if (close?.kind !== 'sign' || close.text !== ')') throw tokens.fault();
  tokens.pass();
  return inside;
}

function toTokens(source: string): Token[] {
  const tokens: Token[] = [];
  const trimmed = source.trimEnd();
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < trimmed.length) {
    const from = TOKEN.lastIndex;
    const [, sign, text, number, word] = TOKEN.exec(trimmed) ?? [];
    if (sign !== undefined) tokens.push({ kind: 'sign', text: sign });
    else if (text !== undefined) tokens.push({ kind: 'text', text });
    else if (number !== undefined) tokens.push({ kind: 'number', text: number });
    else if (word !== undefined) tokens.push({ kind: 'word', text: word });
    else
      throw new TemplateError(
        `\`${source.slice(0, 100)}\` cannot be read at "${trimmed.slice(from, from + 20).trim()}"`,
      );
  }
  return tokens;
}
