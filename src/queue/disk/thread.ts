import type { Log } from '../../base/log.ts';
import {
  type Call,
  type Outcome,
  type Protocol,
  type Reply,
  startThread,
  type Thread,
  ThreadEnded,
  type ThreadListener,
} from '../../base/worker.ts';
import type { Endpoint } from '../delivery.ts';
import type { Changes } from './changes.ts';
import { reasonOf, SpoolFault, SpoolTooNew } from './faults.ts';
import type { Loaded } from './open-file.ts';
import type { Rebuilt } from './rebuild.ts';

// What the process and the two threads of the queue (writer.ts, reader.ts) say to each other.

/**
 * done: with what the function answered, after the sync · full: no space, nothing of it is kept · fault: refused,
 * nothing of it is kept · again: not its own fault, ask once more later · damaged: the file has to be rebuilt first.
 */
type AnswerKind = 'done' | 'full' | 'fault' | 'again' | 'damaged';
export type Ask = Call;
export type Answer = Reply<AnswerKind>;
export type QueueOutcome = Outcome<AnswerKind>;

/** What the writer can be asked beside the changes; these stand outside the common transaction. */
interface Duties {
  /** Looks whether another process changed the file. */
  poll(): void;
  /** Moves everything that can be read into a new file. */
  rebuild(now: number, keepAside: boolean): Rebuilt;
}

export type WriterAsk = Changes & Duties;

/** What the writer reports along with its answers. */
export interface News {
  /** Set when the file cannot be trusted from now on. */
  readonly broken?: { readonly reason: string; readonly damaged: boolean };
  /** How many more, or fewer, wait for each endpoint. */
  readonly shifts?: readonly (readonly [endpoint: number, more: number])[];
  readonly endpoints?: readonly EndpointRow[];
  /** Everything anew: another process changed the file, or it was rebuilt. */
  readonly loaded?: Loaded;
  readonly commit?: CommitFigures;
}

/** One commit: milliseconds with its sync, what it wrote, and how many of that were new messages. */
export interface CommitFigures {
  readonly ms: number;
  readonly writes: number;
  readonly messages: number;
}

/** An endpoint that is new, or whose memory changed. */
export interface EndpointRow extends Endpoint {
  readonly key: number;
  readonly memory: string | null;
}

/** Where the threads find their things. */
export interface ThreadData {
  readonly dir: string;
  readonly role: 'daemon' | 'visitor';
  /** For the name of a damaged file that is kept aside. */
  readonly now: number;
}

/** What a thread found when it opened the queue; the reader has nothing to say. */
interface Opened {
  readonly loaded: Loaded | null;
  readonly rebuilt: Rebuilt | null;
}

/** What both threads of the queue go by. */
export interface QueueProtocol extends Protocol {
  readonly data: ThreadData;
  readonly kind: AnswerKind;
  readonly ready: Opened;
  readonly news: News;
}

/** What the threads of the queue make of their own is rows and answers, which are gone at once. */
const YOUNG_MB = 6;

/** A thread of the queue that has opened it. */
export type QueueThread = Pick<Thread<QueueProtocol>, 'ask' | 'end'> & { readonly opened: Opened };

/**
 * Starts a thread and waits until it has opened the queue. `died` is called when it ends after that and nobody asked
 * for it.
 */
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
    // An error that crosses threads keeps its name and not its class.
    const tooNew = cause instanceof Error && cause.name === 'SpoolTooNew';
    throw tooNew ? new SpoolTooNew(cause.message) : new SpoolFault(reasonOf(cause));
  }
}
