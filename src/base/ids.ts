import { hash, randomBytes, randomFillSync } from 'node:crypto';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';

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

function crockford(value: number, length: number): string {
  let text = '';
  for (let i = 0; i < length; i++) {
    text = CROCKFORD.charAt(value % 32) + text;
    value = Math.floor(value / 32);
  }
  return text;
}

/** Hands out random bytes from a block: asking the machine for ten bytes costs as much as asking for four thousand. */
function createPool(size = 4096): (count: number) => Buffer {
  const block = Buffer.alloc(size);
  let used = size;
  return (count) => {
    if (used + count > size) {
      randomFillSync(block);
      used = 0;
    }
    used += count;
    return Buffer.from(block.subarray(used - count, used));
  };
}

/** Ids from the random source of the machine. */
export function createIds(clock: Clock): Ids {
  const random = createPool();
  return frozen({
    message() {
      const chance = random(10);
      return crockford(clock.now(), 10) + crockford(chance.readUIntBE(0, 5), 8) + crockford(chance.readUIntBE(5, 5), 8);
    },
    key() {
      // On a command line a leading dash would make it an option; one key in 64 is drawn again.
      let key = '-';
      while (key.startsWith('-')) key = randomBytes(16).toString('base64url');
      return key;
    },
    signingKey: () => randomBytes(24).toString('base64url'),
    jitter: () => random(4).readUInt32BE() / 2 ** 32,
  });
}

/**
 * The id of a delivery: the message id and a hash of (message, route, recipient).
 * It can be computed again after a crash and stays the same over all attempts and replays,
 * so a receiver can tell a repeat by it (`webhook-id`). It sorts as its message does.
 */
export function deliveryId(messageId: string, routeId: string, recipient: string): string {
  const digest = hash('sha256', `${messageId}\0${routeId}\0${recipient}`, 'base64url');
  return `${messageId}-${digest.slice(0, 12)}`;
}

/**
 * The id of a POST that several deliveries share, made of theirs: the same ones in the same order have the same id, also
 * when they go out again after a crash. It says how many they are.
 */
export function sharedPostId(deliveryIds: readonly string[]): string {
  return `batch-${deliveryIds.length}-${hash('sha256', deliveryIds.join('\0'), 'base64url').slice(0, 20)}`;
}
