import type { DsnRequest } from '../mail/envelope.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { Body, QueuedDelivery } from '../queue/delivery.ts';
import type { MailAttempt } from '../queue/settle.ts';

/** A mail of our own to one person. */
export interface Mail {
  /** Stands in the Message-ID. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly at: Date;
}

/** What became of handing it over. `deferred`: try again later; `failed`: it will not be taken. */
export type MailOutcome = { readonly kind: 'sent' } | { readonly kind: 'deferred' | 'failed'; readonly reason: string };

/** Hands mail over to the server of its recipient, or to a relay. */
export interface Mailer {
  send(mail: Mail): Promise<MailOutcome>;
  /** Cuts what is under way; it counts as deferred. */
  stop(): void;
}

/** What is to be written to somebody. Subject and text are ours: nothing that a user typed belongs into the subject. */
export interface NewNotice {
  readonly account: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

/** Mail of our own: written to the store first, then sent, and tried again for a day. */
export interface Notices {
  /**
   * `queued`: it is durable, and is being sent. `limited`: this address, or its domain, got too many already.
   * `refused`: not an address that we write to (`isPlainMailbox`).
   */
  enqueue(notice: NewNotice): Promise<'queued' | 'limited' | 'refused'>;
  /** Sends what is due now; a second call while one runs waits for it. Answers how many ended how. */
  sendDue(): Promise<{ readonly sent: number; readonly deferred: number; readonly failed: number }>;
  /** Forgets what ended long ago, a bounded number at a time. */
  purge(): Promise<number>;
  stop(): Promise<void>;
}

/** What is handed over to be sent: by the API or by submission. */
export interface Submission {
  readonly account: string;
  readonly outgoing: Outgoing;
  /** MIME or draft, as `outgoing.form` says. */
  readonly bytes: Uint8Array;
  /** Addresses, each of which gets a message of its own. */
  readonly recipients: readonly string[];
  /** Not before this time. */
  readonly sendAt: Date | null;
  /** The other end, for our Received line; null for the API. */
  readonly client: { readonly address: string; readonly helo: string | null; readonly tls: string | null } | null;
  /** What SMTP asked to be told; recipients as in `recipients`. */
  readonly dsn?: DsnRequest | undefined;
}

/** What became of one recipient at once. `id` is the message's, 32 hex digits. */
export interface RecipientOutcome {
  readonly id: string;
  readonly email: string;
  readonly status: 'queued' | 'scheduled' | 'rejected' | 'invalid';
  /** Why it is rejected or invalid: hard-bounce, soft-bounce, spam, unsub, custom, invalid-sender, invalid. */
  readonly rejectReason: string | null;
  /**
   * Why it is queued, in words that consumers know: sending-paused, hourly-quota, or sending-backlog, as the queue
   * takes all mail.
   */
  readonly queuedReason: string | null;
}

/**
 * accepted: durable on the spool · unknown-subaccount: none of that id · full / fault: nothing was kept, try again
 * later.
 */
export type SubmitOutcome =
  | { readonly outcome: 'accepted'; readonly recipients: readonly RecipientOutcome[] }
  | { readonly outcome: 'unknown-subaccount' | 'full' | 'fault' };

/** The one way of an account's mail onto the spool. */
export interface Submitting {
  submit(submission: Submission): Promise<SubmitOutcome>;
}

/**
 * Whether a message may leave now. `later`: paused, over its quota; ask again at that time. `never`: waited too long
 * while paused.
 */
export type Leave =
  | { readonly kind: 'now' }
  | { readonly kind: 'later'; readonly at: number }
  | { readonly kind: 'never'; readonly reason: string };

export interface Leaving {
  mayLeave(account: string, outgoing: Outgoing, queuedAt: number, now: number): Promise<Leave>;
  /**
   * What would hold a message back if it were to leave now, if anything. It takes no place in a quota. Throws
   * `StoreAway`.
   */
  heldBecause(account: string, outgoing: Outgoing, now: number): Promise<'sending-paused' | 'hourly-quota' | undefined>;
}

/** What holds mail back believes for a while what it has read. */
export interface Holding {
  /** A subaccount was changed: it is to be read again. */
  changed(account: string, subaccount: string): void;
}

/** Everything that a message for one recipient is composed of. */
export interface ComposeJob {
  readonly outgoing: Outgoing;
  readonly body: Body;
  readonly recipient: string;
  /** `sentId` of the delivery. */
  readonly id: string;
  readonly accountNumber: number;
  readonly at: number;
  readonly settings: ComposeSettings;
  /** Signs as this domain; none: the message is not signed. */
  readonly dkim: { readonly domain: string; readonly selector: string; readonly privateKey: string } | null;
}

export interface ComposeSettings {
  readonly hostname: string;
  /** Domain of return paths and unsubscribe addresses. */
  readonly returnDomain: string;
  /** The return domain is the message's own, and its addresses are good there alone. */
  readonly ownReturns?: boolean;
  /** Where tracking links begin, without a final slash. */
  readonly publicUrl: string;
  /** Where they begin otherwise, when a message has a tracking domain of its own. */
  readonly ownUrl?: string;
  /** Signs tokens (mail/return-address.ts). */
  readonly secret: string;
  /** A Received line that goes in front, or nothing. */
  readonly trace: string;
}

/** A message ready to be sent: CRLF line ends, signed. */
export interface ComposedMessage {
  readonly bytes: Uint8Array;
  /** VERP address, without brackets. */
  readonly mailFrom: string;
  /** The tracked links in it, each once, as clicks on them are told. */
  readonly links: readonly string[];
}

/**
 * A composed message, or why there is none; `final`: there never will be, else it is a fault of ours that may be
 * mended.
 */
export type ComposeReply =
  | { readonly kind: 'composed'; readonly composed: ComposedMessage }
  | { readonly kind: 'refused'; readonly reason: string; readonly final: boolean };

/** Composes mail going out on worker threads, under a deadline and a memory limit. */
export interface Composer {
  /** Throws only when the disk or the process fails. */
  compose(job: ComposeJob): Promise<ComposeReply>;
}

/** Carries a composed message to the servers of its recipient's domain, or to the relay. Never throws. */
export interface MailCarrier {
  carry(mail: {
    readonly composed: ComposedMessage;
    readonly recipient: string;
    readonly sourceAddresses: readonly string[];
  }): Promise<MailAttempt>;
  stop(): Promise<void>;
}

/**
 * Which of our addresses a message leaves from: those of its pool by the share that their warmup allows; empty: the
 * host's own.
 */
export interface Sources {
  choose(account: string, outgoing: Pick<Outgoing, 'pool'>, chance: number, now: Date): Promise<readonly string[]>;
}

/** A delivery as the reporter sees it. */
export type SentDelivery = Pick<QueuedDelivery, 'id' | 'messageId' | 'account' | 'recipient'>;
