import type { HostPort } from '../mail.ts';
import { startHelper } from './helper.ts';

/**
 * What each client of a crowd does once it is greeted. idle: nothing · line: one command, a byte a second, that never
 * ends · noops: one NOOP after another, a byte a second · data: a message, a byte a second.
 */
export type Manner = 'idle' | 'line' | 'noops' | 'data';

/** The states of a crowd's sessions, by the last reply. */
export interface CrowdReport {
  /** All have been greeted, or turned away. */
  readonly ready: boolean;
  readonly open: number;
  /** The first reply to each, with its count. */
  readonly first: Readonly<Record<string, number>>;
  /** The last line before the end, with how often and after how many milliseconds from the greeting. */
  readonly ends: Readonly<
    Record<string, { readonly count: number; readonly soonest: number; readonly latest: number }>
  >;
}

export interface CrowdOrders {
  readonly at: HostPort;
  readonly count: number;
  readonly manner: Manner;
  /** Distinguishes the addresses of several crowds: 127.`net`.x.y. */
  readonly net: number;
  readonly perAddress: number;
}

/** Many clients from many addresses, in a process of their own. */
export const startCrowd = (orders: CrowdOrders) => startHelper<CrowdReport>('crowd-client.ts', orders);
