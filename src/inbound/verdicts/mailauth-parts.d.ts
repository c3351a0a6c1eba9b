// Parts of mailauth that come without types: what inbound/verdicts/signatures.ts uses of them, and no more.

declare module 'mailauth/lib/tools.js' {
  /** Reads the DKIM key in the TXT records of a name. Rejects with what is wrong with it. */
  export function getPublicKey<K>(
    type: string,
    name: string,
    minBitLength: number,
    resolver: (name: string) => Promise<unknown>,
    options: object,
  ): Promise<K>;
  /** A domain name without characters outside ASCII. */
  export function toALabel(name: string): string;
}
