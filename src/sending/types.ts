import type { Bytes } from '../base/bytes.ts';
import type { DsnRequest } from '../mail/addresses/envelope.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { QueuedDelivery } from '../queue/delivery.ts';
import type { MailAttempt } from '../queue/settle.ts';

/** A notice of our own to one person, ready to be sent. */
export interface NoticeMail {
  /** Used in the Message-ID. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly at: Date;
}

/** The result of sending a notice. `deferred`: try again later; `failed`: permanent. */
export type MailOutcome = { readonly kind: 'sent' } | { readonly kind: 'deferred' | 'failed'; readonly reason: string };

/** Delivers mail to the recipient's server, or to a relay. */
export interface Mailer {
  send(mail: NoticeMail): Promise<MailOutcome>;
  /** Aborts sends in progress; they count as deferred. */
  stop(): void;
}

/** Mail submitted by API or SMTP. */
export interface Submission {
  readonly account: string;
  readonly outgoing: Outgoing;
  /**
   * Other addresses that some reader may take for the author's: those of Sender and the Resent fields, in the encoded
   * name of the author, and in a From that is replaced. The account must be allowed to write as all of them.
   */
  readonly otherAuthors: readonly string[];
  /** MIME or draft, depending on `outgoing.form`. */
  readonly bytes: Uint8Array;
  /** Addresses; each gets a message of its own. */
  readonly recipients: readonly string[];
  /** Not before this time. */
  readonly sendAt: Date | null;
  /** The SMTP client, for our Received line; null for the API. */
  readonly client: { readonly address: string; readonly helo: string | null; readonly tls: string | null } | null;
  /** DSN parameters from SMTP; recipients as in `recipients`. */
  readonly dsn?: DsnRequest | undefined;
}

/** The immediate result for one recipient. `id` is the message's, 32 hex digits. */
export interface RecipientOutcome {
  readonly id: string;
  readonly email: string;
  readonly status: 'queued' | 'scheduled' | 'rejected' | 'invalid';
  /** Why it was rejected or is invalid: hard-bounce, soft-bounce, spam, unsub, custom, invalid-sender, invalid. */
  readonly rejectReason: string | null;
  /**
   * Why it is queued, in Mandrill's words: sending-paused, hourly-quota, or sending-backlog (all other mail, as
   * everything is queued).
   */
  readonly queuedReason: string | null;
}

/** The current DKIM signing domain of a message. */
export interface SigningOutlook {
  /** The domain; null: the message leaves unsigned. */
  readonly signedBy: string | null;
  /** Why that is not the domain of the sender, and the remedy; null if it is. */
  readonly warning: string | null;
}

/** accepted: durable on the spool · unknown-subaccount: there is none · full / fault: nothing was kept, try later. */
export type SubmitOutcome =
  | {
      readonly outcome: 'accepted';
      readonly recipients: readonly RecipientOutcome[];
      readonly signing: SigningOutlook;
    }
  | { readonly outcome: 'unknown-subaccount' | 'full' | 'fault' };

/** Everything needed to compose a message for one recipient. */
export interface ComposeJob {
  readonly outgoing: Outgoing;
  readonly body: Bytes;
  readonly recipient: string;
  /** `sentId` of the delivery. */
  readonly id: string;
  readonly accountNumber: number;
  readonly at: number;
  readonly settings: ComposeSettings;
  /** The domain to sign as; null: the message is not signed. */
  readonly dkim: { readonly domain: string; readonly selector: string; readonly privateKey: string } | null;
}

export interface ComposeSettings {
  readonly hostname: string;
  /** Domain of return paths and unsubscribe addresses. */
  readonly returnDomain: string;
  /** The return domain is the message's own, and its addresses are valid only there. */
  readonly ownReturns?: boolean;
  /** Base of tracking links, without a trailing slash. */
  readonly publicUrl: string;
  /** The default base of tracking links, if the message has its own tracking domain. */
  readonly ownUrl?: string;
  /** Signs tokens (mail/addresses/return-address.ts). */
  readonly secret: string;
  /** A Received line to prepend, or empty. */
  readonly trace: string;
}

/** A message ready to be sent: CRLF line endings, signed. */
export interface ComposedMessage {
  readonly bytes: Uint8Array;
  /** VERP address, without brackets. */
  readonly mailFrom: string;
  /** The tracked links in it, each once, as reported in click events. */
  readonly links: readonly string[];
}

/** A composed message, or why there is none. `final`: it never can be; otherwise the fault is ours and may be fixed. */
export type ComposeReply =
  | { readonly kind: 'composed'; readonly composed: ComposedMessage }
  | { readonly kind: 'refused'; readonly reason: string; readonly final: boolean };

/** Composes outbound mail on worker threads, with a deadline and a memory limit. */
export interface Composer {
  /** Throws only if the disk or the process fails. Takes ownership of a body in memory. */
  compose(job: ComposeJob): Promise<ComposeReply>;
}

/** Delivers a composed message to the servers of its recipient's domain, or to the relay. Never throws. */
export interface MailTransport {
  send(mail: {
    readonly composed: ComposedMessage;
    readonly recipient: string;
    readonly sourceAddresses: readonly string[];
  }): Promise<MailAttempt>;
  stop(): Promise<void>;
}

/** The fields of a delivery that the reporter needs. */
export type SentDelivery = Pick<QueuedDelivery, 'id' | 'messageId' | 'account' | 'recipient'>;
