import { FaultyTemplate } from '../faulty-template.ts';
import type { Expression, Operator } from './program.ts';

/** Reads a path as it would stand in a tag of its own. */
export type ReadPath = (text: string) => Expression;

// In HTML, an editor writes these as entities.
const ENTITIES: ReadonlyMap<string, string> = new Map([['&lt;', '<'], ['&gt;', '>'], ['&amp;', '&'], ['&quot;', '"'], ['&#39;', `'`]]);
const TOKEN = /\s*(?:(===|!==|==|!=|<>|<=|>=|&&|\|\||[=<>!()])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(-?\d{1,15}(?:\.\d{1,15})?)(?![\p{L}\p{N}_])|([@\p{L}\p{N}_./[\]-]+))/uy;
const OPERATORS: ReadonlyMap<string, Operator> = new Map<string, Operator>([
  ['=', '=='], ['==', '=='], ['===', '=='], ['!=', '!='], ['!==', '!='], ['<>', '!='], ['<', '<'], ['<=', '<='], ['>', '>'], ['>=', '>='],
  ['&&', 'and'], ['and', 'and'], ['||', 'or'], ['or', 'or'],
]);
const NEGATIONS = new Set(['!', 'not']);
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map<string, boolean | null>([['true', true], ['false', false], ['null', null], ['undefined', null]]);
const DEEPEST = 16;

interface Token {
  readonly kind: 'sign' | 'text' | 'number' | 'word';
  readonly text: string;
}

/** Reads what stands between backticks: comparisons, and, or, not, brackets. Throws `FaultyTemplate`. */
export function parseBacktick(source: string, readPath: ReadPath): Expression {
  const tokens = toTokens(source.replace(/&(?:lt|gt|amp|quot|#39);/g, (entity) => ENTITIES.get(entity) ?? entity));
  let at = 0;
  const fault = () => new FaultyTemplate(`\`${source.slice(0, 100)}\` cannot be read`);
  const peek = () => tokens[at];
  const operator = () => { const token = peek(); return token && (token.kind === 'sign' || token.kind === 'word') ? OPERATORS.get(token.text.toLowerCase()) : undefined; };

  /** One value or more, with `wanted` operators between them; to the left they bind as strongly. */
  const chain = (next: (depth: number) => Expression, wanted: (found: Operator) => boolean, depth: number): Expression => {
    let left = next(depth);
    for (let found = operator(); found !== undefined && wanted(found); found = operator()) {
      at++;
      left = { kind: 'operation', operator: found, left, right: next(depth) };
    }
    return left;
  };
  const either = (depth: number): Expression => chain(both, (found) => found === 'or', depth);
  const both = (depth: number): Expression => chain(negated, (found) => found === 'and', depth);
  const negated = (depth: number): Expression => {
    if (depth > DEEPEST) throw new FaultyTemplate('an expression is nested too deeply');
    const token = peek();
    if (token?.kind === 'word' && NEGATIONS.has(token.text.toLowerCase())) {
      at++;
      return { kind: 'not', of: negated(depth + 1) };
    }
    return chain(single, (found) => found !== 'and' && found !== 'or', depth);
  };
  const single = (depth: number): Expression => {
    const token = peek();
    if (!token || depth > DEEPEST) throw fault();
    at++;
    if (token.kind === 'text') return { kind: 'value', value: token.text.slice(1, -1).replace(/\\(.)/gsu, '$1') };
    if (token.kind === 'number') return { kind: 'value', value: Number(token.text) };
    if (token.text === '!') return { kind: 'not', of: single(depth + 1) };
    if (token.text === '(') {
      const inside = either(depth + 1);
      if (peek()?.text !== ')' || peek()?.kind !== 'sign') throw fault();
      at++;
      return inside;
    }
    if (token.kind !== 'word' || OPERATORS.has(token.text.toLowerCase())) throw fault();
    const constant = CONSTANTS.get(token.text.toLowerCase());
    return constant === undefined ? readPath(token.text) : { kind: 'value', value: constant };
  };

  const whole = either(0);
  if (at < tokens.length) throw fault();
  return whole;
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
    else throw new FaultyTemplate(`\`${source.slice(0, 100)}\` cannot be read at "${trimmed.slice(from, from + 20).trim()}"`);
  }
  return tokens;
}
