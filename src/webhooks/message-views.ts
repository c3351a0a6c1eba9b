import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { free } from '../base/room.ts';
import { type PooledTask, TaskBroken } from '../base/worker-pool.ts';
import type { ContentInput, ShownMessage } from './render/content.ts';
import { packPart, toParseError } from './render/renderer.ts';
import type { EventRenderer, RenderPart } from './types.ts';

/** JSON text. A stream must be read to its end or destroyed. */
export interface JsonText {
  readonly size: number;
  readonly content: Uint8Array | Readable;
}

/** Shows messages on the queue to their account. Both take ownership of a body in memory, and throw if the disk fails. */
export interface MessageViews {
  content(part: RenderPart): Promise<ShownMessage>;
  /** The event of the delivery, as it is posted. */
  event(part: RenderPart): Promise<JsonText>;
}

/** Creates the views. Messages are parsed on the threads that render them, under the same deadline. */
export function createMessageViews({
  renderer,
  run,
  log,
}: {
  readonly renderer: Pick<EventRenderer, 'renderJson' | 'discard'>;
  /** Runs the content task on a thread. */
  readonly run: PooledTask<ContentInput, ShownMessage>;
  readonly log: Log;
}): MessageViews {
  async function content(part: RenderPart): Promise<ShownMessage> {
    try {
      return await run(() => pack(part, null));
    } catch (error) {
      if (!(error instanceof TaskBroken)) throw error;
      const reason = toParseError(error);
      log.warn('message.parse_failed', { message: part.message.id, reason });
      return await run(() => pack(part, reason), true);
    }
  }

  return frozen({
    async content(part) {
      try {
        return await content(part);
      } finally {
        if (part.body.kind === 'inline') free(part.body.bytes);
      }
    },
    async event(part) {
      const body = await renderer.renderJson(part);
      try {
        if (body.kind === 'bytes') return { size: body.bytes.length, content: body.bytes };
        const file = await open(body.path);
        return { size: body.size, content: file.createReadStream() };
      } finally {
        // An open file can be read without its name, and is gone when it is closed.
        await renderer.discard(body);
      }
    },
  });
}

function pack(whole: RenderPart, parseError: string | null) {
  const { part, transfer } = packPart(whole);
  return { value: { part, parseError }, transfer };
}
