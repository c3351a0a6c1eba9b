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
