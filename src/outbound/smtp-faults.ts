// What nodemailer throws, read once: `code` is a kind of trouble, `originalCode` what Node called it, `command` where the
// session was, `response` what the server said.

/** A reply that refuses, in one line: its code, and its text with the enhanced code. */
export interface Reply {
  readonly code: number;
  readonly diag: string;
}

const LONGEST = 500;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\ufffd\s]+/gu;
const ENHANCED = /^[245]\.\d{1,3}\.\d{1,3}(?=\s|$)/;

/** A server's words on one line, safe for a log and a header, and not longer than anybody reads. */
export function toLine(text: string): string {
  return text
    .slice(0, 4 * LONGEST)
    .replace(UNPRINTABLE, ' ')
    .trim()
    .slice(0, LONGEST)
    .toWellFormed();
}

/** A reply of one or more lines (RFC 5321 section 4.2.1), the enhanced code (RFC 2034) said once. Undefined for what is none. */
export function parseReply(response: string): Reply | undefined {
  const code = /^[2-5]\d\d(?=[ \r\n-]|$)/.exec(response)?.[0];
  if (code === undefined) return undefined;
  const lines = response.split(/\r?\n/, 100).map((line) => line.replace(/^\d{3}(?:[ -]|$)/, '').trim());
  const enhanced = ENHANCED.exec(lines[0] ?? '')?.[0];
  const rest = lines
    .slice(1)
    .map((line) =>
      enhanced !== undefined && ENHANCED.exec(line)?.[0] === enhanced ? line.slice(enhanced.length) : line,
    );
  return { code: Number(code), diag: toLine([lines[0] ?? '', ...rest].join(' ')) };
}

const field = (error: unknown, name: string): string => {
  const value: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, name) : undefined;
  return typeof value === 'string' ? value : '';
};

/** What went wrong, in one line: what the server said, else what we say. */
export function reasonOf(error: unknown): string {
  return toLine(field(error, 'response') || (error instanceof Error ? error.message : 'unknown trouble'));
}

/** Whether encryption is what failed, so that plain text may work. */
export function isTlsFault(error: unknown): boolean {
  return (
    field(error, 'code') === 'ETLS' ||
    field(error, 'command') === 'STARTTLS' ||
    /^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(field(error, 'originalCode'))
  );
}

/** Whether the address that a connection should leave from is not on this machine. */
export function isSourceMissing(error: unknown): boolean {
  return field(error, 'code') === 'EADDRNOTAVAIL';
}

/** The refusal that an error is; undefined when nobody decided: the connection broke, or what came was no such reply. */
export function refusalIn(error: unknown): Reply | undefined {
  const reply = parseReply(field(error, 'response'));
  if (!reply || reply.code < 400) return undefined;
  // `CONN` is a reply to nothing in particular, and only a 421 is said unasked (RFC 5321 section 3.8).
  return field(error, 'command') !== 'CONN' || reply.code === 421 ? reply : undefined;
}

/** Whether it is larger than the server said that it takes (RFC 1870 section 6.1): nodemailer looks before MAIL FROM. */
export function isTooLarge(error: unknown): boolean {
  return (
    field(error, 'code') === 'EMESSAGE' && field(error, 'command') === 'MAIL FROM' && field(error, 'response') === ''
  );
}
