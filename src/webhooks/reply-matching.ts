import { hash } from 'node:crypto';
import { MAX_CLOCK_SKEW_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { MessageEvent, Recorder } from '../events/record.ts';
import { authorOf } from '../mail/addresses/author.ts';
import { automatedFor, automationFieldsIn } from '../mail/automated.ts';
import { subjectOf } from '../mail/message.ts';
import { readHeaderStart } from '../mail/mime/header-section.ts';
import { firstValue, type HeaderField, parseStructured } from '../mail/mime/headers.ts';
import { nameOfAddress, namesOfId, threadOfSent } from '../mail/replies/sent-names.ts';
import { repliedToIds, replyFieldsIn, sentIdIn } from '../mail/replies/thread.ts';
import { StoreAway, StoreFull } from '../store/driver/port.ts';
import type { SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import type { Answered, Mail } from './types.ts';

// Finds the sent message that an inbound message answers: by a Message-ID that it references, the nearest first, as set
// by us, by the caller, or by a relay; else by the reply address that it was sent to.

interface AnswersDeps {
  readonly store: Pick<Store, 'messages' | 'messageNames'>;
  readonly recorder: Pick<Recorder, 'record'>;
}

export type ReplyMatching = ReturnType<typeof createReplyMatching>;

export function createReplyMatching({ store, recorder }: AnswersDeps) {
  /** Finds the message with one of these Message-IDs: of several, the latest sent to the author, else the latest. */
  async function named(account: string, names: readonly string[], { writers, before }: Asked) {
    const filter = { account, name: { in: names }, createdAt: { range: { lte: before } } };
    const latest = { sort: '-createdAt', limit: 1 } as const;
    const [own] = await store.messageNames.many({ ...filter, email: { in: writers } }, latest);
    const [found] = own ? [own] : await store.messageNames.many(filter, latest);
    return found && store.messages.one({ id: found.message, account });
  }

  async function find(account: string, asked: Asked): Promise<SentMessageRow | undefined> {
    const { ids, address } = asked;
    const sentIds = ids.map(sentIdIn).filter((id) => id !== undefined);
    const names = [...ids.map(namesOfId), ...(address === undefined ? [] : [[nameOfAddress(address)]])];
    const [own, known] = await Promise.all([
      sentIds.length === 0 ? [] : store.messages.many({ account, id: { in: sentIds } }),
      names.length === 0 ? undefined : store.messageNames.one({ account, name: { in: names.flat() } }),
    ]);
    for (const [at, each] of names.entries()) {
      const id = sentIdIn(ids[at] ?? '');
      const row = own.find((one) => one.id === id) ?? (known && (await named(account, each, asked)));
      if (row) return row;
    }
    return undefined;
  }

  /** A store that accepts no new rows can still be queried, so its error must not delay the mail. */
  async function record(event: MessageEvent): Promise<void> {
    try {
      await recorder.record(event);
    } catch (error) {
      if (!(error instanceof StoreFull)) throw error;
    }
  }

  async function answerTo(account: string, { message, body, delivery: { recipient } }: Mail, records: boolean) {
    const { mailFrom, replyData } = message.envelope;
    const start = await readHeaderStart(body);
    const fields = replyFieldsIn(start);
    const ids = repliedToIds(fields);
    const address = replyData?.[recipient] === undefined ? undefined : recipient;
    if (ids.length === 0 && address === undefined) return null;
    const { mailbox } = authorOf(fields, mailFrom);
    const author = mailbox?.address ?? mailFrom;
    const writers = [...new Set([author, mailFrom].map((text) => text.toLowerCase()))];
    const before = new Date(message.receivedAt + MAX_CLOCK_SKEW_MS);
    const row = await find(account, { ids, address, writers, before });
    if (!row) return null;
    if (records && !isReport(mailFrom, fields)) {
      const automated = automatedFor(message.envelope, recipient, {
        fields: automationFieldsIn(start),
        author: mailbox,
      }).why;
      await record(toEvent(row, { message, recipient, author, subject: subjectOf(fields), automated }));
    }
    return toAnswered(row);
  }

  return frozen({
    /**
     * The message of this account that it answers; null: no known one. Only mail that references another message or was
     * sent to a reply address queries the store. Throws `StoreAway`. `records`: adds the answer as an event of that
     * message, once.
     */
    of: answerTo,
    /** The same without an event; undefined if the store is away. */
    async shown(account: string, mail: Mail) {
      try {
        return await answerTo(account, mail, false);
      } catch (error) {
        if (error instanceof StoreAway) return undefined;
        throw error;
      }
    },
  });
}

/** The references of an answer to the message that it answers. */
interface Asked {
  /** The nearest first. */
  readonly ids: readonly string[];
  /** The reply address that it was sent to. */
  readonly address: string | undefined;
  /** Author and envelope sender, in lower case. */
  readonly writers: readonly string[];
  /** Excludes messages that were sent later. */
  readonly before: Date;
}

/** A bounce or a receipt: it has no sender to reply to (RFC 5321 section 4.5.5), or says so. */
function isReport(mailFrom: string, fields: readonly HeaderField[]): boolean {
  return mailFrom === '' || parseStructured(firstValue(fields, 'content-type') ?? '').value === 'multipart/report';
}

interface Reply {
  readonly message: Mail['message'];
  readonly recipient: string;
  readonly author: string;
  readonly subject: string;
  /** Why it is automated; null if it is not. */
  readonly automated: string | null;
}

/** The event of an answer. */
function toEvent({ id, account }: SentMessageRow, reply: Reply): MessageEvent {
  const { message, recipient, author, subject, automated } = reply;
  return {
    id: `${id.slice(0, 8)}-${hash('sha256', ['reply', id, message.id].join('\0'), 'base64url').slice(0, 24)}`,
    account,
    message: id,
    kind: 'reply',
    at: new Date(message.receivedAt),
    detail: { inbound: message.id, from: author, recipient, subject, automated },
  };
}

/** The record of an answered message, with the names of the API's records. */
function toAnswered(row: SentMessageRow): Answered {
  const { id, createdAt, sender, template, subject, email, tags, subaccount, metadata } = row;
  return {
    thread: threadOfSent(id, row),
    record: {
      ts: Math.floor(createdAt.getTime() / 1000),
      _id: id,
      sender,
      template,
      subject,
      email,
      tags,
      subaccount,
      metadata,
    },
  };
}
