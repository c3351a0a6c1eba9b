/** One row of the benchmark: a message, and how it is sent. */
export interface Cell {
  readonly size: string;
  readonly bytes: number;
  readonly signed: boolean;
  readonly connections: number;
  /** Messages in a session before it ends; all there are when not set. */
  readonly perSession?: number;
  /** At most so many are sent; who is slow gets as many as fit into `SECONDS`. */
  readonly messages: number;
  /**
   * Sent before, so that every contestant is measured as it runs for days and not as it starts; a tenth of `messages`
   * when not set.
   */
  readonly warm?: number;
  /** Part of a quick run, and of the plot by sizes. */
  readonly typical: boolean;
}

/** How long mail is sent in one measurement. */
export const SECONDS = 4;

const KB = 1000;
const small = { size: '5 kB', bytes: 5 * KB, signed: false, typical: false };

/**
 * What a person can read and twenty minutes can hold: every size at the load it comes with, and what else changes at 5
 * kB.
 */
export const CELLS: readonly Cell[] = [
  { ...small, connections: 50, messages: 15_000, warm: 4000, typical: true },
  { ...small, connections: 1, messages: 3000 },
  { ...small, connections: 10, messages: 6000 },
  { ...small, connections: 500, messages: 8000 },
  { ...small, connections: 50, perSession: 1, messages: 5000 },
  { ...small, connections: 50, signed: true, messages: 10_000, warm: 3000 },
  { size: '50 kB', bytes: 50 * KB, signed: false, connections: 10, messages: 2000, typical: false },
  { size: '50 kB', bytes: 50 * KB, signed: false, connections: 50, messages: 2000, typical: true },
  { size: '1 MB', bytes: 1000 * KB, signed: false, connections: 10, messages: 150, typical: true },
  { size: '10 MB', bytes: 10_000 * KB, signed: false, connections: 10, messages: 20, typical: true },
];

/** What a cell is called in the tables. */
export function titleOf({ size, signed, connections, perSession }: Cell): string {
  const sessions = connections === 1 ? '1 connection' : `${connections} connections`;
  return `${size}${signed ? ', DKIM-signed' : ''}, ${sessions}${perSession === 1 ? ', one message each' : ''}`;
}
