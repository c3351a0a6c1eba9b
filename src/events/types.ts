import type { Counted } from '../store/rows/counters.ts';
import type { Reason, RejectRow, WhitelistRow } from '../store/rows/lists.ts';
import type { MessageEventKind, SentMessageRow } from '../store/rows/messages.ts';
import type { UnsentEvent } from '../store/rows/webhooks.ts';

/** A message that the account handed over, before anything has happened to it. */
export type NewSentMessage = Pick<
  SentMessageRow,
  | 'id'
  | 'account'
  | 'createdAt'
  | 'sender'
  | 'email'
  | 'subject'
  | 'tags'
  | 'template'
  | 'subaccount'
  | 'metadata'
  | 'apiKey'
  | 'delivery'
>;

/** Something that happened to a sent message. */
export interface MessageEvent {
  /** Chosen by who saw it happen; the same event said twice is recorded once. */
  readonly id: string;
  readonly account: string;
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /**
   * Which names there are depends on the kind: diag, description, code (bounces) · diag, source_ip, destination_ip (send, deferral) · url, ip, user_agent (open, click) · reason, a code word,
   * and diag, a sentence (reject).
   */
  readonly detail?: Readonly<Record<string, string | number | null>>;
  /** The tracked links of the message, each once, where `kind` is send. */
  readonly links?: readonly string[];
}

/** The one way of events into the numbers, the lists, and onto the webhooks that asked for them. */
export interface Recorder {
  /** Makes the row of a message. Tags that begin with an underscore or are longer than 50 characters are the caller's to refuse. */
  begin(message: NewSentMessage): Promise<'recorded' | 'duplicate'>;
  /** Idempotent by the event's id. `unknown`: the account has no such message. */
  record(event: MessageEvent): Promise<'recorded' | 'duplicate' | 'unknown'>;
}

/** What puts an address on the rejection list. */
export interface NewReject {
  readonly account: string;
  /** In any case. */
  readonly email: string;
  /** '' for the whole account. */
  readonly subaccount: string;
  readonly reason: Reason;
  readonly detail: string | null;
  readonly sender: string | null;
  readonly at: Date;
  /** Of the event that brought it about: the same one twice renews once. */
  readonly eventId?: string;
}

/** Rejects and whitelist: every change of them, by whoever, with its sync event. */
export interface Lists {
  /** `whitelisted`: no entry is made. A manual entry is not replaced by an event's. */
  reject(entry: NewReject): Promise<'added' | 'renewed' | 'whitelisted' | 'kept'>;
  /** Answers the entry as it was. */
  unreject(account: string, email: string, subaccount: string): Promise<RejectRow | undefined>;
  /** Takes rejects of the address off as well, those of subaccounts too. False: it was there already. */
  whitelist(account: string, email: string, detail: string | null): Promise<boolean>;
  unwhitelist(account: string, email: string): Promise<WhitelistRow | undefined>;
  /** Why an address must not be mailed now: the entry of the subaccount or of the whole account; a whitelisted address has none. */
  suppression(account: string, email: string, subaccount: string | null, now: Date): Promise<RejectRow | undefined>;
}

/** Takes numbers away again. */
export interface Numbers {
  /** Deletes everything that was counted of one thing. */
  forget(account: string, kind: Counted, key: string): Promise<void>;
  /** Deletes the numbers of a tag and takes it off the messages that were sent with it; with very many, `finishRemovals` does the rest. */
  removeTag(account: string, tag: string): Promise<void>;
  /** Takes up removals that were cut off; how many are done. */
  finishRemovals(ending?: AbortSignal): Promise<number>;
}

/** Where events leave the store: onto the spool, for every webhook of the account that asked for them. */
export interface Outbox {
  /** Resolves when they are durable on the spool (or no webhook wants them); then the row may forget them. Throws when they are not. */
  publish(account: string, events: readonly UnsentEvent[]): Promise<void>;
}
