import type { Changes } from './file/changes.ts';
import type { Loaded } from './file/endpoints.ts';
import type { Rebuilt } from './file/rebuild.ts';

/** What main asks of a thread: the name of a function there and its arguments, numbered so that the answer finds back. */
export type Ask = readonly [n: number, name: string, args: readonly unknown[]];

/**
 * done: with what the function answered, after the sync · full: no space, nothing of it is kept · fault: refused, nothing
 * of it is kept · again: not its own fault, ask once more later · damaged: the file has to be rebuilt first.
 */
export type AnswerKind = 'done' | 'full' | 'fault' | 'again' | 'damaged';
export type Answer = readonly [n: number, kind: AnswerKind, value: unknown];

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
export interface EndpointRow {
  readonly key: number;
  readonly account: string;
  readonly url: string;
  readonly memory: string | null;
}

/** What a thread posts: first `started` or `failed`, then answers. */
export type Post =
  | { readonly kind: 'started'; readonly loaded: Loaded | null; readonly rebuilt: Rebuilt | null }
  | { readonly kind: 'failed'; readonly name: string; readonly message: string }
  | { readonly kind: 'answers'; readonly answers: readonly Answer[]; readonly news: News | null };

/** What the writer thread can be asked beside the changes; these stand outside the common transaction. */
export interface Duties {
  /** Looks whether another process changed the file. */
  poll(): void;
  /** Moves everything that can be read into a new file. */
  rebuild(now: number, keepAside: boolean): Rebuilt;
}

export type WriterAsk = Changes & Duties;

/** Where the threads find their things. */
export interface ThreadData {
  readonly dir: string;
  readonly role: 'daemon' | 'visitor';
  /** For the name of a damaged file that is kept aside. */
  readonly now: number;
}

/** Calls a function by its name. Arguments lose their types between threads: main checked them against the same table. */
export function call(table: object, [, name, args]: Ask): unknown {
  const found: unknown = Reflect.get(table, name);
  if (typeof found !== 'function') throw new TypeError(`the queue knows no ${name}`);
  return Reflect.apply(found, table, args);
}
