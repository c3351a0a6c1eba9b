import { toAsciiDomain } from './addresses/address.ts';
import type { Verdicts } from './addresses/envelope.ts';

// Authentication-Results (RFC 8601): the field that we write, and the ones from outside that claim to be ours.

const NAME = 'authentication-results';
const LF = 0x0a;
const SPACE = 0x20;
const TAB = 0x09;
const COLON = 0x3a;
const DASH = 0x2d;
const LOWER_CASE = 0x20;

/**
 * The value without comments, which nest and may hold quoted pairs; those inside quoted strings are text. Of an
 * unclosed one, the bracket stays.
 */
function withoutComments(value: string): string {
  let kept = '';
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < value.length; at++) {
    const c = value.charAt(at);
    const escaped = c === '\\' && (quoted || depth > 0);
    if (escaped) {
      if (depth === 0) kept += value.slice(at, at + 2);
      at++;
    } else if (depth === 0 && c === '"') {
      quoted = !quoted;
      kept += c;
    } else if (!quoted && c === '(') depth++;
    else if (!quoted && c === ')' && depth > 0) {
      depth--;
      kept += ' ';
    } else if (depth === 0) kept += c;
  }
  return depth > 0 ? `${kept} (` : kept;
}

/**
 * The domain of From for which a field says that DMARC passed; undefined unless it says so exactly once, and clearly.
 * Senders control parts of such fields (MAIL FROM, HELO), so a forged result may stand beside that of the server.
 */
export function dmarcPassed(value: string): string | undefined {
  const text = withoutComments(value.replace(/[\r\n]+/g, ''));
  // A quoted string is one word.
  const bare = text.replace(QUOTED, (word) => (/^"[\w.-]+"$/.test(word) ? word.slice(1, -1) : 'quoted'));
  if (/["()]/.test(bare) || (bare.match(DMARC) ?? []).length !== 1) return undefined;
  const result = bare.split(';').find((piece) => PASSED.test(piece)) ?? '';
  const named = [...result.matchAll(HEADER_FROM)];
  return named.length === 1 ? toAsciiDomain(named[0]?.[1] ?? '') : undefined;
}

const QUOTED = /"(?:[^"\\]|\\.)*"/g;
/** Every word that could be a result of DMARC, wherever it stands. */
const DMARC = /(?<![\w.-])dmarc\s*(?:\/\s*\d+\s*)?=/gi;
const PASSED = /^\s*dmarc\s*(?:\/\s*\d+\s*)?=\s*pass(?![\w.-])/i;
const HEADER_FROM = /(?<![\w.-])header\s*\.\s*from\s*=\s*([^\s;]*)/gi;

/** The name of the server that a field claims to come from; '' if there is none. */
function serverOf(value: string): string {
  const text = withoutComments(value.replace(/[\r\n]+/g, '')).trim();
  const quoted = /^"((?:[^"\\]|\\.)*)"/.exec(text)?.[1];
  const name = quoted?.replace(/\\(.)/g, '$1') ?? /^[^\s;]*/.exec(text)?.[0] ?? '';
  return toServer(name);
}

function toServer(name: string): string {
  const bare = name.trim().replace(/\.$/, '').toLowerCase();
  return toAsciiDomain(bare) ?? bare;
}

/** Fields by which a sender could speak for us. */
export interface OwnFields {
  /** Names of the hosts that receive this mail: results under them are ours (RFC 8601 section 5). */
  readonly hosts: readonly string[];
  /** Whether Return-Path, X-Original-To and X-Postern-Automated are ours too: where we write them, nobody else does. */
  readonly withTrace: boolean;
}

/** Whether a field from outside claims to be ours, and must be removed. */
export function isForged(name: string, value: string, { hosts, withTrace }: OwnFields): boolean {
  const field = name.toLowerCase();
  if (field === NAME) return hosts.map(toServer).includes(serverOf(value));
  if (field === SPF) return hosts.some((host) => value.toLowerCase().split(NO_NAME).includes(toServer(host)));
  return withTrace && TRACE.has(field);
}

/** The receiver may stand anywhere in it (RFC 7208 section 9.1). */
const SPF = 'received-spf';
const NO_NAME = /[^\w.-]+/;

/** The field that we put in front of automated messages, with the reason (automated.ts). */
export const AUTOMATED_FIELD = 'X-Postern-Automated';

const TRACE: ReadonlySet<string> = new Set(['return-path', 'x-original-to', AUTOMATED_FIELD.toLowerCase()]);
/** Of each name: its first letter, and where it has a dash. */
const GLANCES = [NAME, SPF, ...TRACE].map((name) => ({ letter: name.charCodeAt(0), dash: name.lastIndexOf('-') }));

/** The message without forged fields, in pieces of the same bytes. */
export function* withoutForged(message: Buffer, own: OwnFields): Iterable<Buffer> {
  let kept = 0;
  for (let at = 0; at < message.length; ) {
    const line = lineEnd(message, at);
    if (isEmptyLine(message, at, line)) break;
    let end = line;
    while (end < message.length && (message[end] === SPACE || message[end] === TAB)) end = lineEnd(message, end);
    if (isForgedField(message, at, end, own)) {
      if (at > kept) yield message.subarray(kept, at);
      kept = end;
    }
    at = end;
  }
  yield message.subarray(kept);
}

function lineEnd(bytes: Buffer, at: number): number {
  return bytes.indexOf(LF, at) + 1 || bytes.length;
}

function isEmptyLine(bytes: Buffer, at: number, end: number): boolean {
  return end - at <= 2 && bytes.toString('latin1', at, end).trim() === '';
}

/** The colon may be apart from the name, even on the next line. */
function isForgedField(bytes: Buffer, start: number, end: number, own: OwnFields): boolean {
  const first = (bytes[start] ?? 0) | LOWER_CASE;
  if (!GLANCES.some(({ letter, dash }) => letter === first && bytes[start + dash] === DASH)) return false; // nearly all
  const field = bytes.subarray(start, end); // where there is no colon, the search ends with the field
  const colon = field.indexOf(COLON);
  return colon !== -1 && isForged(field.toString('latin1', 0, colon).trimEnd(), field.toString('utf8', colon + 1), own);
}

// Values that need no quotes and cannot end a line.
const PLAIN_VALUE = /^[\p{L}\p{N}._=+@-]{1,255}$/u;

/** Our field, folded, CRLF included. */
export function authenticationResults(
  hostname: string,
  { mailFrom }: { readonly mailFrom: string },
  { spf, dkim, dmarc, arc, evidence }: Verdicts,
  /** The domain of the author; null if it is not certain. */
  author: string | null,
): string {
  const property = (name: string, value: string | null | undefined) =>
    value && PLAIN_VALUE.test(value) ? ` ${name}=${value}` : '';
  const keys = evidence?.dkim ?? [];
  const results = [
    `spf=${spf.result}${property(mailFrom === '' ? 'smtp.helo' : 'smtp.mailfrom', evidence?.spf)}`,
    ...(keys.length === 0
      ? [`dkim=${dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none'}`]
      : keys.map(
          (key) => `dkim=${key.result}${property('header.d', key.domain)}${property('header.s', key.selector)}`,
        )),
    `dmarc=${dmarc.result}${property('header.from', author)}`,
    `arc=${arc.result}`,
  ];
  return `Authentication-Results: ${hostname};\r\n${results.map((result) => `\t${result}`).join(';\r\n')}\r\n`;
}
