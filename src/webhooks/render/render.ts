import { open } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Histogram } from '../../base/metrics.ts';
import { createTurn } from '../../base/turns.ts';
import type { Guarded, Task } from '../../base/worker-tasks.ts';
import type { Authenticator } from '../../inbound/verdicts/authenticate.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { withHeader } from '../../mail/header-section.ts';
import { parseMessage, type Scanned, scanMessage } from '../../mail/message.ts';
import type { Body } from '../../queue/delivery.ts';
import type { Rendered } from '../types.ts';
import { createFormEncoder, type FormEncoder } from './form.ts';
import { type Inbound, type Piece, toEventPieces } from './payload.ts';
import { PARSER_FAILED, type RenderInput } from './renderer.ts';

interface Deps {
  readonly authenticator: Authenticator;
  readonly log: Log;
  readonly parseSeconds: Histogram;
  readonly clock: Clock;
}

type Content = Inbound['content'];

/** A batch of events came from us and not from a sender. */
const NO_VERDICTS: Verdicts = {
  spf: { result: 'none', detail: '' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'none', policy: null, aligned: false },
  arc: { result: 'none' },
};

/**
 * What the render thread does with a message or a batch of events. One is parsed after the other; while one waits for
 * the DNS, others go on. Verdicts come before parsing, so that nothing parsed is kept in memory meanwhile. Throws when
 * the disk fails.
 */
export function createRenderTask({ authenticator, log, parseSeconds, clock }: Deps): Task<RenderInput, Rendered> {
  const fileTurn = createTurn();
  const withFile = createLoan();
  const encoder = createFormEncoder();

  async function withRaw<T>(body: Body, work: (raw: Buffer) => Promise<T>): Promise<T> {
    if (body.kind === 'blob') return withFile(body.path, work);
    return work(Buffer.from(body.bytes.buffer, body.bytes.byteOffset, body.bytes.byteLength));
  }

  async function scan({ message, parseError }: RenderInput, guarded: Guarded, raw: Buffer): Promise<Scanned> {
    if (parseError !== null) return { breach: parseError };
    const scanned = await guarded(async () => scanMessage(withHeader(raw)));
    if (scanned.breach !== undefined) log.warn('message.parse_failed', { message: message.id, reason: scanned.breach });
    return scanned;
  }

  async function timed<T>(work: () => Promise<T>): Promise<T> {
    const began = clock.monotonic();
    const done = await work();
    parseSeconds.observe((clock.monotonic() - began) / 1000);
    return done;
  }

  async function parse(job: RenderInput, guarded: Guarded, raw: Buffer, scanned: Scanned): Promise<Content> {
    if (scanned.breach !== undefined) return { parseError: scanned.breach };
    try {
      return { parsed: await guarded(() => timed(() => parseMessage(withHeader(raw), scanned.root))) };
    } catch (error) {
      log.warn('message.parse_failed', { message: job.message.id, reason: PARSER_FAILED, error });
      return { parseError: PARSER_FAILED };
    }
  }

  async function renderMessage(job: RenderInput, guarded: Guarded): Promise<Rendered> {
    const { message, body, recipient } = job;
    // Of a message that no parser may see as well: what reads headers there takes any, and a sender must not get rid of
    // a verdict by a thousand parts.
    const verdicts = message.verdicts ?? (await authenticator.authenticate(body, message.envelope));
    const finish = async (raw: Buffer): Promise<Rendered> => {
      const scanned = await scan(job, guarded, raw);
      const content = await parse(job, guarded, raw, scanned);
      const parseError = 'parseError' in content ? content.parseError : null;
      const pieces = toEventPieces({ message, recipient, raw, root: scanned.root, verdicts, content });
      return { ...(await encode(encoder, job, pieces)), verdicts, parseError };
    };
    return body.kind === 'inline' ? withRaw(body, finish) : fileTurn(() => withRaw(body, finish));
  }

  return async (job, guarded) => {
    const rendered = job.isBatch
      ? await withRaw(job.body, async (raw) => ({
          ...(await encode(encoder, job, [raw.toString()])),
          verdicts: NO_VERDICTS,
          parseError: null,
        }))
      : await renderMessage(job, guarded);
    return { value: rendered, transfer: rendered.body.kind === 'bytes' ? [toBuffer(rendered.body.bytes)] : [] };
  };
}

function toBuffer({ buffer }: Uint8Array): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  throw new TypeError('a form is in memory of its own');
}

/**
 * Bytes of the form of one large message, and of about all of them together: what is more goes to files, because
 * endpoints may be slow. A file costs half as much again as making the form.
 */
const LARGEST_IN_MEMORY = 4 * 1024 * 1024;
const MOST_IN_MEMORY = 32 * 1024 * 1024;

async function encode(
  encoder: FormEncoder,
  { body, keys, url, deliveryId, at, formPlace }: RenderInput,
  pieces: Iterable<Piece>,
): Promise<Pick<Rendered, 'body' | 'headers'>> {
  const signing = { keys, url, deliveryId, at };
  if (body.kind === 'inline' || formPlace === null) {
    const { bytes, headers } = encoder.toBytes(pieces, signing);
    return { body: { kind: 'bytes', bytes }, headers };
  }
  const room = Math.min(LARGEST_IN_MEMORY, MOST_IN_MEMORY - Atomics.load(formPlace.held, 0));
  // raw_msg is the message once, and its files are most of it again: what will not fit is not begun in memory.
  const most = 2 * body.size > room ? 0 : room;
  return encoder.toBody(pieces, signing, { path: formPlace.path, most });
}

/** Lends the bytes of a file to `work`; they are gone when it is done. Throws when the file cannot be read. */
type WithFile = <T>(path: string, work: (bytes: Buffer) => Promise<T>) => Promise<T>;

// More than this is not kept: such messages are rare, and the memory would be missed more often than the time.
const MOST_KEPT = 16 * 1024 * 1024;

/**
 * Reads one file after another into the same memory. With memory of its own for each, a thread held several large
 * messages that nobody needed, and the collector of garbage, woken by each of them, marked the whole heap.
 */
function createLoan(): WithFile {
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
