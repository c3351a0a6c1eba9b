import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bytes, freeBytes, sizeOf, toTransfer } from '../../base/bytes.ts';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { type PooledTask, TaskBroken } from '../../base/worker-pool.ts';
import type { Packed } from '../../base/worker-tasks.ts';
import { factsOf, MANDRILL, type PostStyle } from '../../inbound/formats.ts';
import type { Match } from '../../inbound/types.ts';
import { toMailDate, traceLine } from '../../mail/envelope.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { type LinkedFiles, type LinkPlace, NOBODY } from '../linked-files.ts';
import type {
  EventRenderer,
  Rendered,
  RenderedShared,
  Renderer,
  RenderJob,
  RenderPart,
  SharedRenderJob,
} from '../types.ts';
import { createFormRoom } from './form-room.ts';

/** The input of the task on the thread (render.ts). */
export interface RenderInput extends SharedRenderJob {
  /** Null if the body is in memory: then the form is too. */
  readonly formPlace: FormPlace | null;
  /** The body is a JSON array of events, sent unchanged. */
  readonly isBatch: boolean;
  /** The event itself as JSON, unsigned. */
  readonly asJson: boolean;
  /** If set, do not parse the message: deliver it raw, for this reason. */
  readonly parseError: string | null;
  readonly style: PostStyle;
  /** Where attachments go that are not in the post; undefined if all are, or if they are only named. */
  readonly links: LinkPlace | undefined;
}

/** The file for the form of a large message, and the limit that decides whether it is used. */
interface FormPlace {
  /** The file to use if memory has no room for the form. */
  readonly path: string;
  /** One number, shared by all threads: the bytes of such forms in memory. */
  readonly held: Int32Array;
}

interface RendererDeps {
  /** Runs the render task on a thread. */
  readonly run: PooledTask<RenderInput, RenderedShared>;
  /** Where attachments go whose receiver gets links. Throws `StoreAway`. */
  readonly links: LinkedFiles['place'];
  readonly log: Log;
}

/** The reason for delivering a message raw after it broke the parser. */
export const PARSER_FAILED = 'the parser failed';
const FORM_FILE = /^post-\d+\.form$/;
/** A form is larger than its message: base64 has characters that a form escapes. */
const FORM_TIMES = 1.5;

/**
 * Creates the renderer, which turns queued messages and batches into POSTs on threads. A message that breaks a thread
 * on which it runs alone is rendered raw. Forms of large messages that do not fit in memory are files in `tmpDir`.
 */
export function createRenderer(
  { tmpDir, mostFormBytes }: { readonly tmpDir: string; readonly mostFormBytes: number },
  { run, links, log }: RendererDeps,
): EventRenderer {
  const swept = sweep(tmpDir);
  swept.catch(() => undefined); // every render rejects with it
  let forms = 0;
  const held = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const counted = new Map<Bytes, number>();
  const room = createFormRoom(mostFormBytes);
  /** What gives back the room of a form, by its path. */
  const taken = new Map<string, () => void>();

  function hold(body: Bytes): void {
    if (body.kind !== 'memory') return;
    counted.set(body, body.bytes.length);
    Atomics.add(held, 0, body.bytes.length);
  }
  async function remove(path: string): Promise<void> {
    try {
      await rm(path, { force: true });
    } finally {
      taken.get(path)?.();
      taken.delete(path);
    }
  }
  function release(body: Bytes): void {
    Atomics.sub(held, 0, counted.get(body) ?? 0);
    counted.delete(body);
  }

  /** Renders with room for the links that the attachments of these bodies may become. */
  async function withRoom(
    { style, account = NOBODY }: Pick<RenderJob, 'style' | 'account'>,
    bodies: readonly Bytes[],
    render: (place: LinkPlace | undefined) => Promise<RenderedShared>,
  ): Promise<RenderedShared> {
    if (!style || !hasLinks(style)) return render(undefined);
    const { place, end } = await links(
      account,
      bodies.map(sizeOf).reduce((sum, size) => sum + size, 0),
    );
    let linked = 0;
    try {
      const rendered = await render(place);
      linked = rendered.linked;
      return rendered;
    } finally {
      end(linked);
    }
  }

  async function renderOnThread(job: RenderJob, path: string, asJson: boolean): Promise<Rendered> {
    const rendered = toRendered(await withRoom(job, [job.body], (place) => tryOnThread(job, place, path, asJson)));
    if (job.body.kind === 'file') hold(rendered.body);
    return rendered;
  }

  async function tryOnThread(
    job: RenderJob,
    place: LinkPlace | undefined,
    path: string,
    asJson: boolean,
  ): Promise<RenderedShared> {
    try {
      return await run(() => pack(job, { path, held }, place, { asJson, parseError: null }));
    } catch (error) {
      if (!(error instanceof TaskBroken)) throw error;
      const reason = toParseError(error);
      log.warn('message.parse_failed', { message: job.message.id, reason });
      return await run(() => pack(job, { path, held }, undefined, { asJson, parseError: reason }), true);
    }
  }

  async function renderOne(job: RenderJob, asJson: boolean): Promise<Rendered> {
    await swept;
    const formPath = join(tmpDir, `post-${++forms}.form`);
    const give =
      job.body.kind === 'file' ? await room.take(job.account ?? NOBODY, FORM_TIMES * job.body.size) : () => {};
    try {
      const rendered = await renderOnThread(job, formPath, asJson);
      if (rendered.body.kind === 'file') taken.set(formPath, give);
      else give();
      return rendered;
    } catch (error) {
      give();
      await rm(formPath, { force: true }).catch(() => undefined);
      if (error instanceof StoreAway) throw error;
      const reason = error instanceof TaskBroken ? toParseError(error) : toReason(error);
      throw new Error(`rendering failed: ${reason}`, { cause: error });
    } finally {
      freeBytes(job.body);
    }
  }

  return frozen({
    render: (job) => renderOne(job, false),
    async renderJson({ delivery: { id, recipient }, ...part }, style) {
      const unsigned = { keys: [], at: 0, style, delivery: { id, recipient, url: '' } };
      return (await renderOne({ ...part, ...unsigned }, true)).body;
    },
    async renderShared(job) {
      await swept;
      try {
        const bodies = job.parts.map(({ body }) => body);
        return await withRoom(job, bodies, (place) => run(() => packShared(job, place)));
      } catch (error) {
        if (error instanceof TaskBroken) return undefined;
        if (error instanceof StoreAway) throw error;
        throw new Error(`rendering failed: ${toReason(error)}`, { cause: error });
      } finally {
        for (const { body } of job.parts) freeBytes(body);
      }
    },
    discard(body) {
      if (body.kind === 'file') return remove(body.path);
      release(body);
      return undefined;
    },
  });
}

/** Why a message that broke a thread is not parsed. */
export function toParseError({ kind, message }: TaskBroken): string {
  return kind === 'error' ? PARSER_FAILED : `parsing ${message}`;
}

function toReason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function toRendered({ body, headers, parts: [part] }: RenderedShared): Rendered {
  if (!part) throw new TypeError('nothing was rendered');
  return { body, headers, ...part };
}

/** Whether a post in this style may have links. */
const hasLinks = ({ format, attachments }: PostStyle): boolean => attachments === 'link' && !factsOf(format).whole;

function pack(
  job: RenderJob,
  place: FormPlace,
  links: LinkPlace | undefined,
  rest: Pick<RenderInput, 'asJson' | 'parseError'>,
): Packed<RenderInput> {
  const { body, delivery, keys, at } = job;
  const { part, transfer } = packPart(job);
  const formPlace = body.kind === 'file' ? place : null;
  const isBatch = delivery.batch !== undefined;
  const style = job.style ?? MANDRILL;
  return {
    value: { ...rest, url: delivery.url, parts: [part], keys, at, formPlace, isBatch, style, links },
    transfer,
  };
}

function packShared(
  { url, parts, keys, at, style = MANDRILL }: SharedRenderJob,
  links: LinkPlace | undefined,
): Packed<RenderInput> {
  const packed = parts.map(packPart);
  const rest = { url, keys, at, formPlace: null, isBatch: false, asJson: false, parseError: null, style, links };
  return {
    value: { ...rest, parts: packed.map(({ part }) => part) },
    transfer: packed.flatMap(({ transfer }) => transfer),
  };
}

/** Transfers a copy of its bytes; the original is kept for retries and freed after the last. */
export function packPart({ message, body, delivery: { id, recipient }, answers }: RenderPart): {
  readonly part: RenderPart;
  readonly transfer: readonly ArrayBuffer[];
} {
  const { copy, transfer } = toTransfer(body);
  return { part: { message, body: copy, delivery: { id, recipient }, answers }, transfer };
}

/** Creates the folder, and removes files left by an earlier process. */
async function sweep(tmpDir: string): Promise<void> {
  await mkdir(tmpDir, { recursive: true });
  const left = (await readdir(tmpDir)).filter((name) => FORM_FILE.test(name));
  await Promise.all(left.map((name) => rm(join(tmpDir, name), { force: true })));
}

interface SampleRequest {
  readonly address: string;
  readonly match: Match;
  readonly style: PostStyle;
}

/** A post for a sample message. */
export interface Sample {
  readonly type: string;
  /** Mandrill's events or another JSON as it is; other bodies as text. */
  readonly payload: unknown;
}

/** Makes a small sample message to an address, as a route that matched it would get it. */
export type SamplePart = (address: string, matched?: Pick<Match, 'replyData' | 'captures' | 'tags'>) => RenderPart;

export function createSamplePart({
  clock,
  hostname,
}: {
  readonly clock: Clock;
  readonly hostname: string;
}): SamplePart {
  return (recipient, { replyData, captures, tags } = {}) => {
    const receivedAt = clock.now();
    const envelope = {
      mailFrom: 'sender@example.com',
      client: { address: '192.0.2.1', helo: 'mail.example.com', tls: null },
      ...(replyData !== undefined && { replyData: { [recipient]: replyData } }),
      ...(captures && { captures: { [recipient]: captures } }),
      ...(tags && { tags: { [recipient]: tags } }),
    };
    const trace = traceLine({ envelope, protocol: 'ESMTP', hostname, messageId: 'sample', receivedAt, recipient });
    return {
      message: { id: 'sample', receivedAt, envelope, trace, verdicts: SAMPLE_VERDICTS },
      body: { kind: 'memory', bytes: Buffer.from(sampleMessage(recipient, receivedAt)) },
      delivery: { id: 'sample', recipient },
      answers: null,
    };
  };
}

/** Renders a small sample message for a route, and returns what its endpoint would receive. */
export function createSample(deps: {
  renderer: Pick<Renderer, 'render'>;
  samplePart: SamplePart;
}): (request: SampleRequest) => Promise<Sample> {
  const { renderer, samplePart } = deps;
  return async ({ address, match, style }) => {
    const part = samplePart(address, match);
    const rendered = await renderer.render({
      ...part,
      delivery: { ...part.delivery, url: match.url },
      keys: ['sample'],
      at: part.message.receivedAt,
      style,
    });
    if (rendered.body.kind === 'file') throw new Error('the sample must be in memory');
    const type = rendered.headers['Content-Type'] ?? '';
    const text = Buffer.from(rendered.body.bytes).toString();
    if (style.format === 'mandrill')
      return { type, payload: JSON.parse(new URLSearchParams(text).get('mandrill_events') ?? '[]') };
    return { type, payload: type === 'application/json' ? JSON.parse(text) : text };
  };
}

const SAMPLE_VERDICTS = {
  spf: { result: 'pass', detail: 'sender SPF authorized' },
  dkim: { signed: true, valid: true },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
} as const;

function sampleMessage(recipient: string, at: number): string {
  return [
    'From: Sample Sender <sender@example.com>',
    `To: <${recipient}>`,
    'Subject: A sample message',
    `Date: ${toMailDate(at)}`,
    'Message-ID: <sample@example.com>',
    'MIME-Version: 1.0',
    'Content-Type: multipart/mixed; boundary="sample"',
    '',
    '--sample',
    'Content-Type: text/plain; charset=utf-8',
    '',
    'This is what a message looks like to your webhook.',
    '',
    '--sample',
    'Content-Type: text/csv; name="numbers.csv"',
    'Content-Disposition: attachment; filename="numbers.csv"',
    '',
    'a,b',
    '1,2',
    '',
    '--sample--',
    '',
  ].join('\r\n');
}
