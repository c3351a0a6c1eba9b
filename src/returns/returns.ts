import { hash } from 'node:crypto';
import { type Bytes, readStart, sizeOf } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Tools } from '../base/tools.ts';
import type { Lists } from '../events/lists.ts';
import type { MessageEvent, Recorder } from '../events/record.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { findReturnAddress, type ReturnMailbox, readReturnMailbox } from '../mail/addresses/return-address.ts';
import { bounceDetail } from '../mail/bounce.ts';
import { firstValue, parseHeaders } from '../mail/mime/headers.ts';
import type { Delivery, Message } from '../queue/delivery.ts';
import type { TokenSecret } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { classifyReturned, type ReturnClassification } from './bounce-message.ts';
import {
  createAccountLookup,
  createMessageLookup,
  type FoundMessage,
  type MessageLookup,
  returnEventId,
} from './feedback.ts';
import { createOpenClickTracking, createTrackedEventQueue } from './opens-and-clicks.ts';
import { headerText } from './returned-message.ts';
import { createUnsubscribe, createUnsubscribeLinks, type Unsubscribe } from './unsubscribe.ts';

interface ReturnsDeps {
  readonly find: MessageLookup;
  readonly recorder: Pick<Recorder, 'record'>;
  readonly unsubscribe: Unsubscribe;
  readonly secret: () => Promise<string>;
  readonly log: Log;
}

/** done: `words` is a short result for the log · later: the message it is about is not in the store yet. */
export type ReturnOutcome = { readonly kind: 'done'; readonly words: string } | { readonly kind: 'later' };

/** Parses returned mail and records its event. */
export type Returns = ReturnType<typeof createReturns>;

/** A report up to `WHOLE_BYTES` is parsed in full; of a larger one the beginning, where reports identify themselves. */
const WHOLE_BYTES = 1024 * 1024;
const START_BYTES = 256 * 1024;
/** Message rows are written late if the store was unavailable; how long a report waits for its row. */
const ROW_LATEST_MS = 3_600_000;

function createReturns(deps: ReturnsDeps) {
  const { find, recorder, log } = deps;

  async function record(
    { account, row }: FoundMessage,
    said: Exclude<ReturnClassification, { kind: 'nothing' }>,
    arrived: Arrived,
  ): Promise<string> {
    if (said.kind === 'unsub') return `unsub ${await deps.unsubscribe({ account, row, at: arrived.at })}`;
    const event = toEvent(said, row.id, arrived);
    return `${event.kind} ${await recorder.record({ ...event, account, at: arrived.at })}`;
  }

  return frozen({
    /** Throws `StoreAway` if the store is unavailable; repeating the call is safe. */
    async handle(
      delivery: Pick<Delivery, 'id' | 'recipient'>,
      message: Message,
      body: Bytes,
      now: number,
    ): Promise<ReturnOutcome> {
      const secret = await deps.secret();
      const mailbox = readMailbox(secret, delivery.recipient);
      const done = (words: string): ReturnOutcome => {
        log.info('return.handled', { delivery: delivery.id, message: message.id, to: mailbox?.kind, words });
        return { kind: 'done', words };
      };
      if (!mailbox) return done('nothing: not one of our return addresses');
      const bytes = await readStart(body, sizeOf(body) <= WHOLE_BYTES ? sizeOf(body) : START_BYTES);
      const named = mailbox.kind === 'complaints' ? undefined : mailbox;
      const known = named && (await find(named));
      const said = classifyReturned(mailbox.kind, bytes, {
        email: known?.row.email ?? null,
        sender: message.envelope.mailFrom,
      });
      if (said.kind === 'nothing') return done(`nothing: ${said.why}`);
      const other = named ?? ('original' in said ? findReturnAddress(secret, said.original) : undefined);
      if (!other) return done('nothing: the report refers to no known message');
      const found = known ?? (await find(other));
      if (found) return done(await record(found, said, { at: new Date(message.receivedAt), mail: idOf(bytes) }));
      return now - message.receivedAt < ROW_LATEST_MS
        ? { kind: 'later' }
        : done('nothing: the message no longer exists');
    },
  });
}

/** Parses an address of our return domain, or of a message's own. */
function readMailbox(secret: string, recipient: string): ReturnMailbox | undefined {
  const at = recipient.lastIndexOf('@');
  const [name, domain] = [recipient.slice(0, at), toAsciiDomain(recipient.slice(at + 1))];
  return (
    readReturnMailbox(secret, name) ?? (domain === undefined ? undefined : readReturnMailbox(secret, name, domain))
  );
}

interface Arrived {
  readonly at: Date;
  /** Identifies the returned message. */
  readonly mail: string;
}

function toEvent(
  said: Exclude<ReturnClassification, { kind: 'nothing' | 'unsub' }>,
  message: string,
  { mail }: Arrived,
): Pick<MessageEvent, 'id' | 'message' | 'kind' | 'detail'> {
  // A message bounces once and is complained about once, however many reports arrive: its recipient knows the return
  // address and could write to it any number of times. Delays are recorded each time.
  if (said.kind === 'spam')
    return { id: returnEventId(message, 'spam'), message, kind: 'spam', detail: { diag: said.diag } };
  const { kind } = said.bounce;
  const detail = { diag: said.diag, ...bounceDetail(said.bounce) };
  if (said.kind === 'delayed')
    return { id: returnEventId(message, 'deferral', mail), message, kind: 'deferral', detail };
  return { id: returnEventId(message, kind), message, kind, detail };
}

/** The Message-ID, or else a hash of the content. */
function idOf(bytes: Buffer): string {
  const id = firstValue(parseHeaders(Buffer.from(headerText(bytes), 'latin1')), 'message-id');
  return id === undefined || id === '' ? hash('sha256', bytes) : id;
}

interface FeedbackDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Store;
  readonly tokenSecret: TokenSecret;
  readonly recorder: Recorder;
  readonly lists: Lists;
}

/** Creates the parts that turn feedback into events: returned mail, and visits to the links in sent messages. */
export function createFeedback({ store, tokenSecret, recorder, lists, clock, log }: FeedbackDeps) {
  const secret = tokenSecret.read;
  const accountOf = createAccountLookup(store);
  const find = createMessageLookup(store, accountOf);
  const unsubscribe = createUnsubscribe({ recorder, lists });
  const trackedEvents = createTrackedEventQueue({ accountOf, recorder, clock, log });
  return frozen({
    returns: createReturns({ find, recorder, unsubscribe, secret, log }),
    tracking: Object.freeze({
      openClickTracking: createOpenClickTracking({ queue: trackedEvents, secret, clock }),
      unsubscribeLinks: createUnsubscribeLinks({ find, secret, unsubscribe, clock }),
    }),
    trackedEvents,
  });
}
