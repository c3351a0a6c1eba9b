/** A part that runs: started once, stopped once, in the order the daemon says. */
export interface Service {
  start(): Promise<void>;
  /** Ends work in progress, gives up what it holds, and resolves when nothing runs any more. */
  stop(): Promise<void>;
}
