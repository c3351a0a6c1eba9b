import { serialize } from 'node:v8';
import { serveTasks } from '../base/worker-tasks.ts';
import type { ParsedBody, RawBody } from './body-parser.ts';
import { readBody } from './body-values.ts';

// The thread that parses large bodies (body-parser.ts).
serveTasks(() => ({
  parse: ({ bytes, isForm }: RawBody, guarded) =>
    guarded(async () => {
      const read = readBody(new Uint8Array(bytes), isForm);
      if ('fault' in read) return { value: read, transfer: [] };
      const packed = serialize(read.values);
      const value: ParsedBody = { key: toKey(keyIn(read.values)), packed, hasBadText: read.hasBadText };
      return { value, transfer: [packed.buffer] };
    }),
}));

function keyIn(values: object): unknown {
  if (values instanceof Map) return values.get('key');
  return Object.hasOwn(values, 'key') ? Reflect.get(values, 'key') : undefined;
}

/** Only a text can be a key; anything else is a wrong one, however large. */
function toKey(key: unknown): ParsedBody['key'] {
  if (key === undefined || key === null) return undefined;
  return typeof key === 'string' ? key : false;
}
