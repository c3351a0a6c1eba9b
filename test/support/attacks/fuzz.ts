import type { HostPort } from '../mail.ts';
import type { Failure } from './failures.ts';
import { startHelper } from './helper.ts';

export interface FuzzOrders {
  readonly at: HostPort;
  readonly seed: number;
  readonly from: number;
  readonly to: number;
  readonly net: number;
}
export interface MailFuzzOrders extends FuzzOrders {
  /** What stands behind the mailbox of each mutant in turn: `-raw`. */
  readonly endings: readonly string[];
}
export interface MailReport {
  readonly done: boolean;
  readonly accepted: number;
  readonly refused: number;
  readonly failures: readonly Failure[];
}
export interface DialogReport {
  readonly done: boolean;
  readonly sessions: number;
  readonly lines: number;
  readonly failures: readonly Failure[];
}
export interface SinkReport {
  readonly url: string;
  readonly delivered: number;
  readonly others: number;
  readonly raw: number;
  readonly failures: readonly Failure[];
}

/** Sends the mutants `from` to `to` of a seed over some sessions, and holds each reply against what it must be. */
export const startMailFuzz = (orders: MailFuzzOrders) => startHelper<MailReport>('fuzz-mail-client.ts', orders);
/** Has the dialogs `from` to `to` of a seed, each in a session of its own. */
export const startDialogFuzz = (orders: FuzzOrders) => startHelper<DialogReport>('fuzz-dialog-client.ts', orders);
/** A webhook that makes every mutant again and compares it with what came. */
export const startFuzzSink = (seed: number) => startHelper<SinkReport>('fuzz-sink.ts', { seed });
