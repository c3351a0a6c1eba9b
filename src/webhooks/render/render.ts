import { isUtf8 } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { sharedPostId } from '../../base/ids.ts';
import type { Histogram } from '../../base/metrics.ts';
import type { Tools } from '../../base/tools.ts';
import type { Guarded, ThreadTask } from '../../base/worker-tasks.ts';
import { factsOf } from '../../inbound/formats.ts';
import type { Authenticator } from '../../inbound/verdicts/authenticate.ts';
import { authorOf, authorOfMessage } from '../../mail/addresses/author.ts';
import type { Verdicts } from '../../mail/addresses/envelope.ts';
import { automatedFor } from '../../mail/automated.ts';
import { factsOfMessage, type MessageFacts } from '../../mail/facts/facts.ts';
import { type FilePart, parseMessage } from '../../mail/message.ts';
import { toFileName } from '../../mail/mime/filename.ts';
import { readFields, withHeader } from '../../mail/mime/header-section.ts';
import { type StructureScan, scanStructure } from '../../mail/mime/structure.ts';
import { threadIdOf } from '../../mail/replies/thread.ts';
import { senderAuthOf } from '../../mail/sender-auth.ts';
import { toSummary } from '../../mail/summary.ts';
import type { Message } from '../../queue/delivery.ts';
import { linkTo } from '../linked-files.ts';
import type { Findings, Mail, Post, RenderJob } from '../types.ts';
import { createFormEncoder, type FormEncoder } from './form.ts';
import { WRITERS } from './formats/index.ts';
import { toParsedMail, type Written } from './formats/mail.ts';
import { eventPieces, type InboundEvent, toEventPieces } from './payload.ts';
import { decodedPieces, inside, type Piece, type Plain, sizeOfContent } from './pieces.ts';
import type { RenderProgress } from './progress.ts';
import type { WithRaw } from './raw-bytes.ts';
import { PARSER_FAILED, type RenderInput } from './renderer.ts';

interface Deps extends Pick<Tools, 'clock' | 'log'> {
  readonly authenticator: Authenticator;
  readonly progress: RenderProgress;
  readonly parseSeconds: Histogram;
  readonly withRaw: WithRaw;
  /** Our host name. */
  readonly hostname: string;
  /** The other hosts that receive the mail of our domains. */
  readonly mxHosts: readonly string[];
}

type Content = InboundEvent['content'];

/** The findings for a batch of events, which Postern itself created. */
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
}: Deps): ThreadTask<RenderInput, Post> {
  const encoder = createFormEncoder();

  /**
   * Also authenticates messages that must not be parsed: its header reader accepts any message, and a sender must not
   * be able to evade verdicts with a thousand parts.
   */
  async function authenticate({ message, body, delivery }: Mail): Promise<Verdicts> {
    const open = progress.begin(delivery.id);
    const verdicts = message.verdicts ?? (await authenticator.authenticate(body, message.envelope, open));
    progress.parse(delivery.id);
    return verdicts;
  }

  async function scan(
    message: Message,
    parseError: string | null,
    guarded: Guarded,
    raw: Buffer,
  ): Promise<StructureScan> {
    if (parseError !== null) return { breach: parseError };
    const scanned = await guarded(async () => scanStructure(withHeader(raw)));
    if (scanned.breach !== undefined) log.warn('message.parse_failed', { message: message.id, reason: scanned.breach });
    return scanned;
  }

  function timed<T>(work: () => T): T {
    const began = clock.monotonic();
    const done = work();
    parseSeconds.observe((clock.monotonic() - began) / 1000);
    return done;
  }

  async function parse(message: Message, guarded: Guarded, raw: Buffer, scanned: StructureScan): Promise<Content> {
    if (scanned.breach !== undefined) return { parseError: scanned.breach };
    try {
      return { parsed: await guarded(async () => timed(() => parseMessage(withHeader(raw), scanned.root))) };
    } catch (error) {
      log.warn('message.parse_failed', { message: message.id, reason: PARSER_FAILED, error });
      return { parseError: PARSER_FAILED };
    }
  }

  /** Undefined if the style does not ask for facts. A fault in them does not affect the message. */
  async function findFacts(
    { style }: RenderJob,
    message: Message,
    { content, author }: Pick<InboundEvent, 'content' | 'author'>,
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
    [job, , parseError]: RenderInput,
    { message, delivery, answers: answered }: Mail,
    verdicts: Verdicts,
    guarded: Guarded,
    raw: Buffer,
  ): Promise<InboundEvent> {
    const scanned = await scan(message, parseError, guarded, raw);
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

  async function renderMessage(input: RenderInput, mail: Mail, guarded: Guarded): Promise<Post> {
    const verdicts = await authenticate(mail);
    return withRaw(mail.body, async (raw) => {
      const event = await toEvent(input, mail, verdicts, guarded, raw);
      try {
        return await write(input, [event]);
      } catch (error) {
        if ('parseError' in event.content || isOfSystem(error)) throw error;
        log.warn('message.parse_failed', { message: mail.message.id, reason: PARSER_FAILED, error });
        return write(input, [{ ...event, content: { parseError: PARSER_FAILED }, facts: event.facts && null }]);
      }
    });
  }

  async function renderShared(input: RenderInput, guarded: Guarded): Promise<Post> {
    const [{ mails }] = input;
    const ready = await whatIsReady(mails.map(authenticate), clock);
    const events: (InboundEvent | undefined)[] = [];
    for (const [i, mail] of mails.entries()) {
      const verdicts = ready[i];
      events.push(verdicts && (await withRaw(mail.body, (raw) => toEvent(input, mail, verdicts, guarded, raw))));
    }
    return write(input, events);
  }

  async function write(input: RenderInput, events: readonly (InboundEvent | undefined)[]): Promise<Post> {
    const [job] = input;
    const posted: InboundEvent[] = [];
    let linked = 0;
    for (const event of events) {
      if (!event) continue;
      const { event: one, added } = await withLinks(event, input, linked);
      posted.push(one);
      linked += added;
    }
    const [first, second] = posted;
    const id = first && !second ? first.id : sharedPostId(posted.map((event) => event.id));
    const { format } = job.style;
    // The raw message would repeat the linked attachments. In a shared post, every message goes without it.
    const raw = job.style.raw && !posted.some(isElsewhere);
    const rest = { id, found: events.map(toFindings), linked };
    if (format !== 'mandrill' && first) {
      const written = WRITERS[format](toParsedMail(first, { withRaw: raw, key: job.keys[0] ?? '', at: job.at }));
      return { ...rest, ...(await encodePost(encoder, input, id, written)) };
    }
    const pieces = job.asJson && first ? eventPieces(first, '', raw) : toEventPieces(posted, raw);
    return { ...rest, ...(await encode(encoder, input, id, pieces)) };
  }

  async function renderEvents(input: RenderInput, { body, delivery: { id } }: Mail): Promise<Post> {
    return withRaw(body, async (raw) => {
      const post = await encode(encoder, input, id, [raw.toString()]);
      return { id, found: [NO_FINDINGS], linked: 0, ...post };
    });
  }

  return async (input, guarded) => {
    const [{ mails }] = input;
    const [mail, second] = mails;
    if (!mail) throw new TypeError('nothing to render');
    try {
      const post = await (mail.delivery.batch
        ? renderEvents(input, mail)
        : second
          ? renderShared(input, guarded)
          : renderMessage(input, mail, guarded));
      return { value: post, transfer: post.body.kind === 'memory' ? [toBuffer(post.body.bytes)] : [] };
    } finally {
      for (const { delivery } of mails) progress.end(delivery.id);
    }
  };
}

/**
 * The message without the files that the post replaces by links, and the bytes that they added to linked files.
 * `linked`: the bytes of other messages in the post. A file beyond the limits stays in the post.
 */
async function withLinks(
  event: InboundEvent,
  [{ style }, { links }]: RenderInput,
  linked: number,
): Promise<{ readonly event: InboundEvent; readonly added: number }> {
  const { attachments, linkOver } = style;
  if (!('parsed' in event.content) || (attachments !== 'none' && !links)) return { event, added: 0 };
  const { parsed } = event.content;
  const files: FilePart[] = [];
  let added = 0;
  for (const file of parsed.files) {
    if (sizeOfContent(file.content) <= linkOver) files.push(file);
    else if (!links) files.push({ ...file, link: null });
    else {
      const context = { ...links, room: links.room - linked - added };
      const link = await linkTo(context, toFileName(file.name), () => bytesOf(file));
      files.push(link ? { ...file, link: link.url } : file);
      added += link?.added ?? 0;
    }
  }
  return { event: { ...event, content: { parsed: { ...parsed, files } } }, added };
}

function* bytesOf({ content }: FilePart): Iterable<Uint8Array> {
  for (const { bytes } of decodedPieces(content)) yield bytes;
}

const isElsewhere = ({ content }: InboundEvent): boolean =>
  'parsed' in content && content.parsed.files.some(({ link }) => link !== undefined);

/** Whether the disk failed, as opposed to the parser. */
const isOfSystem = (error: unknown): boolean => error instanceof Error && 'syscall' in error;

function toFindings(event: InboundEvent | undefined): Findings | undefined {
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
const MAX_IN_MEMORY = 32 * 1024 * 1024;

function bodyFileOf([{ mails }, { form }]: RenderInput) {
  const body = mails[0]?.body;
  if (body?.kind !== 'file' || form === null) return undefined;
  const room = Math.min(LARGEST_IN_MEMORY, MAX_IN_MEMORY - Atomics.load(form.held, 0));
  // The form has the message in raw_msg, and most of it again as files. If it cannot fit, go to the file at once.
  return { path: form.path, most: 2 * body.size > room ? 0 : room };
}

/** The result of the encoder. */
type Encoded = Pick<Post, 'body' | 'headers'>;

async function encodePost(encoder: FormEncoder, input: RenderInput, id: string, written: Written): Promise<Encoded> {
  const [{ keys, url, at, asJson }] = input;
  const file = bodyFileOf(input) ?? IN_MEMORY;
  if (!asJson) return encoder.toPost(written, { keys, url, id, at }, file);
  const isJson = written.type === 'application/json';
  const pieces = isJson ? written.pieces : quotedPost(written);
  return { body: await encoder.toJson(pieces, file), headers: {} };
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

async function encode(encoder: FormEncoder, input: RenderInput, id: string, pieces: Iterable<Piece>): Promise<Encoded> {
  const [{ keys, url, at, asJson }] = input;
  const file = bodyFileOf(input);
  if (asJson) return { body: await encoder.toJson(pieces, file ?? IN_MEMORY), headers: {} };
  const signing = { keys, url, id, at };
  if (file) return encoder.toBody(pieces, signing, file);
  const { bytes, headers } = encoder.toBytes(pieces, signing);
  return { body: { kind: 'memory', bytes }, headers };
}

const IN_MEMORY = { path: '', most: Number.POSITIVE_INFINITY };
