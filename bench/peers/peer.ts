/** A contestant as it runs. */
export interface Started {
  /** Of 127.0.0.1, where it takes mail for in.example. */
  readonly port: number;
  /** Seconds of processor time so far, of all its processes. */
  cpu(): number;
  /** Resident memory of all its processes in MB; `peak` as far as the kernel knows it. */
  memory(): { readonly peak: number; readonly now: number };
  /** Messages it holds; only who does not post them has this. */
  held?(): number;
  stop(): Promise<void>;
}

/** Something that takes mail. */
export interface Peer {
  readonly name: string;
  /** What it does with a message. */
  readonly does: {
    readonly before250: string;
    /** Whether a power cut after the 250 loses the message. */
    readonly durable: string;
    readonly verdicts: string;
    readonly parsed: string;
    readonly posted: string;
  };
  /** Why it cannot run here, if it cannot. Installs what a registry has, unless `install` is false. */
  missing(install: boolean): Promise<string | undefined>;
  /** `sink` takes posts; `dir` is an empty folder of its own, gone afterwards. */
  start(sink: string, dir: string): Promise<Started>;
}
