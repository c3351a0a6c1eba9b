import { createPublicKey, type KeyObject } from 'node:crypto';
import type { LookUp } from './look-up.ts';

/** What the verifier wants to know of a key; it takes the key itself as PEM or as an object. */
export interface PublicKey {
  readonly publicKey: string | KeyObject;
  /** "rsa" or "ed25519". */
  readonly keyType?: string;
  /** Those of t=. */
  readonly flags?: readonly string[];
}

/** Reads the key in the TXT records that the look-up finds for a name; rejects when there is none that may be used. */
export type ReadKey = (
  type: string,
  name: string,
  minBitLength: number,
  lookUp: (name: string) => Promise<unknown[]>,
  options: object,
) => Promise<PublicKey>;

/** The keys of one message, in the form that the verifier asks for them: each name is looked up once. */
export interface MessageKeys {
  readonly resolver: LookUp;
  get(type: string, name: string, minBitLength: number, options: object): Promise<PublicKey>;
}

const MOST_KEYS = 1000;
const LONGEST_RECORD = 2048; // a key of 8192 bits has 1400 characters; together they are 2 MB

/**
 * Keeps keys that were read, by the text of their record, so that the DNS alone says how long a key is valid. Reading one costs
 * 200 us, and checking a signature takes 50 us with the key as an object, 100 us with it as PEM. Faults are not kept.
 */
export function createPublicKeys(read: ReadKey, toALabel: (name: string) => string): (lookUp: LookUp) => MessageKeys {
  const known = new Map<string, PublicKey>();

  async function keyIn(record: string, reading: () => Promise<PublicKey>): Promise<PublicKey> {
    const kept = known.get(record);
    if (kept !== undefined) return kept;
    const key = await reading();
    const ready = { ...key, publicKey: createPublicKey(key.publicKey) };
    if (record.length > LONGEST_RECORD) return ready;
    const [oldest] = known.keys();
    if (known.size >= MOST_KEYS && oldest !== undefined) known.delete(oldest);
    known.set(record, ready);
    return ready;
  }

  return (lookUp) => {
    const asked = new Map<string, Promise<PublicKey>>();
    async function find(type: string, name: string, minBitLength: number, options: object): Promise<PublicKey> {
      const records = await lookUp(toALabel(name), 'TXT');
      const record = JSON.stringify([type, minBitLength, options, records[0]]);
      return keyIn(record, () => read(type, name, minBitLength, async () => records, options));
    }
    return {
      resolver: lookUp,
      get(type, name, minBitLength, options) {
        const question = JSON.stringify([name, minBitLength, options]);
        const before = asked.get(question);
        if (before !== undefined) return before;
        const key = find(type, name, minBitLength, options);
        key.catch(() => undefined); // who waits for it hears of it
        asked.set(question, key);
        return key;
      },
    };
  };
}
