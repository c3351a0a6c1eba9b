import { hash, randomBytes, randomFillSync } from 'node:crypto';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';

/** The source of all random values, so that tests can choose them. */
export type Ids = ReturnType<typeof createIds>;

const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz';

function crockford(value: number, length: number): string {
  let text = '';
  for (let i = 0; i < length; i++) {
    text = CROCKFORD.charAt(value % 32) + text;
    value = Math.floor(value / 32);
  }
  return text;
}

/** Returns random bytes from a buffered block: a request for ten bytes costs as much as one for four thousand. */
function createPool() {
  const block = Buffer.alloc(4096);
  let used = block.length;
  return (count: number): Buffer => {
    if (used + count > block.length) {
      randomFillSync(block);
      used = 0;
    }
    used += count;
    return Buffer.from(block.subarray(used - count, used));
  };
}

/** Creates ids from the system's random source. */
export function createIds(clock: Clock) {
  const random = createPool();
  return frozen({
    /** A message id: 26 characters that sort by time (48 bits of time, 80 random bits, as in a ULID). */
    message() {
      const chance = random(10);
      return crockford(clock.now(), 10) + crockford(chance.readUIntBE(0, 5), 8) + crockford(chance.readUIntBE(5, 5), 8);
    },
    /** A key or token of 22 URL-safe characters, 128 random bits (an API key, an account id). */
    key() {
      // A leading dash would make it an option on a command line; one key in 64 is drawn again.
      let key = '-';
      while (key.startsWith('-')) key = randomBytes(16).toString('base64url');
      return key;
    },
    /** A signing key of 32 URL-safe characters. */
    signingKey: () => randomBytes(24).toString('base64url'),
    /** A number in [0, 1), to spread retries. */
    jitter: () => random(4).readUInt32BE() / 2 ** 32,
  });
}

/**
 * The id of a delivery: the message id and a hash of (message, route, recipient).
 * It can be recomputed after a crash and stays the same across attempts and replays, so receivers can use it to detect
 * duplicates (`webhook-id`). It sorts like its message id.
 */
export function deliveryId(messageId: string, routeId: string, recipient: string): string {
  const digest = hash('sha256', `${messageId}\0${routeId}\0${recipient}`, 'base64url');
  return `${messageId}-${digest.slice(0, 12)}`;
}

/** The id of the message of a delivery. */
export const messageIdOf = (delivery: string): string => delivery.split('-', 1)[0] ?? delivery;

/**
 * The id of a POST with several deliveries, with their number and a hash of their ids: the same deliveries in the same
 * order have the same id, even if they are posted again after a crash.
 */
export function sharedPostId(deliveryIds: readonly string[]): string {
  return `batch-${deliveryIds.length}-${hash('sha256', deliveryIds.join('\0'), 'base64url').slice(0, 20)}`;
}

/** The stored form of a token, useless to a thief: tokens have 128 random bits or more, so one fast hash is enough. */
export function tokenHash(token: string): string {
  return hash('sha256', token);
}
