import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { freeBytes } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { type PooledTask, TaskBroken } from '../base/worker-pool.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { Destinations } from './destinations.ts';
import type { ContentInput, ShownMessage } from './render/content.ts';
import { packMail, toParseError } from './render/renderer.ts';
import type { Shown, ShownInput } from './render/shown.ts';
import type { ReplyMatching } from './reply-matching.ts';
import type { Mail, Renderer } from './types.ts';

/** JSON text. A stream must be read to its end or destroyed. */
export interface JsonText {
  readonly size: number;
  readonly content: Uint8Array | Readable;
}

/**
 * Shows messages on the queue to their account. All take ownership of a body in memory, and throw if the disk fails.
 */
export type MessageViews = ReturnType<typeof createMessageViews>;

interface MessageViewsDeps {
  readonly renderer: Pick<Renderer, 'render' | 'discard'>;
  /** Runs the content task on a thread. */
  readonly run: PooledTask<ContentInput, ShownMessage>;
  /** Runs the task that sanitises a message for display. */
  readonly show: PooledTask<ShownInput, Shown>;
  readonly destinations: Pick<Destinations, 'target'>;
  readonly answers: Pick<ReplyMatching, 'shown'>;
  readonly log: Log;
}

/** Creates the views. Messages are parsed on the threads that render them, under the same deadline. */
export function createMessageViews({ renderer, run, show, destinations, answers, log }: MessageViewsDeps) {
  async function content(mail: Mail): Promise<ShownMessage> {
    try {
      return await run(() => pack(mail, null));
    } catch (error) {
      if (!(error instanceof TaskBroken)) throw error;
      const reason = toParseError(error);
      log.warn('message.parse_failed', { message: mail.message.id, reason });
      return await run(() => pack(mail, reason), true);
    }
  }

  return frozen({
    async content(mail: Mail) {
      try {
        return await content(mail);
      } finally {
        freeBytes(mail.body);
      }
    },
    /** Its HTML as a page that is safe to display, or one of its parts; `nothing` also if it breaks the thread. */
    async shown(whole: Mail, wanted: ShownInput['wanted']): Promise<Shown> {
      try {
        return await show(() => {
          const { mail, transfer } = packMail(whole);
          return { value: { mail, wanted }, transfer };
        });
      } catch (error) {
        if (!(error instanceof TaskBroken)) throw error;
        log.warn('message.parse_failed', { message: whole.message.id, reason: toParseError(error) });
        return { kind: 'nothing' };
      } finally {
        freeBytes(whole.body);
      }
    },
    /** The payload of the delivery as JSON; a post that is not JSON is in `body`. */
    async event(mail: Mail & { readonly delivery: Pick<Delivery, 'routeId' | 'account'> }): Promise<JsonText> {
      const { recipient, routeId, account } = mail.delivery;
      const style = destinations.target({ routeId, recipient });
      const known = { ...mail, answers: await answers.shown(account, mail) };
      const { body } = await renderer.render({ mails: [known], url: '', keys: [], at: 0, style, asJson: true });
      try {
        if (body.kind === 'memory') return { size: body.bytes.length, content: body.bytes };
        const file = await open(body.path);
        return { size: body.size, content: file.createReadStream() };
      } finally {
        // An open file can be read after its name is removed, and is deleted when it is closed.
        await renderer.discard(body);
      }
    },
  });
}

function pack(whole: Mail, parseError: string | null) {
  const { mail, transfer } = packMail(whole);
  return { value: { mail, parseError }, transfer };
}
