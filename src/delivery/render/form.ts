import { open } from 'node:fs/promises';
import { runningMandrillSignature, runningStandardSignature } from '../../mail/signature.ts';
import { createEncoding } from './encoding.ts';
import type { Piece } from './pieces.ts';

/** What the signatures of a POST are made with. */
export interface Signing {
  /** The first one signs for X-Mandrill-Signature, all sign for webhook-signature. */
  readonly keys: readonly string[];
  /** Exactly as configured. */
  readonly url: string;
  readonly deliveryId: string;
  /** Milliseconds since 1970. */
  readonly at: number;
}

export type FormHeaders = Readonly<Record<string, string>>;

const PARAMETER = 'mandrill_events';
/** From so many bytes on a form is written to the file: a dozen writes a megabyte. */
const MUCH = 64 * 1024;
const PREFIX = Buffer.from(`${PARAMETER}=`, 'latin1');
const NOTHING = new Uint8Array(0);

/** Makes form bodies of JSON text, and their signatures on the way. */
export interface FormEncoder {
  /** For what fits in memory; the bytes are in memory of their own. */
  toBytes(
    pieces: Iterable<Piece>,
    signing: Signing,
  ): { readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: FormHeaders };
  /** Never more than some pieces are in memory, and the thread can do other work between them. Throws when the disk fails. */
  toFile(
    pieces: Iterable<Piece>,
    signing: Signing,
    path: string,
  ): Promise<{ readonly size: number; readonly headers: FormHeaders }>;
}

export function createFormEncoder(): FormEncoder {
  const small = createEncoding();
  return Object.freeze({
    toBytes(pieces: Iterable<Piece>, signing: Signing) {
      small.begin(PREFIX);
      for (const piece of pieces) small.add(piece);
      const bytes = new Uint8Array(small.form()); // a copy, to be handed over
      const signatures = startSignatures(signing);
      signatures.value(small.value());
      signatures.body(bytes);
      return { bytes, headers: signatures.headers() };
    },
    async toFile(pieces: Iterable<Piece>, signing: Signing, path: string) {
      const signatures = startSignatures(signing);
      const file = await open(path, 'w', 0o600);
      // Of its own, because other forms are made while this one waits for the disk.
      const encoding = createEncoding();
      let size = 0;
      const flush = async (): Promise<void> => {
        const form = encoding.form();
        signatures.value(encoding.value());
        signatures.body(form);
        await file.writeFile(form);
        size += form.length;
        encoding.begin(NOTHING);
      };
      try {
        encoding.begin(PREFIX);
        for (const piece of pieces) {
          encoding.add(piece);
          if (encoding.form().length > MUCH) await flush();
        }
        await flush();
      } finally {
        encoding.end();
        await file.close();
      }
      return { size, headers: signatures.headers() };
    },
  });
}

function startSignatures({ keys, url, deliveryId, at }: Signing) {
  const timestamp = Math.floor(at / 1000);
  const mandrill = runningMandrillSignature(keys[0] ?? '', url, PARAMETER);
  const standard = runningStandardSignature(keys, deliveryId, timestamp);
  return {
    value: mandrill.update,
    body: standard.update,
    headers: (): FormHeaders => ({
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Mandrill-Signature': mandrill.digest(),
      'webhook-id': deliveryId,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': standard.digest(),
    }),
  };
}
