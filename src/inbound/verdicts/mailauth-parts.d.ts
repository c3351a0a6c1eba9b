// Types of the mailauth functions that inbound/verdicts/signatures.ts uses and mailauth does not declare.

declare module 'mailauth/lib/tools.js' {
  /** Reads the DKIM key in the TXT records of a name. Rejects if it is missing or unusable. */
  export function getPublicKey<K>(
    type: string,
    name: string,
    minBitLength: number,
    resolver: (name: string) => Promise<unknown>,
    options: object,
  ): Promise<K>;
  /** Converts a domain name to A-labels. */
  export function toALabel(name: string): string;
}
