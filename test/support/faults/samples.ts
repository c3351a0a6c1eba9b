import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { footprintOf } from './footprint.ts';

/** What a daemon holds at a moment. */
export interface Sample {
  /** Resident memory, in megabytes. */
  readonly memory: number;
  readonly sockets: number;
  /** Open files and sockets. */
  readonly descriptors: number;
  readonly threads: number;
  /** What its queue takes on the disk, in megabytes. */
  readonly queue: number;
}

/** What a process and its data folder hold now; Linux only. */
export function takeSample(pid: number, dir: string): Sample {
  const footprint = footprintOf(pid);
  const count = (what: string) => readdirSync(`/proc/${pid}/${what}`).length;
  return {
    memory: footprint.resident(),
    sockets: footprint.sockets(),
    descriptors: count('fd'),
    threads: count('task'),
    queue: bytesIn(join(dir, 'spool')) / 1_048_576,
  };
}

/** Takes samples until stopped. */
export function takeSamples(pid: number, dir: string, everyMs: number): () => readonly Sample[] {
  const samples: Sample[] = [];
  const timer = setInterval(() => samples.push(takeSample(pid, dir)), everyMs);
  return () => {
    clearInterval(timer);
    return samples;
  };
}

/** Of one figure: its median in the second quarter of the time and in the last one. */
export function drift(samples: readonly Sample[], of: keyof Sample): { readonly early: number; readonly late: number } {
  const part = (from: number, to: number) =>
    median(
      samples.slice(Math.floor(samples.length * from), Math.floor(samples.length * to)).map((sample) => sample[of]),
    );
  return { early: part(0.25, 0.5), late: part(0.75, 1) };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** Files come and go while they are counted. */
function bytesIn(dir: string): number {
  return readdirSync(dir, { withFileTypes: true, recursive: true }).reduce(
    (sum, entry) =>
      sum + (entry.isFile() ? (statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false })?.size ?? 0) : 0),
    0,
  );
}
