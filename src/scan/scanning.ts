import { sizeOf } from '../base/bytes.ts';
import { createBoundedCache } from '../base/cache.ts';
import { type Clock, withTimeout } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Tools } from '../base/tools.ts';
import type { Scan } from '../mail/scan.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import { combineAnswers, unscanned } from './result.ts';
import { createScannerRunner } from './run-scanners.ts';
import type { ScanInput, Scanner } from './scanner.ts';

interface ScanningSettings {
  /** Milliseconds that one scanner has for one message. */
  readonly timeoutMs: number;
  /** Larger messages are not scanned. */
  readonly maxBytes: number;
  /** Milliseconds that a delivery waits for scanners that are away. */
  readonly waitMs: number;
  /** Messages that are scanned at one time. */
  readonly concurrency: number;
}

interface ScanningDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  /** At least one. */
  readonly scanners: readonly Scanner[];
  readonly spool: Pick<Spool, 'scanOf' | 'keepScan'>;
  readonly time: Pick<RunningTime, 'age'>;
}

/** The scan of a message, or when to retry (milliseconds since 1970). */
type ScanOutcome =
  | { readonly scan: Scan; readonly at?: undefined }
  | { readonly scan?: undefined; readonly at: number };

/**
 * The scan of a message before acceptance, or why it must be refused. unscanned: temporarily, because a scanner is away
 * · unwanted: by a scanner.
 */
type PreAcceptanceResult =
  | { readonly scan: Scan; readonly refused?: undefined }
  | { readonly scan?: undefined; readonly refused: 'unscanned' | 'unwanted' };

/** Has each message scanned once, by all scanners at the same time. */
export type Scanning = ReturnType<typeof createScanning>;

const TOO_LARGE = 'the message is larger than scan.max_bytes';
const TOO_BUSY = 'the scanners had no time';
/** Milliseconds until a message whose scan failed is scanned again: the first time, and at most. */
const FIRST_RETRY = 1000;
const LONGEST_RETRY = 5 * 60_000;
/** Messages whose failed scans are counted. */
const COUNTED = 10_000;
/**
 * Milliseconds that a delivery waits for a running scan before it is put off, and the longest time until it is retried:
 * slow scanners must not count as a slow host, which delays the replies to new mail.
 */
const PATIENCE = 50;
const LONGEST_LOOK = 2000;

export function createScanning(settings: ScanningSettings, deps: ScanningDeps) {
  const { spool, time, clock, log } = deps;
  const runner = createScannerRunner(settings, deps);
  const slots = createSlots(settings.concurrency, clock);
  const inFlight = new Map<string, Promise<ScanOutcome>>();
  const failures = createBoundedCache<number>({ most: COUNTED });

  const leftOf = (from: number): number => settings.waitMs - time.age(from);

  /** Milliseconds until a delivery should be retried; 0: its message may be scanned now, or can wait no longer. */
  function waitOf(from: number): number {
    const left = leftOf(from);
    const away = runner.delay();
    if (away > 0 && left > 0) return Math.min(away, left);
    const leftForSlot = left + settings.timeoutMs;
    return slots.full() && leftForSlot > 0 ? Math.min(slots.delay(), leftForSlot) : 0;
  }

  /** Retries later each time, so that a message that breaks a scanner does not keep it from all others. */
  function comeBack(id: string, left: number): ScanOutcome {
    const count = failures.get(id) ?? 0;
    failures.set(id, count + 1);
    return { at: clock.now() + Math.min(FIRST_RETRY * 2 ** count, LONGEST_RETRY, left) };
  }

  async function scan(input: ScanInput, from: number): Promise<ScanOutcome> {
    if (sizeOf(input.body) > settings.maxBytes) return keep(input, unscanned(TOO_LARGE));
    const wait = waitOf(from);
    if (wait > 0) return { at: clock.now() + wait };
    if (slots.full()) return keep(input, unscanned(TOO_BUSY));
    const answers = await slots.hold(() => runner.scan(input));
    if (!answers) return { at: clock.now() };
    if (answers.some(({ again }) => again) && leftOf(from) > 0) return comeBack(input.id, leftOf(from));
    return keep(input, combineAnswers(answers));
  }

  async function keep({ id }: ScanInput, scan: Scan): Promise<ScanOutcome> {
    failures.delete(id);
    if (scan.reason !== null) log.warn('scan.unknown', { message: id, reason: scan.reason });
    return { scan: await spool.keepScan(id, scan) };
  }

  /** Begins a scan that continues when its delivery no longer waits for it. */
  function begin(input: ScanInput, from: number): Promise<ScanOutcome> {
    const begun = scan(input, from).finally(() => inFlight.delete(input.id));
    begun.catch(() => {}); // the next delivery begins another one
    inFlight.set(input.id, begun);
    return begun;
  }

  /** Undefined if a scanner is away, or all are busy for longer than one message may take. */
  async function askNow(input: ScanInput) {
    if (!(await slots.free(settings.timeoutMs)) || runner.delay() > 0) return undefined;
    return slots.hold(() => runner.scan(input));
  }

  /** When to retry a delivery whose message is being scanned. */
  const soon = (): number => clock.now() + Math.min(Math.max(slots.average() / 2, PATIENCE), LONGEST_LOOK);

  return frozen({
    /**
     * When to retry a delivery that waits since `from`, because a scanner is away or all are busy; undefined if its
     * message may be scanned now, or was. Reads no body.
     */
    async turn({ messageId }: Pick<Delivery, 'messageId'>, from: number): Promise<number | undefined> {
      if (inFlight.has(messageId)) return soon();
      const wait = waitOf(from);
      return wait === 0 || (await spool.scanOf(messageId)) ? undefined : clock.now() + wait;
    },
    /**
     * Scans a message, or returns when to retry. `from`: since when its delivery waits. The scanners may still read the
     * body afterwards.
     */
    async of(input: ScanInput, from: number): Promise<ScanOutcome> {
      const scanned = inFlight.get(input.id) ?? begin(input, from);
      return (await withTimeout(clock, PATIENCE, scanned)) ?? { at: soon() };
    },
    /** Why a message that has no scan still waits for one, for people; undefined if it does not. */
    waitsFor(messageId: string): string | undefined {
      const away = runner.away();
      if (away.length > 0) return `${away.join(' and ')} ${away.length === 1 ? 'does' : 'do'} not answer`;
      if (inFlight.has(messageId)) return 'it is being scanned';
      if (failures.get(messageId) !== undefined) return 'it could not be scanned, and is scanned again';
      return slots.full() ? 'all are busy' : undefined;
    },
    /** As `beforeAcceptance`, but without refusing: undefined if a scanner is away, or all are busy. */
    async now(input: ScanInput): Promise<Scan | undefined> {
      if (sizeOf(input.body) > settings.maxBytes) return unscanned(TOO_LARGE);
      const answers = await askNow(input);
      return !answers || answers.some(({ again }) => again) ? undefined : combineAnswers(answers);
    },
    /** Scans a message before it is accepted. */
    async beforeAcceptance(input: ScanInput): Promise<PreAcceptanceResult> {
      if (sizeOf(input.body) > settings.maxBytes) return { scan: unscanned(TOO_LARGE) };
      const answers = await askNow(input);
      if (answers?.some(({ finding }) => finding?.rejects)) return { refused: 'unwanted' };
      const later = !answers || answers.some(({ again, finding }) => again || finding?.defers);
      return later ? { refused: 'unscanned' } : { scan: combineAnswers(answers) };
    },
    /** Ends all scans and closes connections. */
    async stop() {
      await runner.stop();
      await Promise.allSettled(inFlight.values());
    },
  });
}

/** Weight of the last scan in the average of their times. */
const RECENT = 0.2;

/** The slots for messages that are being scanned. */
function createSlots(most: number, clock: Clock) {
  const waiting = new Set<() => void>();
  let taken = 0;
  /** Average milliseconds that a scan has its slot. */
  let average = 1;
  let lastTurn = 0;
  const full = () => taken >= most;
  const wakeOne = () => {
    const [wake] = waiting;
    wake?.();
  };

  /** Waits for a slot to become free, at most until `until`. */
  const next = (until: number) =>
    new Promise<void>((resolve) => {
      const wake = () => {
        cancel();
        waiting.delete(wake);
        resolve();
      };
      const cancel = clock.after(until - clock.monotonic(), wake);
      waiting.add(wake);
    });

  return {
    full,
    average: () => average,
    /** Milliseconds until a slot should be free; each caller gets a time of its own. */
    delay(): number {
      const now = clock.monotonic();
      lastTurn = Math.max(lastTurn, now) + average / most;
      return Math.max(1, Math.ceil(lastTurn - now));
    },
    /** Waits for a slot, at most this many milliseconds. Returns whether there is one. */
    async free(ms: number): Promise<boolean> {
      const until = clock.monotonic() + ms;
      while (full() && clock.monotonic() < until) await next(until);
      return !full();
    },
    async hold<T>(work: () => Promise<T>): Promise<T> {
      const began = clock.monotonic();
      taken++;
      try {
        return await work();
      } finally {
        taken--;
        average += RECENT * (clock.monotonic() - began - average);
        wakeOne();
      }
    },
  };
}
