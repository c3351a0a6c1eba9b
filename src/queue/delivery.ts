import type { RoomSettings } from '../base/room.ts';
import { namesOf } from '../base/tables.ts';
import type { Envelope, Verdicts } from '../mail/envelope.ts';
import type { EventQueue } from './events.ts';
import type { EndpointHistory } from './history.ts';

/** The raw bytes of a message, where they are. Line ends are CRLF, as they came. */
export type Body =
  | { readonly kind: 'inline'; readonly bytes: Uint8Array }
  /** A file under `blobs/` that is already synced, its folder too. */
  | { readonly kind: 'blob'; readonly path: string; readonly size: number; readonly sha256: string };

/** What we answered 250 for. */
export interface Message {
  readonly id: string;
  readonly receivedAt: number;
  readonly envelope: Envelope;
  /** Our Received line(s) with CRLF; they go in front of the raw bytes and are not part of the body. */
  readonly trace: string;
  /** Taken once, by the first attempt; null until then. */
  readonly verdicts: Verdicts | null;
}

/** What a kind of delivery is where there is no road to ask: in the queue file, in commands, in the docs. */
interface KindFacts {
  /** Its number in the queue file, for ever: it never changes, and no other kind may have it. */
  readonly code: number;
  /** What these deliveries are, in the words of the help and the docs. */
  readonly about: string;
  /**
   * Whose they are. route: `routeId` says of which, and its account may list and replay them · sender: an account's
   * mail, which is replayed only when somebody names it or its kind · operator: replayed with all others when given up,
   * but not when delivered.
   */
  readonly owner: 'route' | 'webhook' | 'sender' | 'operator';
  /** What their endpoints are, as metrics name them. Messages and events for one URL share its endpoint. */
  readonly endpoint: string;
}

/**
 * What a delivery can be: one vocabulary for the queue file, the command line, metrics, the log and the docs. All of
 * them read this list; a new road adds its kind here.
 */
export const KINDS = {
  /** A message that came in, on its way to the webhook of its route. */
  inbound: { code: 0, about: 'messages for routes', owner: 'route', endpoint: 'webhook' },
  /** A batch of events, on its way to a webhook. */
  events: { code: 1, about: 'batches for webhooks', owner: 'webhook', endpoint: 'webhook' },
  /** A message of an account, on its way to the server of its recipient. */
  outbound: { code: 2, about: 'messages of accounts', owner: 'sender', endpoint: 'outbound' },
  /**
   * Mail that is the operator's own business and no account's: what comes back to the return domain (bounces,
   * complaints, unsubscribe mails), mail to the postmaster, and the delivery reports that we owe to senders.
   */
  return: {
    code: 3,
    about: 'bounces, mail to postmaster, delivery reports',
    owner: 'operator',
    endpoint: 'return',
  },
} as const satisfies Readonly<Record<string, KindFacts>>;

/** A name in `KINDS`. */
export type DeliveryKind = keyof typeof KINDS;

/** What an endpoint is, as metrics name it. */
export type EndpointKind = (typeof KINDS)[DeliveryKind]['endpoint'];

export const DELIVERY_KINDS = namesOf(KINDS);

export const ENDPOINT_KINDS: readonly EndpointKind[] = [...new Set(DELIVERY_KINDS.map((kind) => KINDS[kind].endpoint))];

/** The kinds whose deliveries belong to one of these. */
export function kindsOf(...owners: readonly KindFacts['owner'][]): readonly DeliveryKind[] {
  return DELIVERY_KINDS.filter((kind) => owners.includes(KINDS[kind].owner));
}

/**
 * What is done with a delivery of the kind `return`. read: feedback about a message that was sent · forward: mail to
 * the postmaster, on to the operator · report: our report to a sender.
 */
export type ReturnTask = 'read' | 'forward' | 'report';

/** What a batch of events is, beside a delivery: its body is a JSON array, and it has neither route nor recipient. */
interface BatchFacts {
  /** `id` of the webhook's row. */
  readonly webhook: string;
  readonly events: number;
}

/** One message, or one batch of events, on its way to one endpoint. */
export interface Delivery {
  /** base/ids.ts `deliveryId`; travels as `webhook-id`. */
  readonly id: string;
  readonly kind: DeliveryKind;
  readonly messageId: string;
  readonly account: string;
  /**
   * Where to. Together with the account it names the endpoint: the URL of a webhook exactly as configured; for the
   * other kinds a name in the form of a URL, which nobody takes apart.
   */
  readonly url: string;
  /** What it belongs to: the route that matched; for mail going out the row of its subaccount; '' for neither. */
  readonly routeId: string;
  readonly pattern: string;
  /** The envelope recipient this delivery is for, as RCPT said it. */
  readonly recipient: string;
  /** Bytes of its message, for roads that have to know them before they read it. */
  readonly size?: number | undefined;
  /** Set for the kind `events`. */
  readonly batch?: BatchFacts | undefined;
  /** Set for the kind `return`. */
  readonly task?: ReturnTask | undefined;
  /** Not before this time, milliseconds since 1970; at once when not set. Read when it is accepted. */
  readonly notBefore?: number | undefined;
}

/**
 * Something that an attempt at mail going out has brought about and that the store must hear of: written with the
 * settlement, kept until it was told. `body` is JSON text of sending/reporter.ts.
 */
export interface Report {
  readonly id: string;
  readonly body: string;
}

/** waiting: has a time it is due · delivered · dead: given up, kept for replay · dropped: an operator's wish. */
export type DeliveryState = 'waiting' | 'delivered' | 'dead' | 'dropped';

/** A delivery with its story, as the queue keeps it. Times are milliseconds since 1970. */
export interface QueuedDelivery extends Delivery {
  readonly state: DeliveryState;
  readonly createdAt: number;
  readonly dueAt: number;
  /** Attempts made since it was accepted or last replayed. */
  readonly attempts: number;
  /** When it became dead, delivered or dropped. */
  readonly endedAt: number | null;
  /** Start of the time budget: acceptance, or the last replay. */
  readonly budgetFrom: number;
  /** Parked deliveries have failed while others to the same endpoint passed; they wait with long gaps. */
  readonly parked: boolean;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
}

/** One POST, as the history shows it. */
export interface AttemptRecord {
  readonly at: number;
  readonly durationMs: number;
  /** HTTP status, null when no answer came. */
  readonly status: number | null;
  /** From a fixed vocabulary (webhooks/types.ts), null when an answer came. */
  readonly error: string | null;
  /** The start of the answer, at most 512 characters. */
  readonly answer: string;
  /** The id of the POST, when several deliveries shared it (base/ids.ts `sharedPostId`). */
  readonly batch?: string | undefined;
}

/** What an attempt changes: written as one unit. */
export interface Settlement {
  readonly deliveryId: string;
  readonly attempt: AttemptRecord | null;
  readonly state: DeliveryState;
  readonly dueAt: number;
  readonly parked: boolean;
  readonly at: number;
  /** It ends, and is not kept for anybody to look at or replay: the next purge forgets it. */
  readonly forget?: boolean;
  /** Written in the same transaction. */
  readonly report?: Report | undefined;
}

/** What tells a start how late it was when the last process ran. */
export interface LastTime {
  /** As `keepTime` was told; null when it never was. */
  readonly memory: string | null;
  /** When the last delivery was accepted, by the clock of that time; null when there is none. */
  readonly newest: number | null;
}

/** Where deliveries go: known by its account and URL. */
export interface Endpoint {
  readonly account: string;
  readonly url: string;
  /** That of the first delivery for it: a webhook may get messages and events. */
  readonly kind: DeliveryKind;
}

/** What names an endpoint. */
export type EndpointName = Pick<Endpoint, 'account' | 'url'>;

/** What the spool knows of an endpoint: enough to schedule without looking at single deliveries. */
export interface EndpointSummary extends Endpoint {
  /** Deliveries in state waiting, parked ones included. */
  readonly waiting: number;
  /** The earliest due time among them. */
  readonly nextDue: number;
  /** What queue/schedule/breaker.ts asked to keep over a restart (breaker, pause); null when nothing. */
  readonly memory: string | null;
}

export interface NewMessage {
  readonly id: string;
  readonly receivedAt: number;
  readonly envelope: Envelope;
  readonly trace: string;
  readonly body: Body;
}

/** Which deliveries an operator or the API means. All given conditions must hold. */
export interface Selection {
  readonly ids?: readonly string[] | undefined;
  readonly account?: string | undefined;
  readonly routeIds?: readonly string[] | undefined;
  readonly url?: string | undefined;
  readonly recipient?: string | undefined;
  readonly kinds?: readonly DeliveryKind[] | undefined;
  /** Batches of this webhook. */
  readonly webhook?: string | undefined;
  readonly states?: readonly DeliveryState[] | undefined;
  /** Accepted at or after / before, milliseconds since 1970. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** Hears how many deliveries a change has come to so far. */
export type Progress = (count: number) => void;

/**
 * accepted: synced to disk · full: no room (452 4.3.1) · fault: the disk or the file failed us (451 4.3.0). Nothing is
 * kept unless accepted.
 */
export type AcceptOutcome = 'accepted' | 'full' | 'fault';

/**
 * Takes the bytes of one message while they arrive: up to 256 KiB in memory, then in a file.
 * Memory stays bounded whatever comes: wait for `write` before the next.
 */
export interface BodyWriter {
  /**
   * The chunk is given away: nobody may use it afterwards, its memory may be gone. Answers nothing when it is in memory
   * already.
   */
  write(chunk: Uint8Array): Promise<void> | undefined;
  /** Syncs a large body (file and folder) and answers where it is. Throws when the disk failed. */
  finish(): Promise<Body>;
  /** Forgets what was written. Never throws. */
  abort(): Promise<void>;
}

/** The queue of this host: what we answered 250 for and have not finished with. */
export interface Spool {
  body(messageId: string): BodyWriter;
  /**
   * Writes the message and its deliveries as one unit and syncs them. Everything that waits meanwhile shares the next
   * sync.
   */
  accept(message: NewMessage, deliveries: readonly Delivery[]): Promise<AcceptOutcome>;
  /**
   * Whether new mail may come: false below the floor of free disk or after a failed sync. Answered from memory, looked
   * up every second.
   */
  hasRoom(): boolean;
  /**
   * Deliveries of the account in state waiting; `in`: without mail going out, of which a pause may hold back any
   * number. From memory.
   */
  backlog(account: string, way?: 'in'): number;
  /**
   * undefined when it is gone. `deliveryId`: it is wanted for this delivery, which is given up when it waits without
   * its message.
   */
  message(messageId: string, deliveryId?: string): Promise<{ message: Message; body: Body } | undefined>;
  delivery(id: string): Promise<QueuedDelivery | undefined>;
  /** Waiting deliveries of an endpoint that are due at `now`, oldest due first, leaving out `except`. */
  due(account: string, url: string, now: number, limit: number, except: readonly string[]): Promise<QueuedDelivery[]>;
  /** Every endpoint that has something waiting or a memory. */
  endpoints(): Promise<EndpointSummary[]>;
  /** Those of an account that have something waiting, with how much. From memory. */
  waitingOf(account: string): readonly (Endpoint & { readonly waiting: number })[];
  /** When the oldest that waits for each of these URLs was accepted. */
  oldestOf(account: string, urls: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** What became of the attempts at an endpoint. */
  history(endpoint: EndpointName, now: number): Promise<EndpointHistory>;
  /**
   * Settling what is gone or no longer waiting is no error: the attempt is noted if the delivery is there. `fresh`:
   * verdicts that were just taken.
   */
  settle(settlement: Settlement, fresh?: Verdicts): Promise<void>;
  keepEndpoint(endpoint: Endpoint, memory: string | null): Promise<void>;
  lastTime(): Promise<LastTime>;
  keepTime(memory: string): Promise<void>;
  attempts(deliveryId: string): Promise<AttemptRecord[]>;
  /** Newest first. */
  list(selection: Selection, limit: number): Promise<QueuedDelivery[]>;
  /** Counts by state. */
  count(selection: Selection): Promise<Record<DeliveryState, number>>;
  /** Makes waiting ones due now, but for those that are not to go before a time. Answers how many. */
  retry(selection: Selection, now: number, progress?: Progress): Promise<number>;
  /** The same for all that waits for an endpoint and is not due yet; the dispatcher is not told. */
  retryEndpoint(account: string, url: string, now: number): Promise<number>;
  /** Moves what waits and was never attempted to another time; its budget begins then. Answers how many. */
  reschedule(selection: Selection, at: number): Promise<number>;
  /** Ends waiting and dead ones without delivering. Answers how many. */
  drop(selection: Selection, now: number, progress?: Progress): Promise<number>;
  /**
   * Makes ended ones (dead, delivered, dropped) wait again, due now, with a new budget and the same id. Answers how
   * many.
   */
  replay(selection: Selection, now: number, progress?: Progress): Promise<number>;
  /** Sends what waits or is dead for a route to another URL from now on. Answers how many. */
  redirect(routeId: string, url: string): Promise<number>;
  /**
   * Forgets what ended before these times (milliseconds since 1970), and the oldest delivered ones beyond
   * `deliveredBytes`. In small steps. Answers how many deliveries.
   */
  purge(limits: {
    readonly deliveredBefore: number;
    readonly deadBefore: number;
    readonly deliveredBytes: number;
  }): Promise<number>;
  /** Reports that nobody has been told of yet, the oldest first. */
  reports(limit: number): Promise<Report[]>;
  /** They have been told. */
  reported(ids: readonly string[]): Promise<void>;
  /** Events on their way to webhooks. */
  readonly events: EventQueue;
  /**
   * Called after every accepted message and every new batch, and with nothing when something outside (the command line)
   * changed the queue.
   */
  onChange(listener: (fresh: readonly Delivery[]) => void): void;
  /** A write that is synced: the health check's proof that mail could be taken. */
  check(): Promise<void>;
  close(): Promise<void>;
}

export interface SpoolSettings extends RoomSettings {
  /** Folder of spool.db, blobs/ and tmp/. */
  readonly dir: string;
}
