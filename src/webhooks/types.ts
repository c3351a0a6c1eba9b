import type { Bytes } from '../base/bytes.ts';
import type { PostStyle } from '../inbound/formats.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { MailSummary } from '../mail/summary.ts';
import type { Message, QueuedDelivery } from '../queue/delivery.ts';
import type { AttemptResult } from '../queue/settle.ts';

/** A message rendered as a signed POST. */
export interface Rendered {
  readonly body: Bytes;
  /** Content-Type and signatures; not Host or Content-Length. */
  readonly headers: Readonly<Record<string, string>>;
  /** Computed now if the message had none. Meaningless for a batch of events. */
  readonly verdicts: Verdicts;
  /** Why the message is delivered raw; null if it was parsed. */
  readonly parseError: string | null;
  /** For the history; null if it was not parsed. */
  readonly summary: MailSummary | null;
}

/** What was found out about a message. */
export type Findings = Pick<Rendered, 'verdicts' | 'parseError' | 'summary'>;

/** Several messages rendered as one signed POST. */
export interface RenderedShared extends Pick<Rendered, 'body' | 'headers'> {
  /** The id of the POST: that of the delivery, or one for all of them (base/ids.ts). */
  readonly id: string;
  /** The findings for each, in order; undefined: left out of the POST because its verdicts take long. */
  readonly parts: readonly (Findings | undefined)[];
  /** Bytes of attachments that became files behind links. */
  readonly linked: number;
}

/** What a POST is signed with, besides its id. */
interface PostSigning {
  /** Signing keys, the one for X-Mandrill-Signature first. */
  readonly keys: readonly string[];
  /** Milliseconds since 1970 of this attempt. */
  readonly at: number;
  /** Absent for a batch of events, which is always a form of Mandrill's. */
  readonly style?: PostStyle;
}

/** A message that an inbound message answers. */
export interface Answered {
  /** The thread that both belong to. */
  readonly thread: string;
  /** As in the payload. */
  readonly record: object;
}

/** A message for one of its recipients. */
export interface RenderPart {
  readonly message: Message;
  readonly body: Bytes;
  readonly delivery: Pick<QueuedDelivery, 'id' | 'recipient'>;
  /** What it answers; null: nothing that is known. Undefined: nobody has looked. */
  readonly answers?: Answered | null | undefined;
}

/** One message, or one batch of events, to be posted under the id of its delivery. */
export interface RenderJob extends RenderPart, PostSigning {
  /** Whose links its attachments may become; not given: of no account. */
  readonly account?: string;
  readonly delivery: Pick<QueuedDelivery, 'id' | 'recipient' | 'url' | 'batch'>;
}

/** Several messages, to be posted together. */
export interface SharedRenderJob extends PostSigning {
  readonly url: string;
  /** As of `RenderJob`. */
  readonly account?: string;
  /** Their bodies are in memory. */
  readonly parts: readonly RenderPart[];
}

/** Turns spooled messages into POSTs on worker threads, under a deadline and a memory limit. */
export interface Renderer {
  /**
   * Renders any message; one that cannot be parsed is rendered raw. Throws only when the disk or the process fails.
   * Takes ownership of a body in memory and frees it after its last use.
   */
  render(job: RenderJob): Promise<Rendered>;
  /** Undefined if one breaks the parser: which one is unknown, so render each alone. Takes ownership of bodies. */
  renderShared(job: SharedRenderJob): Promise<RenderedShared | undefined>;
  /** Removes its file, or frees its share of the limit. Undefined if there was nothing to wait for. */
  discard(body: Bytes): Promise<void> | undefined;
}

/** A renderer that can also show the event of a message. */
export interface EventRenderer extends Renderer {
  /**
   * As `render`, but the event itself as JSON, unsigned. Verdicts that the message does not have yet are computed, and
   * kept nowhere.
   */
  renderJson(part: RenderPart, style: PostStyle): Promise<Bytes>;
}

/** One guarded request to an endpoint under one absolute deadline. Never throws, never follows a redirect. */
export interface Poster {
  /** Takes ownership of a body in memory, and frees it once the system has it. */
  post(url: string, headers: Readonly<Record<string, string>>, body: Bytes): Promise<AttemptResult>;
  /** As `post`, without a body (webhookexists asks HEAD first). */
  head(url: string): Promise<AttemptResult>;
  stop(): Promise<void>;
}
