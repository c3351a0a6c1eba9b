import type { Bytes } from '../base/bytes.ts';
import type { PostStyle } from '../inbound/formats.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { MailSummary } from '../mail/summary.ts';
import type { Delivery, Message } from '../queue/delivery.ts';
import type { AttemptResult } from '../queue/settle.ts';

/** A message for one of its recipients, or a batch of events. */
export interface Mail {
  readonly message: Message;
  readonly body: Bytes;
  readonly delivery: Pick<Delivery, 'id' | 'recipient' | 'batch'>;
  /** The message that it answers; null: no known one. Undefined: not looked up. */
  readonly answers?: Answered | null | undefined;
}

/** A message that an inbound message answers. */
export interface Answered {
  /** The thread that both belong to. */
  readonly thread: string;
  /** As in the payload. */
  readonly record: object;
}

/** Mail to be rendered as one POST. */
export interface RenderJob {
  /** If there are several, their bodies are in memory. */
  readonly mails: readonly Mail[];
  readonly url: string;
  /** The account whose attachments may become links; absent: none. */
  readonly account?: string;
  /** Signing keys, the one for X-Mandrill-Signature first. */
  readonly keys: readonly string[];
  /** Milliseconds since 1970 of this attempt. */
  readonly at: number;
  /** Ignored for a batch of events, which is always a form of Mandrill's. */
  readonly style: PostStyle;
  /** The event itself as JSON, unsigned, for people. */
  readonly asJson?: boolean;
}

/** Mail rendered as a signed POST. */
export interface Post {
  /** The id of the delivery, or a common one for several (base/ids.ts). */
  readonly id: string;
  readonly body: Bytes;
  /** Content-Type and signatures; not Host or Content-Length. */
  readonly headers: Readonly<Record<string, string>>;
  /** For each mail, in order; undefined: left out of the POST because its verdicts take long. */
  readonly found: readonly (Findings | undefined)[];
  /** Bytes of attachments that became files behind links. */
  readonly linked: number;
}

/** The findings about a message on the way to its POST. */
export interface Findings {
  /** Computed now if the message had none. Meaningless for a batch of events. */
  readonly verdicts: Verdicts;
  /** Why the message is delivered raw; null if it was parsed. */
  readonly parseError: string | null;
  /** For the history; null if it was not parsed. */
  readonly summary: MailSummary | null;
}

/** Turns spooled messages into POSTs on worker threads, under a deadline and a memory limit. */
export interface Renderer {
  /**
   * Renders any message; one that cannot be parsed is rendered raw. Verdicts that it does not have yet are computed.
   * Throws only when the disk or the process fails. Takes ownership of a body in memory and frees it after its last
   * use.
   */
  render(job: RenderJob): Promise<Post>;
  /** As `render`, of several. Undefined if one breaks the parser: which one is unknown, so render each alone. */
  renderShared(job: RenderJob): Promise<Post | undefined>;
  /** Removes its file, or frees its share of the limit. Undefined if there was nothing to wait for. */
  discard(body: Bytes): Promise<void> | undefined;
}

/** One guarded request to an endpoint under one absolute deadline. Never throws, never follows a redirect. */
export interface Poster {
  /** Takes ownership of a body in memory, and frees it once the system has it. */
  post(url: string, headers: Readonly<Record<string, string>>, body: Bytes): Promise<AttemptResult>;
  /** As `post`, without a body (webhookexists asks HEAD first). */
  head(url: string): Promise<AttemptResult>;
  stop(): Promise<void>;
}
