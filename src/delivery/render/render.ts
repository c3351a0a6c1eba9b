import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Histogram } from '../../base/metrics.ts';
import type { Authenticator } from '../../inbound/authenticate.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { withHeader } from '../../mail/headless.ts';
import { parseMessage, type Scanned, scanMessage } from '../../mail/message.ts';
import { createFormEncoder, type FormEncoder } from './form.ts';
import { createLane, type RunMarked } from './lane.ts';
import { createLoan } from './loan.ts';
import { type Inbound, toEventPieces } from './payload.ts';
import type { Piece } from './pieces.ts';
import type { PostJob, ThreadReply } from './protocol.ts';

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
