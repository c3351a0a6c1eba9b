// A part of mailauth without types: the verifier that ours is compared with.

declare module 'mailauth/lib/dkim/dkim-verifier.js' {
  export interface CheckedSignature {
    readonly signingDomain?: string;
    readonly status: { readonly result: string; readonly comment?: string; readonly underSized?: number };
  }

  export class DkimVerifier {
    constructor(options: { readonly minBitLength: number; readonly curTime: Date; readonly strict: boolean });
    keyCache: object;
    readonly results: CheckedSignature[];
    /** Takes the header section. */
    emitHeaders(section: Uint8Array): Promise<void>;
    /** Takes a piece of the body, behind the header section. */
    writeAsync(chunk: Uint8Array): Promise<void>;
    /** Checks the signatures. */
    finish(): Promise<void>;
  }
}
