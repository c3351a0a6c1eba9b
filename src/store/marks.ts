/** The fields of a row that events change, each event once (events/once.ts). Absent counts as 0 and none. */
export interface Marked {
  /** Grows with every change, so that two changes at once cannot undo one another. */
  readonly version?: number;
  /** Ids of events that are in this row already; those that are applied everywhere are forgotten with the next change. */
  readonly marks?: readonly string[];
}
