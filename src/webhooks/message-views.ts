import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { freeBytes } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { type PooledTask, TaskBroken } from '../base/worker-pool.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { Answers } from './answers.ts';
import type { ContentInput, ShownMessage } from './render/content.ts';
import { packPart, toParseError } from './render/renderer.ts';
import type { Shown, ShownInput } from './render/shown.ts';
import type { Destinations } from './road.ts';
import type { EventRenderer, RenderPart } from './types.ts';

/** JSON text. A stream must be read to its end or destroyed. */
export interface JsonText {
  readonly size: number;
  readonly content: Uint8Array | Readable;
}

/**
 * Shows messages on the queue to their account. All take ownership of a body in memory, and throw if the disk fails.
 */
export interface MessageViews {
  content(part: RenderPart): Promise<ShownMessage>;
  /** What is posted for the delivery, as JSON; a post that is not JSON is in `body`. */
  event(part: RenderPart & { readonly delivery: Pick<Delivery, 'routeId' | 'account'> }): Promise<JsonText>;
  /** Its HTML as a page that is safe to look at, or one of its parts; `nothing` also if it breaks the thread. */
  shown(part: RenderPart, wanted: ShownInput['wanted']): Promise<Shown>;
}

/** Creates the views. Messages are parsed on the threads that render them, under the same deadline. */
export function createMessageViews({
  renderer,
  run,
  show,
  destinations,
  answers,
  log,
}: {
  readonly renderer: Pick<EventRenderer, 'renderJson' | 'discard'>;
  /** Runs the content task on a thread. */
  readonly run: PooledTask<ContentInput, ShownMessage>;
  /** Runs the task that makes a message safe to look at. */
  readonly show: PooledTask<ShownInput, Shown>;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly answers: Pick<Answers, 'shown'>;
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
        freeBytes(part.body);
      }
    },
    async shown(whole, wanted) {
      try {
        return await show(() => {
          const { part, transfer } = packPart(whole);
          return { value: { part, wanted }, transfer };
        });
      } catch (error) {
        if (!(error instanceof TaskBroken)) throw error;
        log.warn('message.parse_failed', { message: whole.message.id, reason: toParseError(error) });
        return { kind: 'nothing' };
      } finally {
        freeBytes(whole.body);
      }
    },
    async event(part) {
      const { id, recipient, routeId, account } = part.delivery;
      const style = destinations.target({ routeId, recipient });
      const known = { ...part, delivery: { id, recipient }, answers: await answers.shown(account, part) };
      const body = await renderer.renderJson(known, style);
      try {
        if (body.kind === 'memory') return { size: body.bytes.length, content: body.bytes };
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
