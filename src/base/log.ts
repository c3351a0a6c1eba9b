import { writeSync } from 'node:fs';
import { pino } from 'pino';

/**
 * Every line of the log has one of these names in its first field, `event`.
 * The list is closed, so that an operator can write alerts against it (docs/operations.md).
 */
export const EVENTS = [
  // the process
  'daemon.starting',
  'daemon.ready',
  'daemon.stopping',
  'daemon.stopped',
  'daemon.reloaded',
  'daemon.reload_refused',
  'daemon.note',
  'daemon.clock',
  'daemon.fault',
  // mail coming in
  'smtp.listening',
  'smtp.session',
  'smtp.refused',
  'smtp.tls_reloaded',
  'smtp.fault',
  'submission.note',
  'message.accepted',
  'message.refused',
  'message.parse_failed',
  // mail that accounts send
  'message.submitted',
  'message.unrecorded',
  'message.fault',
  // the queue
  'spool.recovered',
  'spool.fault',
  'spool.full',
  'spool.room',
  'spool.purged',
  // webhooks going out
  'delivery.delivered',
  'delivery.deferred',
  'delivery.failed',
  'delivery.replayed',
  'delivery.fault',
  'endpoint.opened',
  'endpoint.closed',
  'endpoint.paused',
  'endpoint.resumed',
  'endpoint.unverified',
  'worker.ended',
  // whose an inbound domain is
  'domain.taken',
  'domain.reserved',
  // events on their way from the store to the queue
  'event.unsent',
  'event.fault',
  // mail that came back, opens and clicks
  'return.handled',
  'visit.lost',
  // keys that sign mail
  'dkim.rotated',
  // mail to the operator
  'postmaster.kept',
  // reports that senders asked for
  'report.lost',
  // mail of our own
  'notice.sent',
  'notice.deferred',
  'notice.failed',
  // exports
  'export.progress',
  'export.complete',
  'export.failed',
  'export.expired',
  'export.fetched',
  'export.unnotified',
  // the API
  'api.listening',
  'api.call',
  'api.refused_key',
  'api.refused_connection',
  'api.fault',
  // dedicated addresses
  'ip.given',
  'ip.returned',
  'ip.reverse_dns',
  'ip.missing',
  // the store and the network
  'store.connected',
  'store.away',
  'store.back',
  'store.full',
  'store.room',
  'store.fault',
  'dns.fault',
  'task.run',
  'task.fault',
  'task.skipped',
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
const PLAIN = /^[ -~]*$/;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Makes text from outside safe for a terminal: no control or bidi characters, at most 256 characters. */
export function printable(text: string): string {
  const cut = text.length > LONGEST ? text.slice(0, LONGEST) + '…' : text;
  if (PLAIN.test(cut)) return cut; // nearly all of it is, and this test is much the cheaper one
  return cut.replace(UNPRINTABLE, (c) => `\\u${(c.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`);
}

/** A line before it is written: without keys, with texts made printable and errors taken apart. */
export function toLine(event: EventName, fields: Fields): Record<string, unknown> {
  const line: Record<string, unknown> = { event };
  for (const name of Object.keys(fields)) {
    const value = fields[name];
    if (name === 'key' || value === undefined) continue; // an API key never reaches a log
    line[name] = typeof value === 'string' ? printable(value) : value instanceof Error ? faultOf(value) : value;
  }
  return line;
}

function faultOf(error: Error) {
  return {
    message: printable(error.message),
    stack: error.stack
      ?.split('\n')
      .slice(1, 9)
      .map((line) => line.trim()),
  };
}

const EVENT = ',"event":';

/** pino begins a line with level and time; a person looks for the event. */
function eventFirst(line: string): string {
  const from = line.indexOf(EVENT);
  const to = line.indexOf('"', from + EVENT.length + 1) + 1;
  return `{${line.slice(from + 1, to)},${line.slice(1, from)}${line.slice(to)}`;
}

/** What needs no escaping in JSON, and nothing to be made safe. */
const SAFE = /^[ !#-[\]-~]*$/;

/**
 * The fields as pino would write them, each with a comma before it; undefined when one is more than a text, a number or a boolean.
 * Nearly every line is that plain, and pino takes three times as long.
 */
function plainFields(fields: Fields): string | undefined {
  let text = '';
  for (const name of Object.keys(fields)) {
    const value = fields[name];
    if (name === 'key' || value === undefined) continue; // an API key never reaches a log
    if (typeof value === 'string')
      text += `,"${name}":${value.length <= LONGEST && SAFE.test(value) ? `"${value}"` : JSON.stringify(printable(value))}`;
    else if (Number.isFinite(value) || typeof value === 'boolean' || value === null)
      text += `,"${name}":${String(value)}`;
    else return undefined;
  }
  return text;
}

/**
 * A log of JSON lines on standard output (or on `write`, for tests). `level` is pino's: debug, info, warn, error, silent.
 * What is said is written within some milliseconds, warnings, errors and what the process says of itself at once.
 */
export function createLog(level: string, write = createOutput()): Log {
  const timestamp = createStamp();
  const options = {
    level,
    base: null,
    timestamp,
    formatters: { level: (label: string) => ({ level: label }) },
    hooks: { streamWrite: eventFirst },
  };
  const logger = pino(options, { write });
  const at =
    (name: 'info' | 'warn' | 'error' | 'debug') =>
    (event: EventName, fields: Fields = {}) => {
      if (!logger.isLevelEnabled(name)) return;
      const plain = plainFields(fields);
      if (plain === undefined) logger[name](toLine(event, fields));
      else write(`{"event":"${event}","level":"${name}"${timestamp()}${plain}}\n`);
    };
  return Object.freeze({ info: at('info'), warn: at('warn'), error: at('error'), debug: at('debug') });
}

/** The time of a line; several lines of one millisecond share the making of it. */
function createStamp(): () => string {
  let last = 0;
  let text = '';
  return () => {
    const now = Date.now();
    if (now !== last) text = `,"time":"${new Date(now).toISOString()}"`;
    last = now;
    return text;
  };
}

/** What a person has to know of at once, and what may be the last line. */
const URGENT = /^\{"event":"daemon\.|"level":"(?:warn|error)"/;
/** Enough for the lines of one busy turn of the loop; more is written at once. */
const OUTPUT_BYTES = 8 * 1024;
/** How long a line waits for others at most. */
const OUTPUT_MS = 10;
/** How often, and after how many milliseconds, a reader that is behind is tried again. */
const TRIES = 100;
const TRY_MS = 10;

/** Writes bytes and answers how many, or throws what the system says. */
type Write = (bytes: Uint8Array) => number;

/**
 * Lines on standard output, written every few milliseconds: a system call for every line cost 5% of the main thread under
 * load, one for every turn of the loop about 3%. Mail goes before its log: lines that cannot be written, because nobody reads
 * them any more or because their disk is full, are given up, and the next ones are tried anew.
 */
export function createOutput(
  write: Write = (bytes) => writeSync(1, bytes),
  isUrgent: (line: string) => boolean = (line) => URGENT.test(line),
): (line: string) => void {
  let text = '';
  let waiting = false;
  let torn = false;
  const put = createPatience(write);

  const flush = () => {
    waiting = false;
    const bytes = Buffer.from(torn ? `\n${text}` : text);
    text = '';
    const written = put(bytes);
    // A line that was cut must not run into the next.
    if (written > 0) torn = written < bytes.byteLength && bytes[written - 1] !== 0x0a;
  };
  return (line) => {
    text += line;
    if (isUrgent(line) || text.length >= OUTPUT_BYTES) return flush();
    if (!waiting) setTimeout(flush, OUTPUT_MS);
    waiting = true;
  };
}

/** Writes all bytes it can and answers how many. A reader that is behind is waited for a second, and then not again until it reads. */
function createPatience(write: Write): (bytes: Uint8Array) => number {
  let patient = true;
  return (bytes) => {
    let at = 0;
    let tries = patient ? TRIES : 1;
    while (at < bytes.byteLength && tries > 0) {
      try {
        at += write(bytes.subarray(at));
      } catch (error) {
        tries = isBehind(error) ? tries - 1 : 0;
        if (tries > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TRY_MS);
      }
    }
    patient = at === bytes.byteLength;
    return at;
  };
}

function isBehind(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN';
}
