import type { Log } from '../../base/log.ts';
import {
  type Outcome,
  type Protocol,
  startThread,
  type Thread,
  type ThreadCall,
  ThreadEnded,
  type ThreadListener,
  type ThreadReply,
} from '../../base/worker.ts';
import type { Endpoint, QueuedDelivery } from '../delivery.ts';
import type { Changes } from './changes.ts';
import { reasonOf, SpoolFault, SpoolTooNew } from './faults.ts';
import type { Loaded } from './open-file.ts';
import type { Rebuilt } from './rebuild.ts';

// The protocol between the process and the two threads of the queue (writer.ts, reader.ts).

/**
 * done: with the result of the function, after the sync · full: no space, nothing is kept · fault: refused, nothing is
 * kept · again: not the request's own fault, repeat it later · damaged: the file must be rebuilt first.
 */
type AnswerKind = 'done' | 'full' | 'fault' | 'again' | 'damaged';
export type Ask = ThreadCall;
export type AskReply = ThreadReply<AnswerKind>;
export type QueueOutcome = Outcome<AnswerKind>;

/** The requests to the writer besides the changes; they run outside the common transaction. */
interface Duties {
  /** Checks whether another process changed the file. */
  poll(): void;
  /** Moves everything readable into a new file. */
  rebuild(now: number, keepAside: boolean): Rebuilt;
}

export type WriterAsk = Changes & Duties;

/** Reports of the writer along with its replies. */
export interface News {
  /** Set when the file cannot be trusted from now on. */
  readonly broken?: { readonly reason: string; readonly damaged: boolean };
  /** The changes in the number of waiting deliveries, by endpoint. */
  readonly shifts?: readonly (readonly [endpoint: number, more: number])[];
  readonly endpoints?: readonly EndpointRow[];
  /** Deliveries that waited behind others and are due now. */
  readonly due?: readonly QueuedDelivery[];
  /** All endpoints: another process changed the file, or it was rebuilt. */
  readonly loaded?: Loaded;
  readonly commit?: CommitFigures;
}

/** One commit: its time in milliseconds including the sync, its writes, and how many of them were new messages. */
export interface CommitFigures {
  readonly ms: number;
  readonly writes: number;
  readonly messages: number;
}

/** An endpoint that is new, or whose saved state changed. */
export interface EndpointRow extends Endpoint {
  readonly key: number;
  readonly memory: string | null;
}

/** The start data of both threads. */
export interface ThreadData {
  readonly dir: string;
  readonly role: 'daemon' | 'visitor';
  /** For the name of a damaged file that is kept. */
  readonly now: number;
}

/** The result of opening the queue; null for the reader. */
interface Opened {
  readonly loaded: Loaded | null;
  readonly rebuilt: Rebuilt | null;
}

/** The protocol types of both threads. */
export interface QueueProtocol extends Protocol {
  readonly data: ThreadData;
  readonly kind: AnswerKind;
  readonly ready: Opened;
  readonly news: News;
}

/** The threads allocate only rows and replies, which are short-lived. */
const YOUNG_MB = 6;

/** A thread of the queue that has opened it. */
export type QueueThread = Pick<Thread<QueueProtocol>, 'ask' | 'end'> & { readonly opened: Opened };

/** Starts a thread and waits until it has opened the queue. `died` is called if it ends unexpectedly after that. */
export async function startQueueThread(
  script: URL,
  data: ThreadData,
  log: Log,
  { died, news }: Pick<ThreadListener<News>, 'news'> & { died(reason: string): void },
): Promise<QueueThread> {
  const { ready, ask, end } = startThread<QueueProtocol>(
    { script, data, youngMb: YOUNG_MB, gather: 'turn' },
    { log },
    {
      ...(news && { news }),
      ended({ started, reason }) {
        if (started) died(reason);
      },
    },
  );
  try {
    return { opened: await ready, ask, end };
  } catch (error) {
    const cause = error instanceof ThreadEnded && error.cause !== undefined ? error.cause : error;
    // An error sent between threads keeps its name but not its class.
    const tooNew = cause instanceof Error && cause.name === 'SpoolTooNew';
    throw tooNew ? new SpoolTooNew(cause.message) : new SpoolFault(reasonOf(cause));
  }
}
