import { slicesOf } from './characters.ts';
import type { SlicedWork } from './concurrency.ts';

/** Whether a value has named fields: a JSON object, neither null nor a list. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Undefined if the text is not JSON, or not that of an object. */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Characters between two steps: about a millisecond of work. */
const SLICE = 65_536;

/** `Buffer.from(JSON.stringify(value))` in steps, for values with texts of megabytes. Accepts JSON values only. */
export function* jsonBytes(value: object): SlicedWork<Buffer> {
  const parts: Buffer[] = [];
  let pending = '';
  for (const piece of piecesOf(value)) {
    pending += piece;
    if (pending.length < SLICE) continue;
    parts.push(Buffer.from(pending));
    pending = '';
    yield;
  }
  return Buffer.concat([...parts, Buffer.from(pending)]);
}

function* piecesOf(value: unknown): Generator<string> {
  if (typeof value === 'string' && value.length > SLICE) yield* piecesOfText(value);
  else if (typeof value !== 'object' || value === null) yield JSON.stringify(value) ?? 'null';
  else if (Array.isArray(value)) {
    yield '[';
    for (const [at, item] of value.entries()) {
      if (at > 0) yield ',';
      yield* piecesOf(item);
    }
    yield ']';
  } else {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    yield '{';
    for (const [at, [name, member]] of members.entries()) {
      yield `${at > 0 ? ',' : ''}${JSON.stringify(name)}:`;
      yield* piecesOf(member);
    }
    yield '}';
  }
}

function* piecesOfText(text: string): Generator<string> {
  yield '"';
  for (const slice of slicesOf(text, SLICE)) yield JSON.stringify(slice).slice(1, -1);
  yield '"';
}
