import { serialize } from 'node:v8';
import { serveTasks } from '../../base/worker-tasks.ts';
import type { ParsedBody, RawBody } from './body-parser.ts';
import { readBody } from './body-values.ts';

// The thread that parses large bodies (body-parser.ts).
serveTasks(() => ({
  parse: ({ bytes, ...format }: RawBody, guarded) =>
    guarded(async () => {
      const read = readBody(new Uint8Array(bytes), format);
      if ('fault' in read) return { value: read, transfer: [] };
      const { values, hasBadText } = read;
      const packed = serialize(values);
      const value: ParsedBody = { key: toKey(values.get('key')), packed, hasBadText };
      return { value, transfer: [packed.buffer] };
    }),
}));

/** Anything but text is a wrong key. */
function toKey(key: unknown): ParsedBody['key'] {
  return key === undefined || typeof key === 'string' ? key : false;
}
