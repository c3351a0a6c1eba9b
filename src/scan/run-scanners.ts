import { type Clock, withDeadline } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { createBreaker } from './breaker.ts';
import type { ScannerAnswer } from './result.ts';
import { type ScanInput, type Scanner, ScannerFault, type ScannerFinding } from './scanner.ts';

interface RunnerDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly scanners: readonly Scanner[];
}

/** An answer, and whether the scanner should be asked about this message again. */
interface ScanAttempt extends ScannerAnswer {
  readonly again: boolean;
}

/** Asks all scanners about a message, each under its deadline and behind its breaker. */
export function createScannerRunner({ timeoutMs }: { readonly timeoutMs: number }, deps: RunnerDeps) {
  const { clock, metrics } = deps;
  const stopping = new AbortController();
  const asked = deps.scanners.map((scanner) => createOneRunner(scanner, timeoutMs, stopping.signal, deps));
  metrics.gauge('postern_scanner_away', () =>
    asked.map(({ scanner: { name: scanner }, breaker }) => [{ scanner }, Number(breaker.isAway())]),
  );
  return frozen({
    /** Milliseconds until every scanner may be asked; 0: now. */
    delay(): number {
      const now = clock.monotonic();
      return Math.max(0, ...asked.map(({ breaker }) => Math.ceil(breaker.nextAsk(now) - now)));
    },
    /** The names of scanners that do not answer. */
    away: (): readonly string[] => asked.filter(({ breaker }) => breaker.isAway()).map(({ scanner }) => scanner.name),
    /** Undefined if `stop` was called meanwhile. A scanner that is away is left out. */
    async scan(input: ScanInput): Promise<readonly ScanAttempt[] | undefined> {
      const answers = await Promise.all(asked.map(({ ask }) => ask(input)));
      return stopping.signal.aborted ? undefined : answers;
    },
    /** Ends all questions, and closes connections that are kept open. */
    async stop() {
      stopping.abort(new ScannerFault('Postern is stopping'));
      await Promise.all(deps.scanners.map((scanner) => scanner.stop()));
    },
  });
}

function createOneRunner(
  scanner: Scanner,
  timeoutMs: number,
  stopping: AbortSignal,
  { clock, log, metrics }: RunnerDeps,
) {
  const { name } = scanner;
  const breaker = createBreaker();
  const seconds = metrics.histogram('postern_scan_seconds', { scanner: name });
  const count = (result: string) => metrics.counter('postern_scans_total', { scanner: name, result }).add();

  function failed(input: ScanInput, error: unknown, hasGone: boolean): ScanAttempt {
    const reason = error instanceof Error ? error.message || error.name : String(error);
    count('error');
    log.warn('scan.failed', { scanner: name, message: input.id, reason });
    if (hasGone) log.error('scanner.down', { scanner: name, reason });
    return { scanner, finding: undefined, reason: `${name} did not answer`, again: true };
  }

  async function ask(input: ScanInput): Promise<ScanAttempt> {
    const began = clock.monotonic();
    if (breaker.nextAsk(began) > began)
      return { scanner, finding: undefined, reason: `${name} did not answer`, again: true };
    const question = breaker.begin();
    try {
      const finding = await scanInTime(clock, timeoutMs, (late) =>
        scanner.scan(input, AbortSignal.any([late, stopping])),
      );
      if (question.passed()) log.info('scanner.up', { scanner: name });
      seconds.observe((clock.monotonic() - began) / 1000);
      count(resultOf(finding));
      return toScanAttempt(scanner, finding);
    } catch (error) {
      // Our own stop says nothing about the scanner.
      if (stopping.aborted) {
        question.passed();
        return { scanner, finding: undefined, reason: undefined, again: true };
      }
      return failed(input, error, question.failed(clock.monotonic()));
    }
  }

  return { scanner, breaker, ask };
}

/** Runs one scan under its deadline. */
export const scanInTime = (
  clock: Clock,
  ms: number,
  scan: (late: AbortSignal) => Promise<ScannerFinding>,
): Promise<ScannerFinding> => withDeadline(clock, ms, scan, new ScannerFault(`it did not answer within ${ms} ms`));

function toScanAttempt(scanner: Scanner, finding: ScannerFinding): ScanAttempt {
  const { skipped, defers, spam, virus } = finding;
  const saysNothing = spam === undefined && virus === undefined;
  if (skipped !== undefined)
    return { scanner, finding, reason: `${scanner.name} did not look: ${skipped}`, again: false };
  if (defers && saysNothing) return { scanner, finding, reason: `${scanner.name} asked for more time`, again: true };
  return { scanner, finding, reason: undefined, again: false };
}

function resultOf({ skipped, defers, virus, spam }: ScannerFinding): string {
  if (skipped !== undefined) return 'skipped';
  if (virus === 'infected') return 'infected';
  return spam ?? virus ?? (defers ? 'deferred' : 'skipped');
}
