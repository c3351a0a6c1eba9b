import { useEffect, useState } from 'preact/hooks';
import { call } from '../call.ts';
import { messageOf } from '../session.ts';

/** Work that goes on after the answer, as /jobs/info and /host/job show it. */
export interface Job {
  readonly done: number;
  readonly of: number;
  readonly state: 'running' | 'done' | 'failed';
  readonly error: string | null;
}

const EVERY_MS = 1_000;

/** How far a job is, every second until it has ended; nothing without an id. */
export function useJob(
  operation: 'jobs/info' | 'host/job',
  id: string | null,
): { readonly job: Job | undefined; readonly failed: string | undefined } {
  const [job, setJob] = useState<Job>();
  const [failed, setFailed] = useState<string>();
  useEffect(() => {
    if (id === null) return;
    const timer = setInterval(async () => {
      try {
        const now = await call<Job>(operation, { id });
        setJob(now);
        setFailed(undefined);
        if (now.state !== 'running') clearInterval(timer);
      } catch (error) {
        setFailed(messageOf(error));
      }
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, [operation, id]);
  return { job, failed };
}
