import { parseWithoutProcessing } from 'handlebars/dist/cjs/handlebars/compiler/base.js';
import { FaultyTemplate } from '../faulty-template.ts';
import { parseBacktick } from './backtick.ts';
import { HELPERS, type Helper } from './helpers.ts';
import type { Expression } from './program.ts';

// The one file that knows the handlebars package, and of it the parser alone: its compiler makes JavaScript of a template, which
// is nothing to do with what strangers write.

/** What stands in a tag: a path or a name, and the values behind it. */
export interface Call {
  /** As it is written; the tag that closes a block says it again. */
  readonly name: string;
  readonly target: Expression;
  readonly params: readonly Expression[];
}

const BACKTICK = /`([^`]*)`/g;
/** What stands for an expression in backticks, of which the parser knows nothing. */
const PLACE = 'backtick';
const PLACE_FORM = new RegExp(`^${PLACE}(\\d+)$`);
const DEEPEST = 16;

/** Reads the inside of a tag. Throws `FaultyTemplate`. */
export function parseCall(inside: string): Call {
  const backticks: string[] = [];
  const known = inside.replace(BACKTICK, (_, source: string) => ` @${PLACE}${backticks.push(source) - 1} `);
  const node = parseOne(known, inside);
  const reader = createReader(backticks.map((source) => parseBacktick(source, readPath)));
  refuseNamed(node);
  return {
    name: 'original' in node.path ? String(node.path.original) : '',
    target: reader(node.path, 0),
    params: node.params.map((param) => reader(param, 0)),
  };
}

/** The same for a path in backticks, which cannot have backticks in it. */
function readPath(text: string): Expression {
  const { path, params, hash } = parseOne(text, text);
  if (params.length > 0 || hash !== undefined) throw new FaultyTemplate(`"${text.slice(0, 100)}" cannot be read`);
  return createReader([])(path, 0);
}

function parseOne(text: string, shown: string): hbs.AST.MustacheStatement {
  const fault = () => new FaultyTemplate(`{{${shown.slice(0, 100)}}} cannot be read`);
  if (depthOf(text) > DEEPEST) throw new FaultyTemplate(`{{${shown.slice(0, 100)}}} is nested too deeply`);
  let statements: hbs.AST.Statement[];
  try {
    statements = parseWithoutProcessing(`{{ ${text} }}`).body;
  } catch {
    throw fault(); // what the parser says of it names tokens that nobody knows
  }
  const [statement, ...others] = statements;
  if (!statement || others.length > 0 || !isMustache(statement)) throw fault();
  return statement;
}

/** The parser takes more than linear time for brackets in brackets. */
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
    if (isPath(node)) return backticks[Number(placeOf(node))] ?? toPath(node);
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

function placeOf({ data, depth, parts }: hbs.AST.PathExpression): string | undefined {
  return data && depth === 0 && parts.length === 1 ? PLACE_FORM.exec(parts[0] ?? '')?.[1] : undefined;
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

/** A helper with its values; throws when it takes fewer or more. */
export function toCall(helper: Helper, name: string, params: readonly Expression[]): Expression {
  const { fewest, most } = helper;
  if (params.length < fewest || params.length > most)
    throw new FaultyTemplate(
      `{{${name}}} takes ${fewest === most ? most : `at most ${most}`} value${most === 1 ? '' : 's'}`,
    );
  return { kind: 'call', helper, params };
}

/** The helper of that name; throws when there is none. */
export function helperOf(name: string): Helper {
  const helper = HELPERS.get(name);
  if (!helper) throw new FaultyTemplate(`there is no helper "${name.slice(0, 100)}"`);
  return helper;
}

function refuseNamed({ hash }: { readonly hash?: hbs.AST.Hash }): void {
  const [pair] = hash?.pairs ?? [];
  if (pair) throw new FaultyTemplate(`values with names (${pair.key.slice(0, 100)}=…) are not supported`);
}

const isMustache = (node: hbs.AST.Node): node is hbs.AST.MustacheStatement => node.type === 'MustacheStatement';
const isPath = (node: hbs.AST.Node): node is hbs.AST.PathExpression => node.type === 'PathExpression';
const isSub = (node: hbs.AST.Node): node is hbs.AST.SubExpression => node.type === 'SubExpression';
const isLiteral = (
  node: hbs.AST.Node,
): node is hbs.AST.StringLiteral | hbs.AST.NumberLiteral | hbs.AST.BooleanLiteral =>
  /^(?:String|Number|Boolean)Literal$/.test(node.type);
