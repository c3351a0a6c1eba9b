import type { AttemptRecord, Settlement } from './delivery.ts';

// Leases of deliveries that their consumer pulls.

/**
 * The beginning and the end of a lease. An earlier lease that ran out is a failure: after `patience` milliseconds of
 * them the next of a sequence is tried.
 */
export interface LeaseTimes {
  readonly now: number;
  readonly until: number;
  readonly patience: number;
}

/** A delivery that a consumer holds, as attempt `n`; that number also counts attempts before a replay. */
export interface Leased {
  readonly id: string;
  readonly n: number;
  /** The attempt of the lease before it, if that ran out. */
  readonly ranOut: AttemptRecord | null;
}

/** The end of a lease: what its consumer said of attempt `n`, and what follows from it. */
export interface LeaseEnd
  extends Pick<Settlement, 'deliveryId' | 'state' | 'dueAt' | 'at' | 'failure'>,
    Pick<AttemptRecord, 'status' | 'error' | 'answer'> {
  readonly n: number;
}
