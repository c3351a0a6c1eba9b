import { isUtf8 } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { sharedPostId } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import type { Histogram } from '../../base/metrics.ts';
import type { Guarded, ThreadTask } from '../../base/worker-tasks.ts';
import { factsOf } from '../../inbound/formats.ts';
import type { Authenticator } from '../../inbound/verdicts/authenticate.ts';
import { authorOf, authorOfMessage } from '../../mail/author.ts';
import { automatedFor } from '../../mail/automated.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { factsOfMessage, type MessageFacts } from '../../mail/facts/facts.ts';
import { toFileName } from '../../mail/filename.ts';
import { readFields, withHeader } from '../../mail/header-section.ts';
import { type FilePart, parseMessage, type Scanned, scanMessage } from '../../mail/message.ts';
import { toSummary } from '../../mail/summary.ts';
import { threadIdOf } from '../../mail/thread.ts';
import { senderAuthOf } from '../../mail/trust.ts';
import type { Message } from '../../queue/delivery.ts';
import { linkTo } from '../linked-files.ts';
import type { Findings, RenderedShared, RenderPart } from '../types.ts';
import { createFormEncoder, type FormEncoder } from './form.ts';
import { WRITERS } from './formats/index.ts';
import { toMail, type Written } from './formats/mail.ts';
import { eventPieces, type Inbound, toEventPieces } from './payload.ts';
import { decodedPieces, inside, type Piece, type Plain, sizeOfContent } from './pieces.ts';
import type { Progress } from './progress.ts';
import type { WithRaw } from './raw-bytes.ts';
import { PARSER_FAILED, type RenderInput } from './renderer.ts';

interface Deps {
  readonly authenticator: Authenticator;
  readonly progress: Progress;
  readonly log: Log;
  readonly parseSeconds: Histogram;
  readonly clock: Clock;
  readonly withRaw: WithRaw;
  /** Our host name. */
  readonly hostname: string;
  /** The hosts that receive the mail of our domains beside us. */
  readonly mxHosts: readonly string[];
}

type Content = Inbound['content'];

/** A message with its verdicts, before it is parsed. */
interface Authenticated {
  readonly part: RenderPart;
  readonly verdicts: Verdicts;
}

/** For a batch of events, which Postern itself created. */
const NO_FINDINGS: Findings = {
  verdicts: {
    spf: { result: 'none', detail: '' },
    dkim: { signed: false, valid: false },
    dmarc: { result: 'none', policy: null, aligned: false },
    arc: { result: 'none' },
  },
  parseError: null,
  summary: null,
};

/**
 * Creates the task of the render thread: renders a message, several that share a POST, or a batch of events. Parses one
 * message at a time; others continue while one waits for DNS. Computes the verdicts before parsing, so that no parsed
 * message is in memory meanwhile. Throws if the disk fails.
 */
export function createRenderTask({
  authenticator,
  progress,
  log,
  parseSeconds,
  clock,
  withRaw,
  hostname,
  mxHosts,
}: Deps): ThreadTask<RenderInput, RenderedShared> {
  const encoder = createFormEncoder();

  /**
   * Also authenticates messages that must not be parsed: its header reader accepts any message, and a sender must not
   * be able to evade verdicts with a thousand parts.
   */
  async function authenticate(part: RenderPart): Promise<Authenticated> {
    const { message, body, delivery } = part;
    const open = progress.begin(delivery.id);
    const verdicts = message.verdicts ?? (await authenticator.authenticate(body, message.envelope, open));
    progress.parse(delivery.id);
    return { part, verdicts };
  }

  async function scan(message: Message, parseError: string | null, guarded: Guarded, raw: Buffer): Promise<Scanned> {
    if (parseError !== null) return { breach: parseError };
    const scanned = await guarded(async () => scanMessage(withHeader(raw)));
    if (scanned.breach !== undefined) log.warn('message.parse_failed', { message: message.id, reason: scanned.breach });
    return scanned;
  }

  function timed<T>(work: () => T): T {
    const began = clock.monotonic();
    const done = work();
    parseSeconds.observe((clock.monotonic() - began) / 1000);
    return done;
  }

  async function parse(message: Message, guarded: Guarded, raw: Buffer, scanned: Scanned): Promise<Content> {
    if (scanned.breach !== undefined) return { parseError: scanned.breach };
    try {
      return { parsed: await guarded(async () => timed(() => parseMessage(withHeader(raw), scanned.root))) };
    } catch (error) {
      log.warn('message.parse_failed', { message: message.id, reason: PARSER_FAILED, error });
      return { parseError: PARSER_FAILED };
    }
  }

  /** Undefined if the style does not ask for facts. A fault in them leaves the message as it is. */
  async function findFacts(
    { style }: RenderInput,
    message: Message,
    { content, author }: Pick<Inbound, 'content' | 'author'>,
    guarded: Guarded,
  ): Promise<MessageFacts | null | undefined> {
    if (!style.facts || factsOf(style.format).whole) return undefined;
    if ('parseError' in content) return null;
    try {
      return await guarded(async () => factsOfMessage(content.parsed, author.mailbox?.name ?? null));
    } catch (error) {
      log.warn('message.parse_failed', { message: message.id, reason: 'its facts were not found', error });
      return null;
    }
  }

  async function toEvent(
    { part: { message, delivery, answers: answered }, verdicts }: Authenticated,
    job: RenderInput,
    guarded: Guarded,
    raw: Buffer,
  ): Promise<Inbound> {
    const scanned = await scan(message, job.parseError, guarded, raw);
    const content = await parse(message, guarded, raw, scanned);
    const { mailFrom } = message.envelope;
    const author = 'parsed' in content ? authorOf(content.parsed.fields, mailFrom) : authorOfMessage(raw, mailFrom);
    const senderAuth = senderAuthOf(verdicts, author);
    const fields = 'parsed' in content ? content.parsed.fields : readFields(raw);
    const automated = automatedFor(message.envelope, delivery.recipient, { fields, author: author.mailbox });
    const facts = await findFacts(job, message, { content, author }, guarded);
    const thread = answered?.thread ?? threadIdOf(fields);
    const answers = answered === null ? null : answered?.record;
    const found = { verdicts, author, senderAuth, automated, thread, answers, content, facts };
    const rest = { raw, root: scanned.root, ...found, hostname, mxHosts };
    return { id: delivery.id, message, recipient: delivery.recipient, ...rest };
  }

  async function renderMessage(job: RenderInput, part: RenderPart, guarded: Guarded): Promise<RenderedShared> {
    const one = await authenticate(part);
    return withRaw(part.body, async (raw) => {
      const event = await toEvent(one, job, guarded, raw);
      try {
        return await post(job, [event]);
      } catch (error) {
        if ('parseError' in event.content || isOfSystem(error)) throw error;
        log.warn('message.parse_failed', { message: part.message.id, reason: PARSER_FAILED, error });
        return post(job, [{ ...event, content: { parseError: PARSER_FAILED }, facts: event.facts && null }]);
      }
    });
  }

  async function renderShared(job: RenderInput, guarded: Guarded): Promise<RenderedShared> {
    const events: (Inbound | undefined)[] = [];
    for (const one of await whatIsReady(job.parts.map(authenticate), clock))
      events.push(one && (await withRaw(one.part.body, (raw) => toEvent(one, job, guarded, raw))));
    return post(job, events);
  }

  async function post(job: RenderInput, events: readonly (Inbound | undefined)[]): Promise<RenderedShared> {
    const posted: Inbound[] = [];
    let linked = 0;
    for (const event of events) {
      if (!event) continue;
      const { event: one, added } = await withLinks(event, job, linked);
      posted.push(one);
      linked += added;
    }
    const [first, second] = posted;
    const id = first && !second ? first.id : sharedPostId(posted.map((event) => event.id));
    const { format } = job.style;
    // It would hold what the links are for. With several messages in a post, each is without it.
    const raw = job.style.raw && !posted.some(isElsewhere);
    if (format !== 'mandrill' && first) {
      const written = WRITERS[format](toMail(first, { withRaw: raw, key: job.keys[0] ?? '', at: job.at }));
      return { ...(await encodePost(encoder, job, id, written)), parts: events.map(toFindings), linked };
    }
    const pieces = job.asJson && first ? eventPieces(first, '', raw) : toEventPieces(posted, raw);
    return { ...(await encode(encoder, job, id, pieces)), parts: events.map(toFindings), linked };
  }

  async function renderEvents(job: RenderInput, { body, delivery: { id } }: RenderPart): Promise<RenderedShared> {
    return withRaw(body, async (raw) => {
      const post = await encode(encoder, job, id, [raw.toString()]);
      return { ...post, parts: [NO_FINDINGS], linked: 0 };
    });
  }

  return async (job, guarded) => {
    const [part] = job.parts;
    if (!part) throw new TypeError('nothing to render');
    const several = job.parts.length > 1;
    try {
      const rendered = await (job.isBatch
        ? renderEvents(job, part)
        : several
          ? renderShared(job, guarded)
          : renderMessage(job, part, guarded));
      return { value: rendered, transfer: rendered.body.kind === 'bytes' ? [toBuffer(rendered.body.bytes)] : [] };
    } finally {
      for (const { delivery } of job.parts) progress.end(delivery.id);
    }
  };
}

/**
 * The message without the files whose content the receiver does not get in the post, and the bytes that they added to
 * those behind links. `linked`: the bytes of other messages in the post. A file that has no room stays in the post.
 */
async function withLinks(
  event: Inbound,
  { style, links }: RenderInput,
  linked: number,
): Promise<{ readonly event: Inbound; readonly added: number }> {
  const { attachments, linkOver } = style;
  if (!('parsed' in event.content) || (attachments !== 'none' && !links)) return { event, added: 0 };
  const { parsed } = event.content;
  const files: FilePart[] = [];
  let added = 0;
  for (const file of parsed.files) {
    if (sizeOfContent(file.content) <= linkOver) files.push(file);
    else if (!links) files.push({ ...file, link: null });
    else {
      const place = { ...links, room: links.room - linked - added };
      const link = await linkTo(place, toFileName(file.name), () => bytesOf(file));
      files.push(link ? { ...file, link: link.url } : file);
      added += link?.added ?? 0;
    }
  }
  return { event: { ...event, content: { parsed: { ...parsed, files } } }, added };
}

function* bytesOf({ content }: FilePart): Iterable<Uint8Array> {
  for (const { bytes } of decodedPieces(content)) yield bytes;
}

const isElsewhere = ({ content }: Inbound): boolean =>
  'parsed' in content && content.parsed.files.some(({ link }) => link !== undefined);

/** Whether the disk failed, and not what a sender wrote. */
const isOfSystem = (error: unknown): boolean => error instanceof Error && 'syscall' in error;

function toFindings(event: Inbound | undefined): Findings | undefined {
  if (!event) return undefined;
  const { verdicts, content, thread } = event;
  if ('parseError' in content) return { verdicts, parseError: content.parseError, summary: null };
  return { verdicts, parseError: null, summary: { ...toSummary(content.parsed), thread } };
}

/** Milliseconds to wait for the next message of a shared POST: a sender's name servers may be slow on purpose. */
const COMPANY_WAITS = 1000;

/** Waits for the first result, then for more while they follow within COMPANY_WAITS. Undefined for those too late. */
function whatIsReady<T>(works: readonly Promise<T>[], clock: Clock): Promise<readonly (T | undefined)[]> {
  const ready: (T | undefined)[] = works.map(() => undefined);
  let left = works.length;
  let cancel = (): void => {};
  return new Promise((resolve, reject) => {
    const take = (i: number, value: T): void => {
      ready[i] = value;
      cancel();
      if (--left === 0) resolve(ready);
      else cancel = clock.after(COMPANY_WAITS, () => resolve([...ready]));
    };
    for (const [i, work] of works.entries()) work.then((value) => take(i, value), reject);
  });
}

function toBuffer({ buffer }: Uint8Array): ArrayBuffer {
  if (buffer instanceof ArrayBuffer) return buffer;
  throw new TypeError('a form must have its own buffer');
}

/**
 * Maximum bytes in memory for the form of one large message, and approximately for all such forms. Larger forms go to
 * files, because endpoints may be slow. A file adds half of the cost of encoding the form.
 */
const LARGEST_IN_MEMORY = 4 * 1024 * 1024;
const MOST_IN_MEMORY = 32 * 1024 * 1024;

function placeOf({ parts, formPlace }: RenderInput) {
  const [body] = parts.flatMap((part) => (part.body.kind === 'blob' ? [part.body] : []));
  if (!body || formPlace === null) return undefined;
  const room = Math.min(LARGEST_IN_MEMORY, MOST_IN_MEMORY - Atomics.load(formPlace.held, 0));
  // The form has the message in raw_msg, and most of it again as files. If it cannot fit, go to the file at once.
  return { path: formPlace.path, most: 2 * body.size > room ? 0 : room };
}

async function encodePost(
  encoder: FormEncoder,
  job: RenderInput,
  id: string,
  written: Written,
): Promise<Omit<RenderedShared, 'parts' | 'linked'>> {
  const { keys, url, at, asJson } = job;
  const place = placeOf(job) ?? IN_MEMORY;
  if (!asJson) return { id, ...(await encoder.toPost(written, { keys, url, id, at }, place)) };
  const isJson = written.type === 'application/json';
  const pieces = isJson ? written.pieces : quotedPost(written);
  return { id, body: await encoder.toJson(pieces, place), headers: {} };
}

/** A post that is not JSON, as JSON, for people. */
function* quotedPost({ type, pieces }: Written): Iterable<Piece> {
  yield `{"content_type":${JSON.stringify(type)},"body":"`;
  for (const piece of pieces) yield* quotedPiece(piece);
  yield '"}';
}

function* quotedPiece(piece: Piece | Plain): Iterable<Piece> {
  if (typeof piece === 'string') yield inside(piece, false);
  else if (!('bytes' in piece)) yield piece;
  else if (isUtf8(piece.bytes)) yield { text: piece.bytes, toLf: false };
  else yield inside(Buffer.from(piece.bytes).toString('latin1'), false);
}

async function encode(
  encoder: FormEncoder,
  job: RenderInput,
  id: string,
  pieces: Iterable<Piece>,
): Promise<Omit<RenderedShared, 'parts' | 'linked'>> {
  const { keys, url, at, asJson } = job;
  const signing = { keys, url, id, at };
  const place = placeOf(job);
  if (!place) {
    if (asJson) return { id, body: await encoder.toJson(pieces, IN_MEMORY), headers: {} };
    const { bytes, headers } = encoder.toBytes(pieces, signing);
    return { id, body: { kind: 'bytes', bytes }, headers };
  }
  if (asJson) return { id, body: await encoder.toJson(pieces, place), headers: {} };
  return { id, ...(await encoder.toBody(pieces, signing, place)) };
}

const IN_MEMORY = { path: '', most: Number.POSITIVE_INFINITY };
