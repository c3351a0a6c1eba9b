import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { createSemaphore } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import { namesIn } from '../base/tables.ts';
import { busy } from './denial.ts';

/** The cost of a hash. */
export interface PasswordCost {
  readonly N: number;
  readonly r: number;
  readonly p: number;
}

/** OWASP's recommendation: 128 MiB and about 0.4 s of a processor for one hash. */
export const PASSWORD_COST: PasswordCost = { N: 2 ** 17, r: 8, p: 1 };
const LENGTH = 32;
/** Concurrent hashes: each takes 128 MiB, and one of Node's four threads for files and names. */
const AT_ONCE = 2;
/** Further requests are refused at once: people would give up waiting. */
const MAX_WAITING = 16;

/** Passwords as scrypt hashes (RFC 7914). `cost` is for new hashes; an existing one names its own. */
export function createPasswords(cost: PasswordCost) {
  const nobody = encode(cost, randomBytes(16), randomBytes(LENGTH));
  const slots = createSemaphore(AT_ONCE);

  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (slots.waiting() >= MAX_WAITING) throw busy();
    return slots.run(work);
  }

  return frozen({
    async hash(password: string): Promise<string> {
      const salt = randomBytes(16);
      return encode(cost, salt, await inTurn(() => derive(password, salt, cost)));
    },
    /** Whether the password matches the hash. Takes as long for a name that does not exist (`hash` null). */
    async matches(password: string, hash: string | null): Promise<boolean> {
      const known = decode(hash ?? nobody);
      const derived = await inTurn(() => derive(password, known.salt, known.cost));
      return timingSafeEqual(derived, known.key) && hash !== null;
    },
  });
}

function derive(password: string, salt: Buffer, cost: PasswordCost): Promise<Buffer> {
  return scryptKey(password.normalize('NFC'), salt, LENGTH, { ...cost, maxmem: 256 * cost.N * cost.r });
}

const scryptKey = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt);

/** `scrypt N r p salt key`, so that the cost can be raised later. */
function encode({ N, r, p }: PasswordCost, salt: Buffer, key: Buffer): string {
  return ['scrypt', N, r, p, salt.toString('base64url'), key.toString('base64url')].join(' ');
}

function decode(hash: string): { cost: PasswordCost; salt: Buffer; key: Buffer } {
  const [, N, r, p, salt = '', key = ''] = hash.split(' ');
  return {
    cost: { N: Number(N), r: Number(r), p: Number(p) },
    salt: Buffer.from(salt, 'base64url'),
    key: Buffer.from(key, 'base64url'),
  };
}

const SHORTEST_PASSWORD = 12;
const LONGEST_PASSWORD = 256;
/** A password with fewer different characters is a pattern: `aaaaaaaaaaaa`, `121212121212`. */
const FEWEST_CHARACTERS = 5;

/** The fault of a new password, as text for the person; undefined if it is acceptable. */
export function passwordFault(password: string, name: string): string | undefined {
  const plain = password.normalize('NFC').toLowerCase();
  const letters = [...plain];
  if (letters.length < SHORTEST_PASSWORD) return `Please use at least ${SHORTEST_PASSWORD} characters`;
  if (letters.length > LONGEST_PASSWORD) return `Please use at most ${LONGEST_PASSWORD} characters`;
  const known = WORST.some((word) => plain.includes(word) && letters.length - word.length < FEWEST_CHARACTERS);
  if (known || new Set(letters).size < FEWEST_CHARACTERS)
    return 'Please choose another password: this one is too common';
  if (name.length > 3 && plain.includes(name)) return 'Please use a password without your name in it';
  return undefined;
}

/** The first entries of nearly every list of leaked passwords with twelve characters or more. */
const WORST = [
  ...namesIn('1234567890 123456789a 1q2w3e4r5t 1qaz2wsx3edc 0987654321 abcdefghij abcd1234abcd administrator'),
  ...namesIn('adminadminadmin changemechangeme changeme1234 iloveyou1234 letmeinletmein letmein12345 asdfghjkl'),
  ...namesIn('password1234 passwordpassword password passw0rd p@ssw0rd postern12345 posternpostern princess1234'),
  ...namesIn('qazwsxedcrfv qwertyuiop qwerty123456 sunshine1234 welcome12345 welcomewelcome zxcvbnm'),
];
