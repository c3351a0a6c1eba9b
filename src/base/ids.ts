import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from './clock.ts';

/** Everything that is chosen at random comes from here, so that tests can choose it. */
export interface Ids {
  /** A message id: 26 characters that sort by time (48 bits of time, 80 of chance; the form of a ULID). */
  message(): string;
  /** A key or token of 22 URL-safe characters, 128 random bits (an API key, an account id). */
  key(): string;
  /** A signing key of 32 URL-safe characters. */
  signingKey(): string;
  /** A number in [0, 1), to spread retries. */
  jitter(): number;
}

const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz';

function crockford(value: bigint, length: number): string {
  let text = '';
  for (let i = 0; i < length; i++) {
    text = CROCKFORD.charAt(Number(value & 31n)) + text;
    value >>= 5n;
  }
  return text;
}

/** Ids from the random source of the machine. */
export function createIds(clock: Clock): Ids {
  return Object.freeze({
    message: () =>
      crockford(BigInt(clock.now()), 10) + crockford(BigInt('0x' + randomBytes(10).toString('hex')), 16),
    key: () => randomBytes(16).toString('base64url'),
    signingKey: () => randomBytes(24).toString('base64url'),
    jitter: () => randomBytes(4).readUInt32BE() / 2 ** 32,
  });
}

/**
 * The id of a delivery: the message id and a hash of (message, route, recipient).
 * It can be computed again after a crash and stays the same over all attempts and replays,
 * so a receiver can tell a repeat by it (`webhook-id`). It sorts as its message does.
 */
export function deliveryId(messageId: string, routeId: string, recipient: string): string {
  const hash = createHash('sha256').update(`${messageId}\0${routeId}\0${recipient}`).digest('base64url');
  return `${messageId}-${hash.slice(0, 12)}`;
}
