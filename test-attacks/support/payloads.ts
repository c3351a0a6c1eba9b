const own = (json: string): unknown => JSON.parse(json);
const deep = (levels: number, inner: unknown = {}): unknown => Array.from({ length: levels }).reduce((value) => ({ a: value }), inner);

/** What a template engine would make of `{{1337*7331}}`. */
export const COMPUTED = '9801547';

/** Things that are no texts: operators of databases, ways to a prototype, and other kinds of values. */
export const OPERATORS: readonly unknown[] = [
  { $gt: '' }, { $gte: '' }, { $ne: null }, { $ne: 'x' }, { $where: 'sleep(5000) || true' }, { $regex: '^.*$', $options: 'i' }, { $in: ['a', null] }, { $nin: [] },
  { $exists: true }, { $or: [{}] }, { $not: { $eq: 'x' } }, { $expr: { $eq: [1, 1] } }, { $function: { body: 'while(true);', args: [], lang: 'js' } }, { $type: 2 }, { $set: { admin: true } },
  { 'a.b': 1 }, { 'account': 'AnotherAccountId000002' }, { 'a\u0000b': 1 }, { '\u0000': 1 }, { '': 1 }, { length: 1e9 }, { toString: 'x', valueOf: 1 }, { toJSON: 'x' }, { then: 'x' },
  own('{"__proto__":{"polluted":1}}'), { constructor: { prototype: { polluted: 1 } } }, own('{"a":{"__proto__":{"polluted":1}}}'),
  [], ['x'], ['x', 'y'], [[]], [{ $gt: '' }], [null], [own('{"__proto__":{"polluted":1}}')], {}, deep(24), [[[[[['x']]]]]],
  0, 7, -1, 1.5, 1e21, 2 ** 53, true, false,
];

/** A few of them, for where time is short. */
export const FEW_OPERATORS: readonly unknown[] = [{ $in: ['a'] }, { $expr: { $eq: [1, 1] } }, { constructor: { prototype: { polluted: 1 } } }, { '\u0000': 1 }, [{ $gt: '' }], deep(24), { $gt: '' }, { $ne: null }, { $where: 'sleep(5000) || true' }, { $regex: '.*' }, { 'a.b': 1 }, own('{"__proto__":{"polluted":1}}'), ['x'], 7, true];

/** Texts that have broken other systems. */
export const TEXTS: readonly string[] = [
  '', ' ', '\t', '\u0000', 'a\u0000b', 'a\r\nX-Injected: 1', 'a\nX-Injected: 1', 'a\rX-Injected: 1', '\u0085X-Injected: 1', '\u2028X-Injected: 1', '\u202etxt.exe', '\u2066a\u2069', '\ufeffa', '\u200b',
  '\ud800', 'a\udfff\ud800', '\ufffe', '\u{10ffff}', 'x'.repeat(100_000), '\u{1f4ee}'.repeat(25_000), '\u0130'.repeat(300), '\ufdfa'.repeat(300), `z${'\u0301'.repeat(500)}`,
  '%s%s%s%n%x%p', '%00', '%0d%0aX-Injected:%201', '{0}{1}', '../../../../etc/passwd', '..\\..\\..\\windows\\win.ini', '/etc/passwd\u0000.png', 'file:///etc/passwd', '|id', '$(id)', '`id`',
  '{{1337*7331}}', '${1337*7331}', '<%= 1337*7331 %>', '#{1337*7331}', '{{constructor.constructor("return 1337*7331")()}}', '*|IF:A|**|END:IF|*', '*|'.repeat(2000), '{{#each this}}'.repeat(300),
  '__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '__proto__@example.com', '$where', '$gt', 'a.b', "' OR '1'='1", "'; DROP TABLE accounts; --", '" OR ""="', '%', '_', '*', '\\',
  '=cmd|\' /C calc\'!A0', '<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '(((((a+)+)+)+)+)+$', '*'.repeat(255), '?'.repeat(255), '('.repeat(5000), '"'.repeat(999), '<'.repeat(5000), ','.repeat(5000),
  '=?utf-8?Q?a=0D=0AX-Injected:_1?=', '=?utf-8?B?DQpYLUluamVjdGVkOiAx?=', '"a\r\nX-Injected: 1"@example.com', 'a@b.example\r\nBcc: c@d.example', '<a@b.example>', 'a@b@c', 'a@[127.0.0.1]', 'xn--a@xn--0', 'a@xn--\u00df', `${'a'.repeat(65)}@example.com`,
  'NaN', 'Infinity', '-0', '1e400', '9'.repeat(400), '0x7f', '0000-01-01 00:00:00', '0001-01-01', '2026-02-30 00:00:00', '9999-12-31 23:59:59', '10000-01-01', '2026-01-01T00:00:00+99:99',
  'http://127.0.0.1/', 'http://a\r\nb/', 'http://[::1', 'javascript:alert(1)', 'http://\u0000/', 'HTTP://EXAMPLE.com:99999/', 'null', 'undefined', 'true', '[object Object]',
];

/** Of these, what gets as far as the store, or is an edge of it. */
export const FEW_TEXTS: readonly string[] = ['', '0000-01-01 00:00:00', '9999-12-31 23:59:59', '../../../../etc/passwd', '*|IF:A|**|END:IF|*', '(((((a+)+)+)+)+)+$', '%s%s%n', 'a@b.example\r\nBcc: c@d.example', '"'.repeat(999), '__proto__', '$where', 'a.b', 'a\u0000b', '\ud800', 'a\r\nX-Injected: 1', '\u202etxt.exe', 'x'.repeat(100_000), "'; DROP TABLE accounts; --", '{{1337*7331}}', '\u{1f4ee}'];

/** The fewest, for a second store. */
export const STORED = { others: [{ $gt: '' }, { 'a.b': 1 }, ['x']], texts: ['__proto__', '$where', 'a.b', '\u202etxt.exe', 'x'.repeat(100_000)] };
