import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { type Bytes, sizeOf } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import { createShares } from '../../base/shares.ts';
import type { LeaseOutcome } from '../../queue/settle.ts';
import type { JsonText } from '../../webhooks/message-views.ts';
import type { PreparedDelivery } from '../../webhooks/pull-preparation.ts';
import type { Pulling, PullOptions } from '../../webhooks/pulling.ts';
import type { Tapping } from '../../webhooks/tapping.ts';
import { tooMany } from '../errors.ts';
import type { Deps } from './account.ts';

// Mail that an account fetches instead of having it posted: limits on calls that wait, and answers that hold posts.

/** Calls that wait for mail at a time: each holds a connection. */
const PULLS = { all: 500, each: 50 };
const TAPS = { all: 50, each: 10 };
/** The delay for a client with too many calls, in seconds. */
const BUSY_S = 1;

/** The limits of this process on calls that wait. */
export function createWaits() {
  return frozen({ pulls: createShares(PULLS), taps: createShares(TAPS) });
}

/** The fields of a post in an answer, without the body, which `toText` adds. */
type ToRecord<M> = (mail: M) => Readonly<Record<string, unknown>>;

/** The mail that an account fetches. `gone` is aborted when the client of the call hangs up. */
export function bindPulling(
  { pulling, tapping }: Deps<'pulling' | 'tapping'>,
  waits: ReturnType<typeof createWaits>,
  account: string,
  gone: AbortSignal,
) {
  return {
    /** Leases mail of an endpoint of the account, as the text of a list of records. Throws RequestLimitExceeded. */
    async pull(url: string, wish: Omit<PullOptions, 'gone'>, toRecord: ToRecord<PulledMail>): Promise<JsonText> {
      if (waits.pulls.take(account, 1) !== 'taken') throw tooMany(BUSY_S);
      try {
        const pulled = await pulling.pull({ account, url }, { ...wish, gone });
        if (pulled === 'busy') throw tooMany(BUSY_S);
        return toText({ before: '[', after: ']' }, pulled, toRecord);
      } finally {
        waits.pulls.give(account, 1);
      }
    },
    /** Ends a lease of the account; false if it is unknown. */
    end: (lease: string, said: LeaseOutcome) => pulling.end(account, lease, said),
    /** The mail of a route, which must come from the account's store. Throws RequestLimitExceeded. */
    async tap(
      routeId: string,
      wish: Omit<Parameters<Tapping['tap']>[1], 'gone'>,
      toRecord: ToRecord<PreparedDelivery>,
    ): Promise<JsonText> {
      if (waits.taps.take(account, 1) !== 'taken') throw tooMany(BUSY_S);
      try {
        const tapped = await tapping.tap({ account, routeId }, { ...wish, gone });
        if (!tapped) throw tooMany(BUSY_S);
        const { cursor, gap } = tapped;
        return toText({ before: `{"cursor":${cursor},"gap":${gap},"messages":[`, after: ']}' }, tapped, toRecord);
      } finally {
        waits.taps.give(account, 1);
      }
    },
  };
}

type PulledMail = Exclude<Awaited<ReturnType<Pulling['pull']>>, 'busy'>['mails'][number];

/** Base64 of chunks needs no padding between them if their length is a multiple of 3. */
const CHUNK = 3 * 16_384;

/**
 * The records as JSON text with the body of each in `body`, in base64. It is written while it is read, so that no large
 * post is in memory in several forms.
 */
function toText<M extends Pick<PreparedDelivery, 'post'>>(
  { before, after }: { readonly before: string; readonly after: string },
  { mails, discard }: { readonly mails: readonly M[]; discard(): void },
  toRecord: ToRecord<M>,
): JsonText {
  const pieces: (string | Bytes)[] = [before];
  for (const [i, mail] of mails.entries()) {
    const { body } = mail.post;
    pieces.push(`${i > 0 ? ',' : ''}${JSON.stringify(toRecord(mail)).slice(0, -1)},"body":"`, body, '"}');
  }
  pieces.push(after);
  const size = pieces.reduce((sum, piece) => sum + lengthOf(piece), 0);
  const content = Readable.from(write(pieces), { objectMode: false });
  // Also if the text is never read because its client is gone.
  content.once('close', discard);
  return { size, content };
}

function lengthOf(piece: string | Bytes): number {
  if (typeof piece === 'string') return Buffer.byteLength(piece);
  return Math.ceil(sizeOf(piece) / 3) * 4;
}

async function* write(pieces: readonly (string | Bytes)[]): AsyncGenerator<Buffer> {
  for (const piece of pieces) {
    if (typeof piece === 'string') yield Buffer.from(piece);
    else if (piece.kind === 'file') yield* inBase64(createReadStream(piece.path, { highWaterMark: CHUNK }));
    else yield* inBase64([piece.bytes]);
  }
}

async function* inBase64(chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes = Buffer.concat([rest, chunk]);
    let at = 0;
    for (; at + CHUNK <= bytes.length; at += CHUNK) yield toBase64(bytes.subarray(at, at + CHUNK));
    const whole = bytes.length - ((bytes.length - at) % 3);
    if (whole > at) yield toBase64(bytes.subarray(at, whole));
    rest = bytes.subarray(whole);
  }
  if (rest.length > 0) yield toBase64(rest);
}

const toBase64 = (bytes: Buffer): Buffer => Buffer.from(bytes.toString('base64'), 'latin1');
