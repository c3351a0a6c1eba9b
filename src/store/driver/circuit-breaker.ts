import { type Clock, withTimeout } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { type Around, type Database, pings, StoreAway, StoreFull, wrapped } from './port.ts';

/** The delay before a database that did not answer is tried again. Milliseconds. */
const PROBE_MS = 500;
/** How long operations wait for the first probe after a failure, which may concern a single operation. Milliseconds. */
const DOUBT_MS = 50;

/**
 * Wraps a database so that no caller waits for one that is known to be away: after an operation that failed with
 * `StoreAway`, all others do so at once, until a probe in the background succeeds. Reads may work where writes do not
 * (a lock, no majority), so each have their own probe; but where reads fail, writes are not tried.
 */
export async function withCircuitBreaker(database: Database, { clock }: { readonly clock: Clock }): Promise<Database> {
  const alive = await database.collection(pings);
  const reads = createGate(() => alive.one({ id: 'ping' }), clock);
  const writes = createGate(() => database.ping(), clock);
  const around: Around = (operation, work) =>
    operation === 'one' || operation === 'many' ? reads.run(work) : reads.pass(() => writes.run(work));
  return frozen({
    ...wrapped(database, around),
    async close() {
      reads.stop();
      writes.stop();
      await database.close();
    },
  });
}

/** Lets operations pass until one fails, and again after a probe has succeeded. */
function createGate(probe: () => Promise<unknown>, clock: Clock) {
  /** Set while the database is, or may be, away. `verdict` resolves when the first probe has ended. */
  let absence: { readonly reason: string; readonly verdict: Promise<void> } | undefined;
  let cancel = () => {};
  let stopped = false;

  /** Probes until there is an answer. Resolves after the first probe. */
  async function ask(): Promise<void> {
    const failed = await probe().then(() => false, isAbsence);
    if (stopped) return;
    if (failed) cancel = clock.after(PROBE_MS, () => void ask());
    else absence = undefined;
  }

  async function pass<T>(work: () => Promise<T>): Promise<T> {
    if (absence) await withTimeout(clock, DOUBT_MS, absence.verdict);
    if (absence) throw new StoreAway(absence.reason);
    return work();
  }

  return {
    /** Throws `StoreAway` in place of work that would wait. */
    pass,
    /** As `pass`; closes the gate if the work fails because the database is away. */
    run: <T>(work: () => Promise<T>): Promise<T> =>
      pass(async () => {
        try {
          return await work();
        } catch (error) {
          if (isAbsence(error) && !stopped) absence ??= { reason: error.message, verdict: ask() };
          throw error;
        }
      }),
    stop() {
      stopped = true;
      absence = undefined;
      cancel();
    },
  };
}

/** Whether the database is away. A full disk does not count. */
const isAbsence = (error: unknown): error is StoreAway => error instanceof StoreAway && !(error instanceof StoreFull);
