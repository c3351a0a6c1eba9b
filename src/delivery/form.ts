import { open } from 'node:fs/promises';
import { runningMandrillSignature, runningStandardSignature } from '../mail/signature.ts';

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
const SLICE = 64 * 1024;
const SPACE = 0x20;

// Letters, digits and -_. stand for themselves; everything else is %XX, but space is + (as PHP's urlencode has it).
const PLAIN = Uint8Array.from({ length: 256 }, (_, byte) => (/[A-Za-z0-9._-]/.test(String.fromCharCode(byte)) ? 1 : 0));
const HEX = Buffer.from('0123456789ABCDEF', 'latin1');
const HIGH = Uint8Array.from({ length: 256 }, (_, byte) => HEX[byte >> 4] ?? 0);
const LOW = Uint8Array.from({ length: 256 }, (_, byte) => HEX[byte & 15] ?? 0);

/** Makes a form body of JSON text, and its signatures on the way. For what fits in memory. */
export function encodeForm(pieces: Iterable<string>, signing: Signing): { readonly bytes: Uint8Array<ArrayBuffer>; readonly headers: FormHeaders } {
  let text = '';
  for (const piece of pieces) text += piece;
  const value = Buffer.from(text, 'utf8');
  const prefix = Buffer.from(`${PARAMETER}=`, 'latin1');
  const bytes = new Uint8Array(prefix.length + encodedLength(value));
  bytes.set(prefix);
  encodeInto(value, bytes, prefix.length);
  const signatures = startSignatures(signing);
  signatures.value(value);
  signatures.body(bytes);
  return { bytes, headers: signatures.headers() };
}

/** As `encodeForm`, into a file: never more than some pieces are in memory, and the thread can do other work between them. */
export async function encodeFormToFile(pieces: Iterable<string>, signing: Signing, path: string): Promise<{ readonly size: number; readonly headers: FormHeaders }> {
  const signatures = startSignatures(signing);
  const file = await open(path, 'w', 0o600);
  const buffer = Buffer.alloc(4 * SLICE);
  let used = buffer.write(`${PARAMETER}=`, 'latin1');
  let size = 0;
  const flush = async (): Promise<void> => {
    const chunk = buffer.subarray(0, used);
    signatures.body(chunk);
    await file.writeFile(chunk);
    size += used;
    used = 0;
  };
  try {
    for (const slice of slices(pieces)) {
      signatures.value(slice);
      if (used + 3 * slice.length > buffer.length) await flush();
      used = encodeInto(slice, buffer, used);
    }
    await flush();
  } finally {
    await file.close();
  }
  return { size, headers: signatures.headers() };
}

function* slices(pieces: Iterable<string>): Iterable<Buffer> {
  for (const piece of pieces) {
    const bytes = Buffer.from(piece, 'utf8');
    for (let at = 0; at < bytes.length; at += SLICE) yield bytes.subarray(at, at + SLICE);
  }
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

function encodedLength(value: Uint8Array): number {
  let length = value.length;
  for (let i = 0; i < value.length; i++) {
    const byte = value[i] ?? 0;
    if (PLAIN[byte] === 0 && byte !== SPACE) length += 2;
  }
  return length;
}

/** Writes `value` form-encoded to `target` at `at`; answers where it ended. */
function encodeInto(value: Uint8Array, target: Uint8Array, at: number): number {
  for (let i = 0; i < value.length; i++) {
    const byte = value[i] ?? 0;
    if (PLAIN[byte] === 1) target[at++] = byte;
    else if (byte === SPACE) target[at++] = 0x2b;
    else {
      target[at++] = 0x25;
      target[at++] = HIGH[byte] ?? 0;
      target[at++] = LOW[byte] ?? 0;
    }
  }
  return at;
}
