import type { MailOutcome } from './types.ts';

// What nodemailer throws, read once: `code` is a kind of trouble, `originalCode` what Node called it, `command` where the session was, `responseCode` what the server said.

interface Fault { readonly code: string; readonly cause: string; readonly command: string; readonly status: number; readonly text: string }

function faultOf(error: unknown): Fault {
  const field = (name: string): unknown => typeof error === 'object' && error !== null ? Reflect.get(error, name) : undefined;
  const text = (value: unknown) => typeof value === 'string' ? value : '';
  const status = field('responseCode');
  return {
    code: text(field('code')), cause: text(field('originalCode')), command: text(field('command')), status: typeof status === 'number' ? status : 0,
    text: text(field('response')) || (error instanceof Error ? error.message : 'unknown trouble'),
  };
}

/** Where a session is not yet about this message: another host of the domain may be in a better state. */
const BEFORE_MAIL = new Set(['', 'CONN', 'EHLO', 'HELO', 'STARTTLS', 'API']);

/** Whether the next host is worth a try: nothing was said about the message yet. */
export function isElsewhere(error: unknown): boolean {
  return BEFORE_MAIL.has(faultOf(error).command);
}

/** Whether encryption is what failed, so that plain text may work. */
export function isTlsFault(error: unknown): boolean {
  const { code, cause, command } = faultOf(error);
  return code === 'ETLS' || command === 'STARTTLS' || /^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(cause);
}

/** A refusal of the message by a 5xx is final; everything else may be better later. */
export function toOutcome(error: unknown, where: string): Exclude<MailOutcome, { kind: 'sent' }> {
  const fault = faultOf(error);
  const final = fault.status >= 500 && fault.status < 600 && !isElsewhere(error) && fault.code !== 'EAUTH';
  return { kind: final ? 'failed' : 'deferred', reason: `${where}: ${fault.text}` };
}
