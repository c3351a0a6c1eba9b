import type { HeaderField } from './headers.ts';

/** An address of a header and its display name, decoded. */
export interface Mailbox {
  readonly address: string;
  readonly name: string | null;
}

/** Decoded text with LF line ends: a string, or for large ones the pieces of it, made when they are asked for. */
export type Text = string | (() => Iterable<string>);

/** What a file part holds: decoded bytes, or clean base64 as it stands in the message, line breaks included. */
export type Content =
  | { readonly kind: 'bytes'; readonly chunks: readonly Uint8Array[] }
  | { readonly kind: 'base64'; readonly lines: Uint8Array };

/** A part that is neither the text nor the HTML of the message. */
export interface FilePart {
  /** As the sender wrote it, decoded and not yet safe; empty when there is none. */
  readonly name: string;
  /** Media type in lower case, as declared. */
  readonly type: string;
  /** Without angle brackets. */
  readonly contentId: string | null;
  readonly disposition: string | null;
  readonly content: Content;
}

/** What the address fields and the subject say. */
export interface Addressing {
  readonly subject: string;
  readonly from: Mailbox | undefined;
  readonly to: readonly Mailbox[];
  /** Undefined when there is no Cc field. */
  readonly cc: readonly Mailbox[] | undefined;
}

/** What parsing found in a message. */
export interface Parsed extends Addressing {
  readonly fields: readonly HeaderField[];
  readonly text: Text | undefined;
  /** Whether the text is format=flowed (RFC 3676); it is left as it was written. */
  readonly textFlowed: boolean;
  /** The first HTML part; when there is no text, all of them. */
  readonly html: Text | undefined;
  readonly files: readonly FilePart[];
}
