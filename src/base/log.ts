import { pino } from 'pino';

/**
 * Every line of the log has one of these names in its first field, `event`.
 * The list is closed, so that an operator can write alerts against it (docs/operations.md).
 */
export const EVENTS = [
  // the process
  'daemon.starting', 'daemon.ready', 'daemon.stopping', 'daemon.stopped', 'daemon.reloaded',
  'daemon.reload_refused', 'daemon.note', 'daemon.fault',
  // mail coming in
  'smtp.listening', 'smtp.session', 'smtp.refused', 'smtp.tls_reloaded', 'smtp.fault',
  'message.accepted', 'message.refused', 'message.parse_failed',
  // the queue
  'spool.recovered', 'spool.fault', 'spool.full', 'spool.room', 'spool.purged',
  // webhooks going out
  'delivery.delivered', 'delivery.deferred', 'delivery.failed', 'delivery.replayed', 'delivery.fault',
  'endpoint.opened', 'endpoint.closed', 'endpoint.paused', 'endpoint.resumed', 'worker.ended',
  // the API
  'api.listening', 'api.call', 'api.refused_key', 'api.fault',
  // the store and the network
  'store.connected', 'store.away', 'store.back', 'dns.fault', 'task.run', 'task.fault',
] as const;

export type EventName = (typeof EVENTS)[number];
export type Fields = Readonly<Record<string, unknown>>;

/** The log: one call is one line, and one line is one thing that happened. */
export interface Log {
  info(event: EventName, fields?: Fields): void;
  warn(event: EventName, fields?: Fields): void;
  error(event: EventName, fields?: Fields): void;
  debug(event: EventName, fields?: Fields): void;
}

const LONGEST = 256;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Makes text from outside safe for a terminal: no control or bidi characters, at most 256 characters. */
export function printable(text: string): string {
  const cut = text.length > LONGEST ? text.slice(0, LONGEST) + '…' : text;
  return cut.replace(UNPRINTABLE, (c) => `\\u${(c.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`);
}

function tidy(fields: Fields): Fields {
  const clean: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'key' || value === undefined) continue; // an API key never reaches a log
    clean[name] = typeof value === 'string' ? printable(value) : value instanceof Error ? faultOf(value) : value;
  }
  return clean;
}

function faultOf(error: Error) {
  return { message: printable(error.message), stack: error.stack?.split('\n').slice(1, 9).map((line) => line.trim()) };
}

/** pino begins a line with level and time; a person looks for the event. */
function eventFirst(line: string): string {
  return line.replace(/^\{("level":"\w+","time":"[^"]+"),("event":"[\w.]+")/, '{$2,$1');
}

/** A log of JSON lines on standard output (or on `write`, for tests). `level` is pino's: debug, info, warn, error, silent. */
export function createLog(level: string, write?: (line: string) => void): Log {
  const options = {
    level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    hooks: { streamWrite: eventFirst },
  };
  const logger = write ? pino(options, { write }) : pino(options);
  const at = (name: 'info' | 'warn' | 'error' | 'debug') => (event: EventName, fields: Fields = {}) => {
    if (logger.isLevelEnabled(name)) logger[name]({ event, ...tidy(fields) });
  };
  return Object.freeze({ info: at('info'), warn: at('warn'), error: at('error'), debug: at('debug') });
}
