import type { Verdicts } from '../mail/envelope.ts';
import type { Body, Message, QueuedDelivery } from '../queue/delivery.ts';
import type { AttemptResult } from '../queue/settle.ts';

/** The bytes of a POST, in memory or in a file. `discard` removes the file, and makes room for other large ones. */
export type PostBody =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'file'; readonly path: string; readonly size: number };

/** A message made into a signed POST. */
export interface Rendered {
  readonly body: PostBody;
  /** Content-Type and signatures; not Host or Content-Length. */
  readonly headers: Readonly<Record<string, string>>;
  /** Taken now if the message had none yet. Those of a batch of events mean nothing. */
  readonly verdicts: Verdicts;
  /** Why the message is delivered raw, null when it was parsed. */
  readonly parseError: string | null;
}

/** Several messages made into one signed POST. */
export interface RenderedShared extends Pick<Rendered, 'body' | 'headers'> {
  /** The id of the POST: that of the delivery, or one for all of them (base/ids.ts). */
  readonly id: string;
  /** What was found of each, in their order; undefined: it is not in the POST, because its verdicts take long. */
  readonly parts: readonly (Pick<Rendered, 'verdicts' | 'parseError'> | undefined)[];
}

/** What a POST is signed with, beside its id. */
interface PostSigning {
  /** Signing keys, the one for X-Mandrill-Signature first. */
  readonly keys: readonly string[];
  /** Milliseconds since 1970 of this attempt. */
  readonly at: number;
}

/** A message for one of its recipients. */
export interface RenderPart {
  readonly message: Message;
  readonly body: Body;
  readonly delivery: Pick<QueuedDelivery, 'id' | 'recipient'>;
}

/** One message, or one batch of events, to be posted under the id of its delivery. */
export interface RenderJob extends RenderPart, PostSigning {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'recipient' | 'url' | 'batch'>;
}

/** Several messages, to be posted together. */
export interface SharedRenderJob extends PostSigning {
  readonly url: string;
  /** Their bodies are in memory. */
  readonly parts: readonly RenderPart[];
}

/** Turns spooled messages into POSTs on worker threads, under a deadline and a memory limit. */
export interface Renderer {
  /**
   * Never refuses a message: what cannot be parsed is rendered raw. Throws only when the disk or the process fails. A
   * body in memory is given away: it is freed when nothing is made of it any more.
   */
  render(job: RenderJob): Promise<Rendered>;
  /** Answers nothing when one of them breaks the parser: nobody knows which, so each is to be rendered alone. Bodies are given away. */
  renderShared(job: SharedRenderJob): Promise<RenderedShared | undefined>;
  /** Answers nothing when there was nothing to do. */
  discard(body: PostBody): Promise<void> | undefined;
}

/** One guarded request to an endpoint under one absolute deadline. Never throws, never follows a redirect. */
export interface Poster {
  /** A body in memory is given away: it is freed as soon as the system has it. */
  post(url: string, headers: Readonly<Record<string, string>>, body: PostBody): Promise<AttemptResult>;
  /** As `post`, without a body (webhookexists asks HEAD first). */
  head(url: string): Promise<AttemptResult>;
  stop(): Promise<void>;
}
