import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bytes, freeBytes, sizeOf, toTransfer } from '../../base/bytes.ts';
import type { Clock } from '../../base/clock.ts';
import { errorText } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { type PooledTask, TaskBroken } from '../../base/worker-pool.ts';
import type { Packed } from '../../base/worker-tasks.ts';
import { factsOf, type PostStyle } from '../../inbound/formats.ts';
import type { Match } from '../../inbound/types.ts';
import { toMailDate, traceLine } from '../../mail/addresses/envelope.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { type LinkContext, type LinkedFiles, NO_ACCOUNT } from '../linked-files.ts';
import type { Mail, Post, Renderer, RenderJob } from '../types.ts';
import { createFormRoom } from './form-room.ts';

/** The arguments of the task on the thread (render.ts). `parseError`: do not parse the message, for this reason. */
export type RenderInput = readonly [job: RenderJob, files: RenderFiles, parseError: string | null];

/** Files for content that is not in the POST, or too large for memory. */
interface RenderFiles {
  /** Null if the body is in memory: then the form is too. */
  readonly form: FormFile | null;
  /** Undefined if attachments are in the POST, or only listed. */
  readonly links: LinkContext | undefined;
}

/** The file for the form of a large message, and the limit that decides whether it is used. */
interface FormFile {
  /** The file to use if memory has no room for the form. */
  readonly path: string;
  /** One number, shared by all threads: the bytes of such forms in memory. */
  readonly held: Int32Array;
}

interface RendererDeps {
  /** Runs the render task on a thread. */
  readonly run: PooledTask<RenderInput, Post>;
  /** Reserves space for attachments that become links. Throws `StoreAway`. */
  readonly links: LinkedFiles['reserve'];
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
): Renderer {
  const swept = sweep(tmpDir);
  swept.catch(() => undefined); // every render rejects with it
  let forms = 0;
  const held = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const counted = new Map<Bytes, number>();
  const room = createFormRoom(mostFormBytes);
  /** Functions that release the room of a form, by its path. */
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

  /** Renders with space reserved for the links that attachments may become. */
  async function withRoom(
    { style, account = NO_ACCOUNT, mails }: RenderJob,
    render: (context: LinkContext | undefined) => Promise<Post>,
  ): Promise<Post> {
    if (!hasLinks(style)) return render(undefined);
    const { reserve, end } = await links(
      account,
      mails.reduce((sum, { body }) => sum + sizeOf(body), 0),
    );
    let linked = 0;
    try {
      const post = await render(reserve);
      linked = post.linked;
      return post;
    } finally {
      end(linked);
    }
  }

  async function tryOnThread(job: RenderJob, form: FormFile | null, context: LinkContext | undefined): Promise<Post> {
    try {
      return await run(() => pack(job, { form, links: context }, null));
    } catch (error) {
      if (!(error instanceof TaskBroken)) throw error;
      const reason = toParseError(error);
      log.warn('message.parse_failed', { message: job.mails[0]?.message.id, reason });
      return await run(() => pack(job, { form, links: undefined }, reason), true);
    }
  }

  return frozen({
    async render(job) {
      await swept;
      const [mail] = job.mails;
      if (!mail) throw new TypeError('nothing to render');
      const { body } = mail;
      const path = join(tmpDir, `post-${++forms}.form`);
      const form = body.kind === 'file' ? { path, held } : null;
      const give = body.kind === 'file' ? await room.take(job.account ?? NO_ACCOUNT, FORM_TIMES * body.size) : () => {};
      try {
        const post = await withRoom(job, (context) => tryOnThread(job, form, context));
        if (form) hold(post.body);
        if (post.body.kind === 'file') taken.set(path, give);
        else give();
        return post;
      } catch (error) {
        give();
        await rm(path, { force: true }).catch(() => undefined);
        if (error instanceof StoreAway) throw error;
        const reason = error instanceof TaskBroken ? toParseError(error) : errorText(error);
        throw new Error(`rendering failed: ${reason}`, { cause: error });
      } finally {
        freeBytes(body);
      }
    },
    async renderShared(job) {
      await swept;
      try {
        return await withRoom(job, (context) => run(() => pack(job, { form: null, links: context }, null)));
      } catch (error) {
        if (error instanceof TaskBroken) return undefined;
        if (error instanceof StoreAway) throw error;
        throw new Error(`rendering failed: ${errorText(error)}`, { cause: error });
      } finally {
        for (const { body } of job.mails) freeBytes(body);
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

const hasLinks = ({ format, attachments }: PostStyle): boolean => attachments === 'link' && !factsOf(format).whole;

function pack(job: RenderJob, files: RenderFiles, parseError: string | null): Packed<RenderInput> {
  const packed = job.mails.map(packMail);
  return {
    value: [{ ...job, mails: packed.map(({ mail }) => mail) }, files, parseError],
    transfer: packed.flatMap(({ transfer }) => transfer),
  };
}

/** Transfers a copy of its bytes; the original is kept for retries and freed after the last. */
export function packMail({ message, body, delivery: { id, recipient, batch }, answers }: Mail): {
  readonly mail: Mail;
  readonly transfer: readonly ArrayBuffer[];
} {
  const { copy, transfer } = toTransfer(body);
  return { mail: { message, body: copy, delivery: { id, recipient, batch }, answers }, transfer };
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

/** The post of a sample message. */
export interface Sample {
  readonly type: string;
  /** The JSON of Mandrill's events or another format; other bodies as text. */
  readonly payload: unknown;
}

/** Makes a small sample message to an address, as a route that matched it would get it. */
export type SampleMail = (address: string, matched?: Pick<Match, 'replyData' | 'captures' | 'tags'>) => Mail;

export function createSampleMail({
  clock,
  hostname,
}: {
  readonly clock: Clock;
  readonly hostname: string;
}): SampleMail {
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
  sampleMail: SampleMail;
}): (request: SampleRequest) => Promise<Sample> {
  const { renderer, sampleMail } = deps;
  return async ({ address, match, style }) => {
    const mail = sampleMail(address, match);
    const { body, headers } = await renderer.render({
      mails: [mail],
      url: match.url,
      keys: ['sample'],
      at: mail.message.receivedAt,
      style,
    });
    if (body.kind === 'file') throw new Error('the sample must be in memory');
    const type = headers['Content-Type'] ?? '';
    const text = Buffer.from(body.bytes).toString();
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
