import type { Certificate } from '../certificates.ts';

/** A contestant as it runs. */
export interface Started {
  /** Of 127.0.0.1, where it takes mail for in.example. */
  readonly port: number;
  /** Seconds of processor time so far, of all its processes. */
  cpu(): number;
  /** Resident memory of all its processes in MB; `peak` as far as the kernel knows it. */
  memory(): { readonly peak: number; readonly now: number };
  /** Messages that it has taken and not posted. Who has none loses what cannot be posted at once. */
  held?(): number | Promise<number>;
  stop(): Promise<void>;
}

/** What a contestant is started with. */
export interface World {
  /** Where to post; with several, mail for bench-N goes to the Nth. */
  readonly urls: readonly string[];
  /** An empty folder of its own, gone afterwards. */
  readonly dir: string;
  /** STARTTLS is offered with it. */
  readonly certificate?: Certificate;
  /** The name server answers after so many milliseconds, and knows that many sender domains. */
  readonly dns?: { readonly ms: number; readonly domains: number };
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
  /** It takes mail and keeps it, and never posts. */
  readonly acceptsOnly?: true;
  /** Why it cannot run here, if it cannot. Installs what a registry has, unless `install` is false. */
  missing(install: boolean): Promise<string | undefined>;
  start(world: World): Promise<Started>;
}
