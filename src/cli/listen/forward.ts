import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isObject } from '../../base/json.ts';
import { VERSION } from '../../base/version.ts';
import { answerOrRefusal, CallRefused, causeOf, Unreachable } from '../import/client.ts';

// The two sides of `postern listen`: calls to the server, and posts to a port of this machine.

/** The response of a receiver; `status` is null without one. */
export interface Forwarded {
  readonly status: number | null;
  readonly error: string | null;
  /** The start of the answer. */
  readonly answer: string;
  readonly ms: number;
}

/** Longer than a call waits for mail. */
const CALL_MS = 60_000;
/** As long as a POST may take (webhooks.timeout_ms). */
const POST_MS = 30_000;
const MAX_ANSWER = 512;
/** Larger posts are shown without a subject. */
const MAX_PARSED = 2 * 1024 * 1024;
/** Characters of the header of a message that are parsed. */
const MAX_HEADER = 64 * 1024;

/** Calls an operation once. Throws `CallRefused` for an error of the API, `Unreachable` without a proper answer. */
export async function callOnce(
  url: string,
  params: Readonly<Record<string, unknown>>,
  stop?: AbortSignal,
): Promise<unknown> {
  const late = AbortSignal.timeout(CALL_MS);
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(params),
      redirect: 'error',
      signal: stop ? AbortSignal.any([stop, late]) : late,
    });
    return answerOrRefusal(await response.json(), response.status);
  } catch (error) {
    if (error instanceof CallRefused || error instanceof Unreachable) throw error;
    if (error instanceof SyntaxError)
      throw new Unreachable(`${new URL(url).origin} answered without JSON: is it Postern?`);
    throw new Unreachable(`no answer from ${new URL(url).origin}: ${causeOf(error)}`);
  }
}

/** Posts the bytes unchanged. Redirects are not followed, as Postern follows none. Never throws. */
export function forward(to: URL, headers: Readonly<Record<string, string>>, body: Buffer): Promise<Forwarded> {
  const began = performance.now();
  return new Promise((resolve) => {
    const end = (result: Omit<Forwarded, 'ms'>) => resolve({ ...result, ms: Math.round(performance.now() - began) });
    const failed = (error: Error) =>
      end({ status: null, error: error.name === 'AbortError' ? 'timeout' : causeOf(error), answer: '' });
    const post = (to.protocol === 'https:' ? httpsRequest : httpRequest)(
      to,
      {
        method: 'POST',
        headers: { 'User-Agent': `Postern/${VERSION}`, ...headers, 'Content-Length': body.length },
        signal: AbortSignal.timeout(POST_MS),
      },
      (response) => {
        let answer = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          if (answer.length < MAX_ANSWER) answer = `${answer}${chunk}`.slice(0, MAX_ANSWER);
        });
        response.once('error', failed);
        response.once('end', () => end({ status: response.statusCode ?? null, error: null, answer }));
      },
    );
    post.once('error', failed);
    post.end(body);
  });
}

/** The subject in a post, in base64, where it is cheap to find; else null. */
export async function subjectOfPost(type: string, base64: string): Promise<string | null> {
  if (base64.length > MAX_PARSED) return null;
  const body = Buffer.from(base64, 'base64').toString();
  try {
    if (type.startsWith('application/x-www-form-urlencoded')) return ofForm(new URLSearchParams(body));
    if (type.startsWith('application/json')) return ofJson(JSON.parse(body));
    if (type.startsWith('message/rfc822')) return await ofMessage(body);
  } catch {
    // A form that this command does not know.
  }
  return null;
}

/** Uses another parser than the daemon, as the receiving application would. */
async function ofMessage(message: string): Promise<string | null> {
  const { simpleParser } = await import('mailparser');
  const [header = ''] = message.split(/\r?\n\r?\n/, 1);
  const { subject } = await simpleParser(`${header.slice(0, MAX_HEADER)}\r\n\r\n`);
  return subject ?? null;
}

function ofForm(form: URLSearchParams): string | null {
  const events = form.get('mandrill_events');
  if (events === null) return form.get('subject');
  const parsed: unknown = JSON.parse(events);
  const [first]: readonly unknown[] = Array.isArray(parsed) ? parsed : [];
  return isObject(first) ? ofJson(first.msg) : null;
}

function ofJson(value: unknown): string | null {
  if (!isObject(value)) return null;
  const { subject, Subject, headers } = value;
  const found = subject ?? Subject ?? (isObject(headers) ? headers.subject : undefined);
  return typeof found === 'string' ? found : null;
}
