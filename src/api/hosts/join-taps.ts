import { Readable } from 'node:stream';
import { z } from 'zod';
import { toBuffer } from '../../base/bytes.ts';
import type { JsonText } from '../../webhooks/message-views.ts';
import type { AskedHost, Call, Hosts } from '../operation.ts';
import { type Cursor, formatHostCursor, parseHostCursor } from './join-hosts.ts';

// Tap of a route whose mail several hosts accept. An answer has the mail of one host, and a cursor with the position in
// each host, from which the next call continues.

/** The interval at which the other hosts are asked again, in seconds. */
export const ROUND_S = 2;

const head = z.object({ cursor: z.int(), gap: z.boolean() });
const NO_MAIL = ']}';

/** The answer of one host; `rest`: its text after the start of the list. */
interface Tapped extends z.output<typeof head> {
  readonly rest: { readonly size: number; readonly content: Readable };
}

interface Wanted {
  readonly cursor: Cursor | undefined;
  readonly waitS: number;
}

/** The new mail of the first host that has some. */
export async function tapAll(
  { here, others }: Hosts<JsonText>,
  { cursor, waitS }: Wanted,
  { now, gone }: Pick<Call<never>, 'now' | 'gone'>,
): Promise<JsonText> {
  const all = [here, ...others];
  const positions = new Map(typeof cursor === 'string' ? parseHostCursor(cursor) : []);
  if (typeof cursor === 'number') positions.set(here.id, cursor);
  let gap = false;

  /** Undefined if it has nothing new. */
  async function ask(host: AskedHost<JsonText>, wait: number): Promise<Tapped['rest'] | undefined> {
    const text = await host.ask({ cursor: positions.get(host.id) ?? undefined, wait });
    if (!text) return undefined;
    const answer = await toTapped(text);
    gap ||= answer.gap;
    positions.set(host.id, answer.cursor);
    if (answer.rest.size > NO_MAIL.length) return answer.rest;
    answer.rest.content.destroy();
    return undefined;
  }

  function toText({ size, content }: Tapped['rest']): JsonText {
    const isAlone = others.length === 0 && typeof cursor !== 'string';
    const next = isAlone ? (positions.get(here.id) ?? 0) : formatHostCursor(positions);
    const start = Buffer.from(`{"cursor":${JSON.stringify(next)},"gap":${gap},"messages":[`);
    return { size: start.length + size, content: join(start, content[Symbol.asyncIterator](), content) };
  }

  const began = now().getTime();
  const end = began + waitS * 1000;
  // A host records mail of the route from its first call on, so that call finds nothing.
  const added = all.filter(({ id }) => !positions.has(id));
  await Promise.all(added.map((host) => ask(host, 0)));
  // It may have accepted mail before it answered.
  if (cursor !== undefined && added.some(({ id }) => positions.has(id))) gap = true;
  // So that a busy host does not delay mail of the others.
  const first = began % all.length;
  for (;;) {
    for (const host of [...all.slice(first), ...all.slice(0, first)]) {
      const found = gone.aborted ? undefined : await ask(host, 0);
      if (found) return toText(found);
    }
    const left = Math.ceil((end - now().getTime()) / 1000);
    const found = left > 0 && !gone.aborted ? await ask(here, Math.min(ROUND_S, left)) : undefined;
    if (found) return toText(found);
    if (left <= 0 || gone.aborted)
      return toText({ size: NO_MAIL.length, content: Readable.from([Buffer.from(NO_MAIL)]) });
  }
}

const START_OF_LIST = '"messages":[';
const MAX_HEAD = 1024;

/** Reads the answer of a host up to the start of the list. */
async function toTapped({ size, content }: JsonText): Promise<Tapped> {
  const source = content instanceof Uint8Array ? Readable.from([toBuffer(content)]) : content;
  const chunks: AsyncIterator<Uint8Array> = source[Symbol.asyncIterator]();
  let read = Buffer.alloc(0);
  for (;;) {
    const next = await chunks.next();
    if (!next.done) read = Buffer.concat([read, next.value]);
    const at = read.indexOf(START_OF_LIST);
    if (at >= 0) {
      const end = at + START_OF_LIST.length;
      const found = head.parse(JSON.parse(`${read.subarray(0, end)}]}`));
      return { ...found, rest: { size: size - end, content: join(read.subarray(end), chunks, source) } };
    }
    if (next.done || read.length > MAX_HEAD) {
      source.destroy();
      throw new Error('the answer has no list of messages');
    }
  }
}

/** The bytes, and the chunks of the source, which is closed with it. */
function join(bytes: Uint8Array, chunks: AsyncIterator<Uint8Array>, source: Readable): Readable {
  async function* both() {
    yield bytes;
    for (let next = await chunks.next(); !next.done; next = await chunks.next()) yield next.value;
  }
  const joined = Readable.from(both(), { objectMode: false });
  joined.once('close', () => source.destroy());
  return joined;
}
