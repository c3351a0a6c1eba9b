import type { AttemptError } from '../types.ts';

/** Where an attempt was when it failed. */
export interface Progress {
  /** The request was being sent or answered; before that it was connecting. */
  readonly connected: boolean;
  readonly secure: boolean;
}

const UNREACHABLE = new Set([
  'ENETUNREACH',
  'EHOSTUNREACH',
  'ETIMEDOUT',
  'EADDRNOTAVAIL',
  'ENETDOWN',
  'EHOSTDOWN',
  'EMFILE',
  'ENFILE',
  'EACCES',
  'EPERM',
  'EINVAL',
]);
const TIMEOUTS = new Set(['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']);
const MALFORMED = new Set([
  'UND_ERR_HEADERS_OVERFLOW',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
  'UND_ERR_RES_EXCEEDED_MAX_SIZE',
]);
const CUT = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET', 'UND_ERR_CLOSED', 'UND_ERR_DESTROYED']);

/** What a failure is called where users see it. The texts of libraries never get that far. */
export function toAttemptError(error: unknown, { connected, secure }: Progress): AttemptError {
  const code = codeOf(error);
  if (TIMEOUTS.has(code)) return 'timeout';
  if (connected) return MALFORMED.has(code) || code.startsWith('HPE_') ? 'malformed answer' : 'connection reset';
  if (code === 'ECONNREFUSED') return 'connection refused';
  if (UNREACHABLE.has(code)) return 'connection failed';
  // An https connection that ended before it was one: the other end spoke no TLS, or gave up on ours.
  if (secure) return 'TLS failure';
  return CUT.has(code) ? 'connection reset' : 'connection failed';
}

/** Of several addresses that all failed, the code that they share; else that of an unreachable host. */
function codeOf(error: unknown): string {
  if (error instanceof AggregateError) {
    const codes = new Set(error.errors.map(codeOf));
    const [code] = codes;
    return codes.size === 1 && code !== undefined ? code : 'EHOSTUNREACH';
  }
  // The parser's errors do not always carry a code.
  if (error instanceof Error && error.name === 'HTTPParserError') return 'HPE_INVALID';
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return typeof error.code === 'string' ? error.code : '';
}
