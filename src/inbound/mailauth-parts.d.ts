// Parts of mailauth that come without types: what inbound/signatures.ts uses of them, and no more.

declare module 'mailauth/lib/tools.js' {
  /** Reads the DKIM key in the TXT records of a name. Rejects with what is wrong with it. */
  export function getPublicKey<K>(
    type: string, name: string, minBitLength: number, resolver: (name: string) => Promise<unknown>, options: object,
  ): Promise<K>;
  /** A domain name without characters outside ASCII. */
  export function toALabel(name: string): string;
}

declare module 'mailauth/lib/dkim/dkim-verifier.js' {
  export interface CheckedSignature {
    readonly signingDomain?: string;
    readonly status: { readonly result: string; readonly comment?: string; readonly underSized?: number };
  }

  export class DkimVerifier {
    constructor(options: { readonly minBitLength: number; readonly curTime: Date; readonly strict: boolean });
    keyCache: object;
    readonly arc: { readonly chain: false | never[]; keyCache: object };
    readonly headerFrom: string[];
    readonly fromFields: number;
    readonly results: CheckedSignature[];
    /** Takes the header section. */
    emitHeaders(section: Uint8Array): Promise<void>;
    /** Takes a piece of the body, behind the header section. */
    writeAsync(chunk: Uint8Array): Promise<void>;
    /** Checks the signatures. */
    finish(): Promise<void>;
  }
}
