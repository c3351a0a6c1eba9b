import { createReadStream } from 'node:fs';
import type { Bytes } from '../base/bytes.ts';
import type { HostPort } from '../base/networks.ts';
import type { Envelope } from '../mail/addresses/envelope.ts';
import type { ScanRule } from '../mail/scan.ts';

/** The threats that a scanner detects. */
export type ThreatKind = 'spam' | 'virus';

/** A message to be scanned. */
export interface ScanInput {
  readonly id: string;
  readonly envelope: Envelope;
  readonly recipients: readonly string[];
  /** Our Received line, for scanners that learn the client from it. */
  readonly trace: string;
  readonly body: Bytes;
}

/** The result of one scanner; a threat that it did not check is absent. */
export interface ScannerFinding {
  readonly spam?: 'ham' | 'spam';
  readonly virus?: 'clean' | 'infected';
  /** The name of the virus. */
  readonly name?: string;
  readonly score?: number;
  readonly rules?: readonly ScanRule[];
  /** It wants the message refused. */
  readonly rejects?: boolean;
  /** It wants a temporary refusal, as greylisting does. */
  readonly defers?: boolean;
  /** Why it did not and will not scan this message. */
  readonly skipped?: string;
}

/** A client of one scanner. */
export interface Scanner {
  /** As consumers, metrics and the log see it. */
  readonly name: string;
  readonly finds: ThreatKind;
  /** Throws ScannerFault, or an error of the system, if it got no usable answer. `signal` ends it at the deadline. */
  scan(input: ScanInput, signal: AbortSignal): Promise<ScannerFinding>;
  /** Closes connections that are kept open. */
  stop(): Promise<void>;
}

/** Where a scanner listens. */
export type ScannerAddress = HostPort | { readonly path: string };

/** The scanner did not answer, or not by its protocol. */
export class ScannerFault extends Error {
  override readonly name = 'ScannerFault';
}

/** The most bytes that are read of an answer. */
export const MAX_RESPONSE_BYTES = 1024 * 1024;

/** The bytes of a body. Those in memory are copied: their owner may free them while a connection is being closed. */
export async function* bytesOf(body: Bytes): AsyncGenerator<Buffer> {
  if (body.kind === 'memory') yield Buffer.from(body.bytes);
  else for await (const chunk of createReadStream(body.path)) yield Buffer.from(chunk);
}

const CONTROL = /[\x00-\x1f\x7f]/g;

/** A text from the client without characters that could end a header line, as one character per byte of its UTF-8. */
export function toHeaderText(text: string): string {
  return Buffer.from(text.replace(CONTROL, '?')).toString('latin1');
}

/** Limits of what is kept of an answer. */
const MAX_RULES = 100;
const MAX_NAME = 100;
const MAX_DESCRIPTION = 300;

/** Rules, limited to the number and length that are kept with a message. */
export function toRules(rules: Iterable<ScanRule>): readonly ScanRule[] {
  return [...rules].slice(0, MAX_RULES).map(({ name, score, description }) => ({
    name: name.slice(0, MAX_NAME),
    score,
    description: description.slice(0, MAX_DESCRIPTION),
  }));
}

/** The name of a virus, limited to the length that is kept. */
export const toVirusName = (name: string): string => name.trim().slice(0, MAX_NAME);
