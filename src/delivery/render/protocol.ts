import type { EventName, Fields } from '../../base/log.ts';
import type { DnsSettings } from '../../dns/types.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import type { Composed, ComposeJob } from '../../outbound/types.ts';
import type { Message } from '../../spool/types.ts';
import type { PostBody } from '../types.ts';

/** What a render thread is started with. */
export interface ThreadData {
  readonly dns: DnsSettings;
  readonly hostname: string;
  /** Two cells shared with the pool: see `CELL`. */
  readonly pulse: SharedArrayBuffer;
  /** What the thread counts in (base/metrics.ts `createThreadMetrics`). */
  readonly numbers: SharedArrayBuffer;
  /** Milliseconds between beats. */
  readonly beatMs: number;
}

/** The cells of the pulse: the number of the job that is being parsed (0: none), and a count that moves while the thread is not stuck. */
export const CELL = Object.freeze({ parsing: 0, beat: 1 });

/** One job on its way to a thread. */
export type ThreadJob = PostJob | MailJob;

/** Mail going out, to be composed. */
export interface MailJob {
  readonly kind: 'mail';
  readonly number: number;
  readonly compose: ComposeJob;
}

/** A message that came in, or a batch of events, to be made into a POST. */
export interface PostJob {
  readonly kind: 'post';
  readonly number: number;
  readonly message: Message;
  readonly source: { readonly bytes: Uint8Array } | { readonly path: string };
  /** Where the form goes when the source is a file. */
  readonly formPath: string;
  readonly delivery: { readonly id: string; readonly recipient: string; readonly url: string };
  /** The source is a JSON array of events, to be sent as it is. */
  readonly isBatch: boolean;
  readonly keys: readonly string[];
  readonly at: number;
  /** Set: do not parse, deliver raw for this reason. */
  readonly parseError: string | null;
}

export type ThreadReply =
  /** Everything is loaded; from now on the pulse moves. */
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'rendered';
      readonly number: number;
      readonly body: PostBody;
      readonly headers: Readonly<Record<string, string>>;
      readonly verdicts: Verdicts;
      readonly parseError: string | null;
    }
  | { readonly kind: 'composed'; readonly number: number; readonly composed: Composed }
  /** It cannot be composed; `final`: however often it is tried. */
  | { readonly kind: 'refused'; readonly number: number; readonly reason: string; readonly final: boolean }
  /** The disk failed us. */
  | { readonly kind: 'failed'; readonly number: number; readonly message: string }
  | {
      readonly kind: 'log';
      readonly level: 'info' | 'warn' | 'error' | 'debug';
      readonly event: EventName;
      readonly fields: Fields;
    };
