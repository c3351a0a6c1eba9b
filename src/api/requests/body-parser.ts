import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { deserialize } from 'node:v8';
import type { Context } from 'koa';
import koaBodyParser from 'koa-bodyparser';
import { freeMemory, joined } from '../../base/bytes.ts';
import { createSerialQueue } from '../../base/concurrency.ts';
import { frozen } from '../../base/frozen.ts';
import { moduleUrl } from '../../base/module-url.ts';
import { createWorkerPool, TaskBroken } from '../../base/worker-pool.ts';
import { invalid } from '../errors.ts';
import { type BodyFormat, type BodyValues, faultOf, valuesOf } from './body-values.ts';
import { parseForm } from './forms.ts';
import { type Params, paramsOfClean } from './parameters.ts';

// Parses bodies: small ones here by koa-bodyparser, large ones on a thread. Within the limits of body-check.ts, a
// parser still needs tenths of a second for megabytes of escapes, digits or space, or for many different names.

/** A body that has arrived and passed the checks. */
export interface WholeBody extends BodyFormat {
  readonly chunks: readonly Buffer[];
  /** The approximate number of values in it. */
  readonly count: number;
}

export type BodyParser = ReturnType<typeof createBodyParser>;

/** Larger bodies, and those with more values, are parsed on a thread. */
const LARGE_BYTES = 256 * 1024;
const MANY_VALUES = 10_000;
/**
 * The largest body with the default settings takes half a second, and 200 MB if its text needs two bytes a character.
 */
const POOL = { threads: 2, timeoutMs: 10_000, memoryMb: 512 };

/** The input of the thread. */
export interface RawBody extends BodyFormat {
  readonly bytes: ArrayBuffer;
}

/**
 * The result of the thread: the key, and all values serialized in one buffer. The buffer is deserialized only if the
 * key is valid, so that callers without one cost the main thread nothing.
 */
export interface ParsedBody {
  /** False: it is not text. */
  readonly key: string | false | undefined;
  readonly packed: Uint8Array<ArrayBuffer>;
  readonly hasBadText: boolean;
}

export function createBodyParser(deps: Parameters<typeof createWorkerPool>[1]) {
  const script = moduleUrl('./body-thread.ts', import.meta.url);
  const pool = createWorkerPool({ script, data: undefined, ...POOL }, deps);
  const inTurn = createSerialQueue();
  const run = pool.task<RawBody, ParsedBody | { readonly fault: string }>('parse');

  async function parseElsewhere({ chunks, isForm, names }: WholeBody): Promise<Params> {
    const parsed = await run(() => {
      const bytes = joined(chunks).buffer;
      return { value: { bytes, isForm, names }, transfer: [bytes] };
    }).catch((error: unknown) => {
      if (error instanceof TaskBroken) return { fault: `The body ${error.message} to parse` };
      throw error;
    });
    if ('fault' in parsed) throw invalid({ body: parsed.fault });
    const { key, packed, hasBadText } = parsed;
    let params: Params | undefined;
    const unpacked = () => {
      if (params) return params;
      const values: unknown = deserialize(packed);
      freeMemory(packed);
      params = paramsOfClean({ values: values instanceof Map ? values : new Map(), hasBadText }, isForm);
      return params;
    };
    return {
      textOnly: isForm,
      turn: () => inTurn(() => setImmediate()),
      get: (name) => (name === 'key' ? key : unpacked().get(name)),
      of: (wanted, anyText) => unpacked().of(wanted, anyText),
    };
  }

  return frozen({
    /** Throws a refusal if the body of the request does not hold parameters. */
    async parse(ctx: Context, body: WholeBody) {
      if (sizeOf(body.chunks) > LARGE_BYTES || body.count > MANY_VALUES) return parseElsewhere(body);
      const read = await parseHere(ctx, body);
      if ('fault' in read) throw invalid({ body: read.fault });
      return paramsOfClean(read, body.isForm);
    },
    /** Ends the threads. */
    stop: pool.stop,
  });
}

const options = {
  detectJSON: ({ state }: Context) => state['isForm'] !== true,
  extendTypes: { form: ['*/*'] },
  jsonLimit: String(LARGE_BYTES),
  formLimit: String(LARGE_BYTES),
  // Parameters are looked up by name in a Map, where `__proto__` is a name like any other.
  onProtoPoisoning: 'ignore',
  // Replaces the package qs, which merges the structs of a list as Ruby writes them (`to[][email]=a&to[][name]=A`) into
  // one.
  qs: { parse: parseForm },
};
const parseSmall = koaBodyParser(options);

async function parseHere(ctx: Context, { chunks, isForm, names }: WholeBody): Promise<BodyValues> {
  // The parser reads `req`: here the decoded body, without the headers about its original encoding.
  const req = Object.assign(Readable.from(chunks, { objectMode: false }), { headers: {} });
  ctx.state['isForm'] = isForm;
  const received: Context = Object.create(ctx, { req: { value: req } });
  try {
    await parseSmall(received, () => Promise.resolve());
    return valuesOf(ctx.request.body, names);
  } catch (error) {
    return faultOf(error);
  }
}

function sizeOf(chunks: readonly Buffer[]): number {
  return chunks.reduce((size, { length }) => size + length, 0);
}
