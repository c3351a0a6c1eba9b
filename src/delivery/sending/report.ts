import { hash } from 'node:crypto';
import { toEnd } from '../../base/steps.ts';
import type { MessageEvent, NewSentMessage } from '../../events/types.ts';
import { sentId } from '../../mail/send-tokens.ts';
import { makingSentMessage } from '../../outbound/sent-message.ts';
import type { SentDelivery } from '../../outbound/types.ts';
import type { Message, Report } from '../../spool/types.ts';

/** What happened to mail going out, as the events of messages have it. */
export interface Happening {
  readonly kind: MessageEvent['kind'];
  readonly detail: NonNullable<MessageEvent['detail']>;
  readonly links?: readonly string[];
}

/** A report as the store gets it. */
export interface Told {
  readonly event: MessageEvent;
  /** The row of its message, in case it could not be written when the message came. Null when the message itself was lost. */
  readonly sent: NewSentMessage | null;
}

interface Body {
  readonly event: Omit<MessageEvent, 'at' | 'id'> & { readonly at: number };
  readonly sent: (Omit<NewSentMessage, 'createdAt'> & { readonly createdAt: number }) | null;
}

export interface Reported {
  readonly delivery: SentDelivery;
  /** Attempts made before. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** On the spool; undefined when it was lost. */
  readonly message: Message | undefined;
}

/**
 * The report of an attempt. Its id, which is also the event's, is made of the delivery and the attempt: an attempt that a crash
 * made twice is one event.
 */
export function toReport({ delivery, attempts, at, message }: Reported, { kind, detail, links }: Happening): Report {
  const { id, account } = delivery;
  const outgoing = message?.envelope.outgoing;
  const sent = message && outgoing ? toEnd(makingSentMessage(outgoing, delivery, message.receivedAt)) : null;
  const body: Body = {
    event: { account, message: sentId(id), kind, at, detail, ...(links && { links }) },
    sent: sent && { ...sent, createdAt: sent.createdAt.getTime() },
  };
  return { id: hash('sha256', `${kind}\0${id}\0${attempts}`, 'hex').slice(0, 32), body: JSON.stringify(body) };
}

/** Undefined: the text is no report, because the disk damaged it or a later version wrote it. */
export function readReport({ id, body }: Report): Told | undefined {
  try {
    // Written by `toReport` and kept by the spool, which is trusted.
    const { event, sent }: Body = JSON.parse(body);
    return {
      event: { ...event, id, at: new Date(event.at) },
      sent: sent && { ...sent, createdAt: new Date(sent.createdAt) },
    };
  } catch {
    return undefined;
  }
}
