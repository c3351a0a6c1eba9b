import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import { plain } from './text.ts';

// JSON in colours, as text nodes.

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/g;
/** Files in the payload are long; their middle says nothing to a person. */
const LONGEST_VALUE = 2_000;
const LONGEST_SHOWN = 200_000;

/** A JSON value, painted. Long texts are cut. */
export function Json({ value }: { readonly value: unknown }) {
  const text = JSON.stringify(value, shorten, 2);
  return h('pre.code', { tabIndex: 0, dir: 'ltr' }, [
    h('code', [paint(text.slice(0, LONGEST_SHOWN))]),
    text.length > LONGEST_SHOWN && '\n\u2026',
  ]);
}

function shorten(_: string, value: unknown): unknown {
  if (typeof value !== 'string' || value.length <= LONGEST_VALUE) return value;
  return `${value.slice(0, LONGEST_VALUE)}\u2026 (${value.length} characters)`;
}

function paint(json: string) {
  const out: ComponentChildren[] = [];
  let from = 0;
  for (const found of json.matchAll(TOKEN)) {
    const [token, text, colon] = found;
    out.push(json.slice(from, found.index));
    if (text === undefined) out.push(h('span.value', [token]));
    else if (colon === undefined) out.push(h('span.string', plain(text)));
    else out.push(h('span.name', plain(text)), colon);
    from = found.index + token.length;
  }
  out.push(json.slice(from));
  return out;
}
