/** A part that runs: started once, stopped once, in the order the daemon says. */
export interface Service {
  start(): Promise<void>;
  /** Ends work in progress, gives up what it holds, and resolves when nothing runs any more. */
  stop(): Promise<void>;
}

/**
 * Work that is done again and again: safe to run twice, to skip, and to be cut off. Its name and its times are those of
 * tasks/index.ts.
 */
export interface Task {
  /**
   * Runs on every host, without a lease: it is about this host only, or it claims what it works on by itself.
   * Any other task runs in one process at a time, of all that share a store.
   */
  readonly perHost?: true;
  /**
   * Does it once and answers what the log should say of it; nothing when there was nothing to do.
   * `ending` is aborted when the run should end early: the process stops, or another one holds the lease now.
   */
  run(ending?: AbortSignal): Promise<Readonly<Record<string, unknown>> | undefined>;
}
