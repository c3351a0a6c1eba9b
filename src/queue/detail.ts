// The details of an attempt that explain its result: the connection and the dialog. Kept as JSON text, which only
// readers parse.

/** Maximum bytes of one detail in the queue file. The excess is left out and counted. */
export const DETAIL_BYTES = 4096;

/** A header field. */
export type Header = readonly [name: string, value: string];

/** An attempt over HTTP. Unknown values are absent. */
export interface HttpDetail {
  /** IP address and port; without a connection, all that were tried, separated by commas. */
  readonly address?: string | undefined;
  /** `TLSv1.3`. */
  readonly tls?: string | undefined;
  /** The connection was reused from an earlier request. */
  readonly reused?: boolean | undefined;
  /** Milliseconds. */
  readonly ms: {
    readonly dns?: number | undefined;
    readonly connect?: number | undefined;
    readonly tls?: number | undefined;
    /** From the request to the first byte of the answer. */
    readonly firstByte?: number | undefined;
  };
  /** As sent, with secrets masked. Absent if nothing was sent, or if the first attempt delivered. */
  readonly request?: readonly Header[] | undefined;
  readonly response?: readonly Header[] | undefined;
  /** The number of fields left out. */
  readonly leftOut?: number | undefined;
}

/** One connection to a mail server. */
export interface HopDetail {
  readonly host: string;
  /** IP address and port. */
  readonly address: string;
  /** Our address. */
  readonly source?: string | undefined;
  /** `TLSv1.3`. */
  readonly tls?: string | undefined;
  /** The connection was reused from an earlier message. */
  readonly reused?: boolean | undefined;
  /** Milliseconds. */
  readonly ms: number;
  /** Why it ended, if not by a reply to the message. */
  readonly error?: string | undefined;
  /** The lines of the dialog: `> ` before ours, `< ` before those of the server. */
  readonly dialog: readonly string[];
}

/** An attempt over SMTP: every connection of it, the last one last. */
export interface MailDetail {
  readonly hops: readonly HopDetail[];
  /** The number of earlier connections left out. */
  readonly leftOut?: number | undefined;
}

/** Makes the text of a detail. `brief`: for a successful first attempt, which needs no explanation. */
export type DetailText = (brief: boolean) => string | undefined;

/** Maximum characters of the value of a header field, and of a line of a dialog. */
const FIELD_CHARACTERS = 256;
const LINE_CHARACTERS = 200;

/** The text of a detail over HTTP. */
export function httpDetailText({ request, response, ...facts }: HttpDetail): string {
  if (!request) return JSON.stringify(facts);
  // The request is our own and short; the rest of the room belongs to the response.
  const sent = fitting(request.map(shownField), DETAIL_BYTES / 2);
  const bare = { ...facts, request: sent, response: [], leftOut: 10_000 };
  const received = fitting((response ?? []).map(shownField), DETAIL_BYTES - sizeOf(bare));
  const leftOut = request.length - sent.length + (response?.length ?? 0) - received.length;
  return JSON.stringify({
    ...facts,
    request: sent,
    ...(response && { response: received }),
    ...(leftOut > 0 && { leftOut }),
  });
}

/** The text of a detail over SMTP. The last connection matters most, and in each dialog its beginning and its end. */
export function mailDetailText(hops: readonly HopDetail[]): string {
  let room = DETAIL_BYTES - sizeOf({ hops: [], leftOut: 10_000 });
  const kept: HopDetail[] = [];
  for (const hop of hops.toReversed().map(shownHop)) {
    room -= sizeOf({ ...hop, dialog: [] }) + 1;
    if (room < 0) break;
    const dialog = withoutMiddle(hop.dialog, hops.length === 1 ? room : Math.floor(room / 2));
    room -= sizesOf(dialog).reduce(sum, 0);
    kept.unshift({ ...hop, dialog });
  }
  const leftOut = hops.length - kept.length;
  return JSON.stringify({ hops: kept, ...(leftOut > 0 && { leftOut }) });
}

/** Reads a text of the two above; undefined if there is none or the disk damaged it. */
export function readDetail(text: string | undefined): HttpDetail | MailDetail | undefined {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

const shownField = ([name, value]: Header): Header => [shown(name, FIELD_CHARACTERS), shown(value, FIELD_CHARACTERS)];

function shownHop({ host, error, dialog, ...rest }: HopDetail): HopDetail {
  return {
    host: shown(host, FIELD_CHARACTERS),
    ...rest,
    ...(error !== undefined && { error: shown(error, LINE_CHARACTERS) }),
    dialog: dialog.map((line) => shown(line, LINE_CHARACTERS)),
  };
}

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** Text from outside: no control or bidi characters, and not longer than `most`. */
function shown(text: string, most: number): string {
  const start = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return start.replace(UNPRINTABLE, '\ufffd');
}

/** The longest prefix of the list that fits. */
function fitting<T>(items: readonly T[], room: number): readonly T[] {
  let left = room;
  const end = sizesOf(items).findIndex((size) => (left -= size) < 0);
  return end < 0 ? items : items.slice(0, end);
}

/** The lines, shortened in the middle to fit; the last one is kept longest. */
function withoutMiddle(lines: readonly string[], room: number): readonly string[] {
  const sizes = sizesOf(lines);
  let size = sizes.reduce(sum, 0);
  if (size <= room) return lines;
  const note = (count: number) => `(${count} ${count === 1 ? 'line' : 'lines'} left out)`;
  let from = Math.floor(lines.length / 3);
  let to = from;
  size += sizeOf(note(lines.length)) + 1;
  while (size > room && to < lines.length - 1) size -= sizes[to++] ?? 0;
  while (size > room && from > 0) size -= sizes[--from] ?? 0;
  return size > room ? [] : [...lines.slice(0, from), note(to - from), ...lines.slice(to)];
}

/** Bytes of a value as JSON. */
const sizeOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

/** Bytes of each item in an array, with its comma. */
const sizesOf = (items: readonly unknown[]): readonly number[] => items.map((item) => sizeOf(item) + 1);

const sum = (a: number, b: number): number => a + b;
