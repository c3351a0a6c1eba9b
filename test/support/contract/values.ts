import type { Parameter, Rule } from './types.ts';

/** Values that a parameter must refuse, and values at the edge that it must take. */
export interface Tries {
  readonly refused: readonly unknown[];
  readonly taken: readonly unknown[];
}

const WRONG_TYPE: Readonly<Record<Parameter['type'], readonly unknown[]>> = {
  string: [7, true, {}, ['x']],
  integer: ['seven', 1.5, true, {}, [7]],
  boolean: ['maybe', 7, {}, [true]],
  'array of string': ['x', 7, {}, [7], [{}], [['x']]],
  'array of struct': ['x', 7, {}, ['x'], [7]],
};

const FORMATS = {
  email: ['nobody', 'a@', '@b.example', 'a b@c.example', 'a@b c.example', 'a@b.example\r\nBcc: c@d.example'],
  domain: ['not a domain', 'a..example.com', 'a@example.com', 'nodot', `${'a'.repeat(64)}.example.com`],
  time: ['yesterday', '2026-02-30 00:00:00', '2026-13-01'],
  url: ['not a url', 'ftp://a.example/', 'javascript:alert(1)', '//a.example/'],
} as const;

const GOOD = {
  email: 'ann@example.com',
  domain: 'mail.example.com',
  time: '2026-01-01 00:00:00',
  url: 'https://app.example.com/',
} as const;

/** What to try a parameter with: other types, and every rule at its edge and one past it. */
export function triesOf({ type, rules }: Parameter): Tries {
  const tries = rules.map(ruleTries);
  return {
    refused: [...WRONG_TYPE[type], ...tries.flatMap(({ refused }) => refused)],
    taken: tries.flatMap(({ taken }) => taken),
  };
}

function ruleTries(rule: Rule): Tries {
  if ('maxlength' in rule) return { refused: ['x'.repeat(rule.maxlength + 1)], taken: ['x'.repeat(rule.maxlength)] };
  if ('format' in rule) return { refused: FORMATS[rule.format], taken: [] };
  if ('oneOf' in rule)
    return {
      refused: ['something else', '', ...rule.oneOf.slice(0, 1).map((word) => word.toUpperCase())],
      taken: rule.oneOf,
    };
  if ('above' in rule) return { refused: [rule.above, rule.above - 1], taken: [rule.above + 1] };
  if ('maxItems' in rule) {
    const items = Array.from({ length: rule.maxItems + 1 }, (_, i) => `item ${i}`);
    return { refused: [items], taken: [items.slice(1), []] };
  }
  const each = rule.each.map(ruleTries);
  return {
    refused: each.flatMap(({ refused }) => refused.map((value) => [value])),
    taken: [
      [],
      ...each.flatMap(({ taken }) => [...taken.map((value) => [value]), ...(taken.length > 1 ? [taken] : [])]),
      ...goods(rule.each),
    ],
  };
}

function goods(rules: readonly Rule[]): string[][] {
  return rules.flatMap((rule) => ('format' in rule ? [[GOOD[rule.format]]] : []));
}

/** What gets as far as the store, for a second store: the rest is refused before. */
export const STORED: readonly unknown[] = [
  '__proto__',
  '$where',
  'a\r\nX-Injected: 1',
  '\u{1f4ee}\u{1f469}\u200d\u{1f680}',
  '\u202etxt.exe',
  'x'.repeat(100_000),
  '(((((a+)+)+)+)+)+$',
];

/** Texts that have broken other systems, and things that are no texts at all. */
export const HOSTILE: readonly unknown[] = [
  { $gt: '' },
  { $ne: null },
  [{ $gt: '' }],
  ['x', 'y'],
  JSON.parse('{"__proto__":{"polluted":1}}'),
  '__proto__',
  'constructor',
  '$where',
  '\u0000',
  'a\u0000b',
  'a\r\nX-Injected: 1',
  '\ud800',
  'a\udfff\ud800',
  '\u{1f4ee}\u{1f469}\u200d\u{1f680}',
  '\u202etxt.exe',
  'x'.repeat(100_000),
  '\u{1f4ee}'.repeat(25_000),
  '',
  ' ',
  '%00',
  "'; DROP TABLE accounts; --",
  '../../etc/passwd',
  '(((((a+)+)+)+)+)+$',
  '*'.repeat(300),
  '*|IF:'.repeat(200),
];
