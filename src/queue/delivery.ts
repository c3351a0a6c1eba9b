import type { BytesInFile, BytesInMemory } from '../base/bytes.ts';
import { namesOf } from '../base/tables.ts';
import type { Envelope, Verdicts } from '../mail/addresses/envelope.ts';
import type { Scan } from '../mail/scan.ts';
import type { openSpool } from './spool.ts';
import type { BulkAction, DeliveryState } from './states.ts';

/** The raw bytes of a message, with CRLF as received. A file is under `blobs/`, and synced with its folder. */
export type Body = BytesInMemory | (BytesInFile & { readonly sha256: string });

/** A message that Postern accepted with 250. */
export interface Message {
  readonly id: string;
  readonly receivedAt: number;
  readonly envelope: Envelope;
  /** Our Received line(s) with CRLF; they precede the raw bytes and are not part of the body. */
  readonly trace: string;
  /** Computed once, by the first attempt; null until then. */
  readonly verdicts: Verdicts | null;
  /** The findings of scanners; undefined if it was not scanned. */
  readonly scan?: Scan | undefined;
}

/** Facts about a kind of delivery that the queue file, the commands and the docs need without a road. */
interface KindFacts {
  /** Its number in the queue file: unique, and never changed. */
  readonly code: number;
  /** A description for the help and the docs. */
  readonly about: string;
  /**
   * Who owns these deliveries. route: the route in `routeId`; its account may list and replay them · webhook: the
   * webhook of the batch · sender: mail of an account, replayed only when named or selected by kind · operator: a
   * replay of everything includes them if dead, but not if delivered.
   */
  readonly owner: 'route' | 'webhook' | 'sender' | 'operator';
  /** The type of their endpoints in metrics. Messages and events for one URL share its endpoint. */
  readonly endpoint: string;
  /**
   * How it survives the loss of this host and its disk (`queue.copies`). accepted: copied when it is accepted
   * (inbound/copying.ts) · submitted: copied before it is accepted (sending/copies.ts) · events: the store has them.
   */
  readonly copied: 'accepted' | 'submitted' | 'events';
}

/**
 * All kinds of delivery. The queue file, the command line, metrics, the log and the docs use these names; a new road
 * adds its kind here.
 */
export const KINDS = {
  /** An inbound message for the webhook of its route. */
  inbound: { code: 0, about: 'messages for routes', owner: 'route', endpoint: 'webhook', copied: 'accepted' },
  /** A batch of events for a webhook. */
  events: { code: 1, about: 'batches for webhooks', owner: 'webhook', endpoint: 'webhook', copied: 'events' },
  /** A message of an account for the mail server of its recipient. */
  outbound: { code: 2, about: 'messages of accounts', owner: 'sender', endpoint: 'outbound', copied: 'submitted' },
  /**
   * Mail for the operator and not for an account: mail to the return domain (bounces, complaints, unsubscribe mail),
   * mail to the postmaster, and the delivery reports that Postern owes to senders.
   */
  return: {
    code: 3,
    about: 'bounces, mail to postmaster, delivery reports',
    owner: 'operator',
    endpoint: 'return',
    copied: 'accepted',
  },
} as const satisfies Readonly<Record<string, KindFacts>>;

/** A name in `KINDS`. */
export type DeliveryKind = keyof typeof KINDS;

/** The type of an endpoint in metrics. */
export type EndpointKind = (typeof KINDS)[DeliveryKind]['endpoint'];

export const DELIVERY_KINDS = namesOf(KINDS);

export const ENDPOINT_KINDS: readonly EndpointKind[] = [...new Set(DELIVERY_KINDS.map((kind) => KINDS[kind].endpoint))];

/** Returns the kinds whose deliveries have one of these owners. */
export function kindsOf(...owners: readonly KindFacts['owner'][]): readonly DeliveryKind[] {
  return DELIVERY_KINDS.filter((kind) => owners.includes(KINDS[kind].owner));
}

/**
 * The task of a delivery of the kind `return`. read: process feedback about a sent message · forward: forward mail for
 * the postmaster to the operator · report: send our report to a sender.
 */
export type ReturnTask = (typeof RETURN_TASKS)[number];

export const RETURN_TASKS = ['read', 'forward', 'report'] as const;

/** The extra facts of a batch of events: its body is a JSON array, and it has neither route nor recipient. */
interface BatchFacts {
  /** `id` of the webhook's row. */
  readonly webhook: string;
  readonly events: number;
}

/** The end of a delivery that ends as soon as it is accepted. */
interface Fate {
  readonly state: Exclude<DeliveryState, 'waiting'>;
  readonly note: string;
  /** Since when; milliseconds since 1970. Absent: now. */
  readonly at?: number | undefined;
}

/** One message, or one batch of events, for one endpoint. */
export interface Delivery {
  /** base/ids.ts `deliveryId`; sent as `webhook-id`. */
  readonly id: string;
  readonly kind: DeliveryKind;
  readonly messageId: string;
  readonly account: string;
  /**
   * The destination. With the account it identifies the endpoint: for webhooks the URL exactly as configured, for other
   * kinds a name in the form of a URL, which is never parsed for routing.
   */
  readonly url: string;
  /** The route that matched, with `+` and a number for a further URL; for outgoing mail the subaccount's row; or ''. */
  readonly routeId: string;
  readonly pattern: string;
  /** The envelope recipient of this delivery, as given in RCPT. */
  readonly recipient: string;
  /** Size of the message in bytes, for roads that need it before they read the message. */
  readonly size?: number | undefined;
  /** Set if it goes out in order: deliveries with the same sequence follow each other (disk/sequences.ts). */
  readonly sequence?: string | undefined;
  /** Set while it waits behind another of its sequence; it is not due then. Written by the queue. */
  readonly behind?: boolean | undefined;
  /** Set if it was attempted, then replayed by hand, and not attempted since. Written by the queue. */
  readonly replayed?: boolean | undefined;
  /** Set for the kind `events`. */
  readonly batch?: BatchFacts | undefined;
  /** Set for the kind `return`. */
  readonly task?: ReturnTask | undefined;
  /** Set if it ends at once without an attempt: its state and the reason. Read on acceptance. */
  readonly fate?: Fate | undefined;
  /** The earliest time of the first attempt, milliseconds since 1970; immediately if not set. Read on acceptance. */
  readonly notBefore?: number | undefined;
}

/**
 * The result of an outbound attempt that must reach the store: written with the settlement, kept until reported. `body`
 * is JSON text of sending/reporter.ts.
 */
export interface SendReport {
  readonly id: string;
  readonly body: string;
}

/** A delivery with its state and history, as stored in the queue. Times are milliseconds since 1970. */
export interface QueuedDelivery extends Delivery {
  readonly state: DeliveryState;
  readonly createdAt: number;
  readonly dueAt: number;
  /** Attempts since acceptance or the last replay. */
  readonly attempts: number;
  /** When it became dead, delivered, dropped or held. */
  readonly endedAt: number | null;
  /** Start of the time budget: acceptance, the chosen send time, or the last replay. */
  readonly budgetFrom: number;
  /** Parked deliveries failed while others to the same endpoint passed; they are retried at long intervals. */
  readonly parked: boolean;
  /** Since when it has failed as the first of its sequence. */
  readonly heldSince?: number | undefined;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
}

/** When it is attempted next; null if it has ended, or waits behind another. */
export const nextAttemptAt = ({ state, behind, dueAt }: QueuedDelivery): number | null =>
  state === 'waiting' && !behind ? dueAt : null;

/** One attempt, as the history shows it. */
export interface AttemptRecord {
  readonly at: number;
  readonly durationMs: number;
  /** HTTP status or SMTP reply code, null if there was no answer. */
  readonly status: number | null;
  /** Why there was no answer: `AttemptError` (queue/settle.ts) for HTTP, free text for SMTP. Null if there was one. */
  readonly error: string | null;
  /** The start of the answer, at most 512 characters. */
  readonly answer: string;
  /** The id of the POST if several deliveries shared it (base/ids.ts `sharedPostId`). */
  readonly batch?: string | undefined;
  /** The connection and the dialog: JSON text of queue/detail.ts, for the last attempts only. */
  readonly detail?: string | undefined;
}

/** The failing time of a delivery that others wait behind. */
export interface LongFailure {
  /** Milliseconds since 1970. */
  readonly since: number;
  /** Whether another of its sequence may be tried now. */
  readonly isOver: boolean;
}

/** The changes of an attempt, written atomically. */
export interface Settlement {
  readonly deliveryId: string;
  readonly attempt: AttemptRecord | null;
  readonly state: DeliveryState;
  readonly dueAt: number;
  readonly parked: boolean;
  readonly at: number;
  /** Set if it failed and is in a sequence. */
  readonly failure?: LongFailure | undefined;
  /** The delivery ends and is not kept for inspection or replay: the next purge deletes it. */
  readonly forget?: boolean;
  /** Written in the same transaction. */
  readonly report?: SendReport | undefined;
}

/** The time of the last process, by which the next start checks its clock. */
export interface LastTime {
  /** The text last given to `keepTime`; null if there is none. */
  readonly memory: string | null;
  /** When the last delivery was accepted, by the clock of that time; null if there is none. */
  readonly newest: number | null;
}

/** A destination of deliveries, identified by its account and URL. */
export interface Endpoint {
  readonly account: string;
  readonly url: string;
  /** The kind of its first delivery: a webhook may get messages and events. */
  readonly kind: DeliveryKind;
}

/** The identity of an endpoint. */
export type EndpointName = Pick<Endpoint, 'account' | 'url'>;

/** The same as a key for maps. */
export const endpointKey = ({ account, url }: EndpointName): string => `${account}\0${url}`;

/** The spool's summary of an endpoint: enough to schedule without reading single deliveries. */
export interface EndpointSummary extends Endpoint {
  /** Deliveries in state waiting, parked ones included. */
  readonly waiting: number;
  /** The earliest due time among them. */
  readonly nextDue: number;
  /** The state that queue/schedule/breaker.ts saves across a restart (breaker, pause); null for none. */
  readonly memory: string | null;
}

/** The identity of a delivery and of its endpoint. */
export type DeliveryName = Pick<Delivery, 'id' | 'account' | 'url'>;

/** A message to be accepted. */
export interface NewMessage extends Omit<Message, 'verdicts'> {
  readonly body: Body;
  /** Set if they were computed before it was accepted. */
  readonly verdicts?: Verdicts | undefined;
}

/** The id of the route of a delivery, from its `routeId`. */
export const routeOfTarget = (id: string): string => id.split('+', 1)[0] ?? id;

/** Selects deliveries for an operator or the API. All given conditions must hold. */
export interface Selection {
  readonly ids?: readonly string[] | undefined;
  readonly account?: string | undefined;
  /** For any URL of these routes. */
  readonly routeIds?: readonly string[] | undefined;
  /** For one URL of a route, named by this `routeId`. */
  readonly targetId?: string | undefined;
  readonly url?: string | undefined;
  readonly recipient?: string | undefined;
  readonly kinds?: readonly DeliveryKind[] | undefined;
  /** Batches of this webhook. */
  readonly webhook?: string | undefined;
  readonly states?: readonly DeliveryState[] | undefined;
  /** Only those that this action would change. */
  readonly changeable?: BulkAction | undefined;
  /** Accepted at or after / before, milliseconds since 1970. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** accepted: synced to disk · full: no space (452 4.3.1) · fault: disk error (451 4.3.0). Only the first is kept. */
export type AcceptOutcome = 'accepted' | 'full' | 'fault';

/** Writes a body as it arrives: 256 KiB in memory, then to a file. Await `write` before the next chunk. */
export interface BodyWriter {
  /** Takes ownership of the chunk, whose memory may be gone afterwards. Returns nothing if it fits in memory. */
  write(chunk: Uint8Array): Promise<void> | undefined;
  /** Syncs a large body (file and folder) and returns where it is. Throws on a disk error. */
  finish(): Promise<Body>;
  /** Discards the body. Never throws. */
  abort(): Promise<void>;
}

/** Bytes per write, to bound its memory. */
const WRITTEN_BYTES = 65_536;

/** Writes a whole body. Takes ownership of `bytes`. */
export async function writeAll(writer: Pick<BodyWriter, 'write'>, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length; at += WRITTEN_BYTES) await writer.write(bytes.subarray(at, at + WRITTEN_BYTES));
}

/** The queue of this host: messages accepted with 250 and not yet finished. */
export type Spool = Awaited<ReturnType<typeof openSpool>>;
