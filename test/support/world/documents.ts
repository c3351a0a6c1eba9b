import { readFileSync } from 'node:fs';
import { v4, v6 } from './network.ts';

// What an operator copies from docs/operations.md, with the names of the example replaced by those of the world.

/** The names of the world for those of the examples. */
export const HOST = 'mx.operator.net';
export const SITE = 'postern.operator.net';
export const INBOUND = 'in.customer.org';
export const APP = 'app.customer.org';
/** The domain that the operator sends from, whose people have mailboxes at the receiving server. */
export const CUSTOMER = 'customer.org';

const REPLACED: readonly (readonly [from: string, to: string])[] = [
  ['mx.example.com', HOST],
  ['postern.example.com', SITE],
  ['in.example.org', INBOUND],
  // The test's application has no certificate.
  ['https://app.example.com', `http://${APP}`],
  ['example.com', CUSTOMER],
  ['192.0.2.10', v4('host')],
  ['2001:db8::10', v6('host')],
];

/** A text of a document as an operator writes it. */
export function own(text: string): string {
  return REPLACED.reduce((done, [from, to]) => done.replaceAll(from, to), text);
}

const OPERATIONS = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8');

/** The text of a chapter, from its heading to the next of the same level. */
export function chapter(heading: string): string {
  const [, rest] = OPERATIONS.split(`\n## ${heading}\n`);
  if (rest === undefined) throw new Error(`docs/operations.md has no chapter "${heading}"`);
  return rest.split('\n## ')[0] ?? '';
}

/** The commands in a line of text, not in a block, that begin with a program. */
export function commandsIn(heading: string, program: string): readonly string[] {
  const text = chapter(heading)
    .replace(/^```[^]*?^```$/gm, '')
    .replace(/\s+/g, ' ');
  const found = [...text.matchAll(new RegExp(`\`(${program}(?: [^\`]+)?)\``, 'g'))];
  if (found.length === 0) throw new Error(`docs/operations.md has no ${program} under "${heading}"`);
  return found.map(([, command = '']) => own(command));
}
