import { FaultyTemplate } from '../faulty-template.ts';
import type { Expression, Operator } from './program.ts';

/** Reads a path as it would stand in a tag of its own. */
export type ReadPath = (text: string) => Expression;

// In HTML, an editor writes these as entities.
const ENTITIES: ReadonlyMap<string, string> = new Map([
  ['&lt;', '<'],
  ['&gt;', '>'],
  ['&amp;', '&'],
  ['&quot;', '"'],
  ['&#39;', `'`],
]);
const TOKEN =
  /\s*(?:(===|!==|==|!=|<>|<=|>=|&&|\|\||[=<>!()])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(-?\d{1,15}(?:\.\d{1,15})?)(?![\p{L}\p{N}_])|([@\p{L}\p{N}_./[\]-]+))/uy;
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
const DEEPEST = 16;

interface Token {
  readonly kind: 'sign' | 'text' | 'number' | 'word';
  readonly text: string;
}

/** Reads what stands between backticks: comparisons, and, or, not, brackets. Throws `FaultyTemplate`. */
export function parseBacktick(source: string, readPath: ReadPath): Expression {
  const tokens = createTokens(source, readPath);
  const whole = either(tokens, 0);
  if (tokens.peek() !== undefined) throw tokens.fault();
  return whole;
}

/** The tokens of an expression, one after the other. */
interface Tokens {
  peek(): Token | undefined;
  /** The operator that comes next, if one does. */
  operator(): Operator | undefined;
  pass(): void;
  fault(): FaultyTemplate;
  readonly readPath: ReadPath;
}

function createTokens(source: string, readPath: ReadPath): Tokens {
  const tokens = toTokens(source.replace(/&(?:lt|gt|amp|quot|#39);/g, (entity) => ENTITIES.get(entity) ?? entity));
  let at = 0;
  return {
    peek: () => tokens[at],
    operator() {
      const token = tokens[at];
      return token?.kind === 'sign' || token?.kind === 'word' ? OPERATORS.get(token.text.toLowerCase()) : undefined;
    },
    pass() {
      at++;
    },
    fault: () => new FaultyTemplate(`\`${source.slice(0, 100)}\` cannot be read`),
    readPath,
  };
}

type Parse = (tokens: Tokens, depth: number) => Expression;

const either: Parse = (tokens, depth) => chain(tokens, depth, both, (found) => found === 'or');
const both: Parse = (tokens, depth) => chain(tokens, depth, negated, (found) => found === 'and');

/** One value or more, with `wanted` operators between them; to the left they bind as strongly. */
function chain(tokens: Tokens, depth: number, next: Parse, wanted: (found: Operator) => boolean): Expression {
  let left = next(tokens, depth);
  for (let found = tokens.operator(); found !== undefined && wanted(found); found = tokens.operator()) {
    tokens.pass();
    left = { kind: 'operation', operator: found, left, right: next(tokens, depth) };
  }
  return left;
}

function negated(tokens: Tokens, depth: number): Expression {
  if (depth > DEEPEST) throw new FaultyTemplate('an expression is nested too deeply');
  const token = tokens.peek();
  if (token?.kind === 'word' && token.text.toLowerCase() === 'not') {
    tokens.pass();
    return { kind: 'not', of: negated(tokens, depth + 1) };
  }
  return chain(tokens, depth, single, (found) => found !== 'and' && found !== 'or');
}

function single(tokens: Tokens, depth: number): Expression {
  const token = tokens.peek();
  if (!token || depth > DEEPEST) throw tokens.fault();
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
      return signed(token.text, tokens, depth);
  }
}

/** What begins with a sign: something else, or something in brackets. */
function signed(sign: string, tokens: Tokens, depth: number): Expression {
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
      throw new FaultyTemplate(
        `\`${source.slice(0, 100)}\` cannot be read at "${trimmed.slice(from, from + 20).trim()}"`,
      );
  }
  return tokens;
}
