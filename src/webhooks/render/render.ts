import { open } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Histogram } from '../../base/metrics.ts';
import type { Authenticator } from '../../inbound/verdicts/authenticate.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { FaultyTemplate } from '../../mail/faults.ts';
import { withHeader } from '../../mail/header-section.ts';
import { parseMessage, type Scanned, scanMessage } from '../../mail/message.ts';
import { TooLarge } from '../../sending/compose/compose.ts';
import type { Composed, ComposeJob } from '../../sending/types.ts';
import { createFormEncoder, type FormEncoder } from './form.ts';
import type { MailJob, PostJob, ThreadReply } from './handle.ts';
import { type Inbound, type Piece, toEventPieces } from './payload.ts';

interface Deps {
  readonly authenticator: Authenticator;
  readonly log: Log;
  readonly marked: RunMarked;
  readonly parseSeconds: Histogram;
  readonly clock: Clock;
}

type Rendering = Extract<ThreadReply, { kind: 'rendered' }>;
type Content = Inbound['content'];

/** A batch of events came from us and not from a sender. */
const NO_VERDICTS: Verdicts = {
  spf: { result: 'none', detail: '' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'none', policy: null, aligned: false },
  arc: { result: 'none' },
};

/**
 * Renders one job after another as far as the processor is concerned; while one waits for the DNS, others go on.
 * Verdicts come before parsing, so that nothing parsed is kept in memory meanwhile. Throws when the disk fails.
 */
export function createRender({
  authenticator,
  log,
  marked,
  parseSeconds,
  clock,
}: Deps): (job: PostJob) => Promise<Rendering> {
  const fileLane = createLane();
  const withFile = createLoan();
  const encoder = createFormEncoder();

  async function timed<T>(work: () => Promise<T>): Promise<T> {
    const began = clock.monotonic();
    const done = await work();
    parseSeconds.observe((clock.monotonic() - began) / 1000);
    return done;
  }

  async function withRaw<T>(source: PostJob['source'], work: (raw: Buffer) => Promise<T>): Promise<T> {
    if ('path' in source) return withFile(source.path, work);
    return work(Buffer.from(source.bytes.buffer, source.bytes.byteOffset, source.bytes.byteLength));
  }

  async function scan(job: PostJob): Promise<Scanned> {
    const scanned = await marked(job.number, () => withRaw(job.source, async (raw) => scanMessage(withHeader(raw))));
    if (scanned.breach !== undefined)
      log.warn('message.parse_failed', { message: job.message.id, reason: scanned.breach });
    return scanned;
  }

  async function parse(job: PostJob, raw: Buffer, scanned: Scanned): Promise<Content> {
    if (scanned.breach !== undefined) return { parseError: scanned.breach };
    try {
      return { parsed: await marked(job.number, () => timed(() => parseMessage(withHeader(raw), scanned.root))) };
    } catch (error) {
      const reason = 'the parser failed';
      log.warn('message.parse_failed', { message: job.message.id, reason, error });
      return { parseError: reason };
    }
  }

  return async (job) => {
    if (job.isBatch)
      return withRaw(job.source, async (raw) => ({
        kind: 'rendered',
        number: job.number,
        ...(await encode(encoder, job, [raw.toString()])),
        verdicts: NO_VERDICTS,
        parseError: null,
      }));
    const scanned = job.parseError === null ? await scan(job) : { breach: job.parseError };
    // Of a message that no parser may see as well: what reads headers there takes any, and a sender must not get rid of a verdict by a thousand parts.
    const verdicts = job.message.verdicts ?? (await authenticator.authenticate(job.source, job.message.envelope));
    const finish = async (raw: Buffer): Promise<Rendering> => {
      const content = await parse(job, raw, scanned);
      const parseError = 'parseError' in content ? content.parseError : null;
      const {
        message,
        delivery: { recipient },
      } = job;
      const inbound = { message, recipient, raw, root: scanned.root, verdicts, content };
      return {
        kind: 'rendered',
        number: job.number,
        ...(await encode(encoder, job, toEventPieces(inbound))),
        verdicts,
        parseError,
      };
    };
    return 'bytes' in job.source ? withRaw(job.source, finish) : fileLane(() => withRaw(job.source, finish));
  };
}

async function encode(
  encoder: FormEncoder,
  job: PostJob,
  pieces: Iterable<Piece>,
): Promise<Pick<Rendering, 'body' | 'headers'>> {
  const signing = { keys: job.keys, url: job.delivery.url, deliveryId: job.delivery.id, at: job.at };
  if ('bytes' in job.source) {
    const { bytes, headers } = encoder.toBytes(pieces, signing);
    return { body: { kind: 'bytes', bytes }, headers };
  }
  const { size, headers } = await encoder.toFile(pieces, signing, job.formPath);
  return { body: { kind: 'file', path: job.formPath, size }, headers };
}

interface ComposingDeps {
  readonly marked: RunMarked;
  /** Throws TooLarge for what no server would take, FaultyTemplate for what cannot be merged. */
  readonly compose: (job: ComposeJob) => Promise<Composed>;
}

type Composing = Extract<ThreadReply, { kind: 'composed' | 'refused' }>;

/** Composes mail going out. Throws when the disk fails. */
export function createComposing({ marked, compose }: ComposingDeps): (job: MailJob) => Promise<Composing> {
  return async ({ number, compose: job }) => {
    try {
      const { bytes, ...rest } = await marked(number, () => compose(job));
      return { kind: 'composed', number, composed: { bytes: toOwned(bytes), ...rest } };
    } catch (error) {
      if (isOfTheSystem(error)) throw error;
      const faulty = error instanceof FaultyTemplate;
      const reason = error instanceof Error ? error.message : String(error);
      return {
        kind: 'refused',
        number,
        reason: faulty ? `faulty template: ${reason}` : reason,
        final: faulty || error instanceof TooLarge,
      };
    }
  };
}

/** What is handed over to another thread must not share its memory with anything else. */
function toOwned(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

/** Files that cannot be read are no fault of the message. */
function isOfTheSystem(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error;
}

/** Runs one thing after another. */
export type RunInTurn = <T>(work: () => Promise<T>) => Promise<T>;

export function createLane(): RunInTurn {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };
}

/** Runs what a message may hang or break, one after another and under the number of its job. */
export type RunMarked = <T>(number: number, work: () => Promise<T>) => Promise<T>;

/** `parsing` is told the number of a job while it is at work, and 0 after. */
export function createMarked(parsing: (number: number) => void): RunMarked {
  const inTurn = createLane();
  return (number, work) =>
    inTurn(async () => {
      parsing(number);
      try {
        return await work();
      } finally {
        parsing(0);
      }
    });
}

/** Lends the bytes of a file to `work`; they are gone when it is done. Throws when the file cannot be read. */
export type WithFile = <T>(path: string, work: (bytes: Buffer) => Promise<T>) => Promise<T>;

// More than this is not kept: such messages are rare, and the memory would be missed more often than the time.
const MOST_KEPT = 16 * 1024 * 1024;

/**
 * Reads one file after another into the same memory. With memory of its own for each, a thread held several large messages
 * that nobody needed, and the collector of garbage, woken by each of them, marked the whole heap.
 */
export function createLoan(): WithFile {
  let kept: ArrayBuffer | undefined;

  function take(size: number): ArrayBuffer {
    const memory = kept && kept.byteLength >= size ? kept : new ArrayBuffer(size);
    if (memory === kept) kept = undefined;
    return memory;
  }

  /** The larger one is kept, the other given back now and not when the collector finds it. */
  function give(memory: ArrayBuffer): void {
    const better = memory.byteLength <= MOST_KEPT && memory.byteLength > (kept?.byteLength ?? 0);
    const spare = better ? kept : memory;
    if (better) kept = memory;
    spare?.transfer(0);
  }

  async function read(path: string): Promise<{ readonly memory: ArrayBuffer; readonly size: number }> {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      const memory = take(size);
      const bytes = new Uint8Array(memory);
      for (let at = 0; at < size; ) {
        const { bytesRead } = await file.read(bytes, at, size - at, at);
        if (bytesRead === 0) throw new Error(`${path} ends too early`);
        at += bytesRead;
      }
      return { memory, size };
    } finally {
      await file.close();
    }
  }

  return async (path, work) => {
    const { memory, size } = await read(path);
    try {
      return await work(Buffer.from(memory, 0, size));
    } finally {
      give(memory);
    }
  };
}
