// A POST as a line for a shell, to post it once more by hand.

export interface SentPost {
  readonly url: string;
  /** The header fields as they were sent. */
  readonly headers: readonly { readonly name: string; readonly value: string }[];
  /** What /inbound/payload says of the mail; undefined if it may not be read, or is forgotten. */
  readonly payload: unknown;
}

/** Curl makes these itself. */
const OF_CURL = /^(?:host|connection|content-length)$/i;
/** Secrets, of which an attempt keeps the beginning only. */
const SECRET = /^(?:authorization|cookie|.*signature)$/i;
/** What a shell takes as an argument without trouble. */
const LONGEST_BODY = 100_000;

/**
 * The line, without what a reader of it could misuse: signatures, passwords, and the query of the URL. It is ASCII
 * without control characters, because a terminal obeys some of those that a mail may hold.
 */
export function curlOf({ url, headers, payload }: SentPost): string {
  const { origin, pathname, search } = new URL(url);
  const sent = headers.filter(({ name }) => !OF_CURL.test(name) && !SECRET.test(name));
  const type = sent.find(({ name }) => name.toLowerCase() === 'content-type')?.value ?? '';
  return [
    `curl ${quoted(origin + pathname + (search && '?QUERY'))}`,
    ...sent.map(({ name, value }) => `-H ${quoted(`${name}: ${value}`)}`),
    bodyOf(type, payload),
  ].join(' \\\n  ');
}

function bodyOf(type: string, payload: unknown): string {
  if (payload === undefined) return '--data-binary @body';
  const json = asciiJson(payload);
  if (json.length > LONGEST_BODY) return '--data-binary @body';
  if (/json/i.test(type)) return `--data-binary ${quoted(json)}`;
  if (isObject(payload) && 'body' in payload && 'content_type' in payload) {
    const { body } = payload;
    return typeof body === 'string' && /^[\x20-\x7e]*$/.test(body)
      ? `--data-binary ${quoted(body)}`
      : '--data-binary @body';
  }
  return `--data-urlencode ${quoted(`mandrill_events=[${json}]`)}`;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll(
    /[\u007f-\uffff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

const quoted = (text: string): string => `'${text.replaceAll(/[^\x20-\x7e]/g, '?').replaceAll("'", `'\\''`)}'`;
