import { frozen } from '../../base/frozen.ts';
import { isObject } from '../../base/json.ts';

/** The API of the source or of the target, with the key of one account. */
export type ApiClient = ReturnType<typeof createApiClient>;

/** The API answered with an error. */
export class CallRefused extends Error {
  override readonly name = 'CallRefused';
  /** The name of the error: Invalid_Key, ValidationError … */
  readonly error: string;

  constructor(error: string, message: string) {
    super(message);
    this.error = error;
  }
}

/** The server did not respond, or the response is not from such an API. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable';
}

const TIMEOUT_MS = 60_000;
const TRIES = 5;
/** The pause before a retry, doubled each time; or what Retry-After asks for, up to the second limit. */
const PAUSE_MS = 1000;
const MAX_PAUSE_MS = 60_000;
/** Temporary errors: the same call may succeed later. */
const PASSING = new Set([429, 502, 503, 504]);

/** `base` is the URL up to the version: https://host/api/1.0 */
export function createApiClient(base: string, key: string, { wait }: { wait(ms: number): Promise<unknown> }) {
  const root = base.replace(/\/+$/, '');

  async function once(url: string, body: string) {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text();
    const { status } = response;
    if (!PASSING.has(status)) return { status, text, fault: undefined };
    const waitMs = Math.min(MAX_PAUSE_MS, (Number(response.headers.get('retry-after')) || 0) * 1000);
    return { fault: new Unreachable(`${url} answered ${status}`), waitMs };
  }

  async function call(path: string, params: Readonly<Record<string, unknown>> = {}, most = TRIES): Promise<unknown> {
    const url = `${root}${path}.json`;
    const body = JSON.stringify({ key, ...params });
    for (let tries = 1; ; tries++) {
      const found = await once(url, body).catch((error: unknown) => ({
        fault: new Unreachable(`${root}: ${causeOf(error)}`),
        waitMs: 0,
      }));
      if (!found.fault) return answerOrRefusal(toJson(found.text, found.status, url), found.status);
      if (tries >= most) throw found.fault;
      await wait(Math.max(PAUSE_MS * 2 ** (tries - 1), found.waitMs));
    }
  }

  return frozen({
    /** Throws `CallRefused` for an error of the API, `Unreachable` without a proper answer. */
    call: (path: string, params?: Readonly<Record<string, unknown>>): Promise<unknown> => call(path, params),
    /** Checks URL and key; throws as `call` does, without retries. */
    async greet() {
      await call('/users/ping', {}, 1);
    },
  });
}

function toJson(text: string, status: number, url: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Unreachable(`${url} answered ${status} without JSON: is this the URL of an API?`);
  }
}

/**
 * Errors are {status: "error", name, message}: with status 500 from Mandrill, with a status of their own from Postern.
 */
export function answerOrRefusal(answer: unknown, status: number): unknown {
  if (status < 400 && !(isObject(answer) && answer.status === 'error' && typeof answer.code === 'number'))
    return answer;
  if (isObject(answer) && typeof answer.name === 'string')
    throw new CallRefused(answer.name, typeof answer.message === 'string' ? answer.message : answer.name);
  throw new Unreachable(`unexpected answer with status ${status}`);
}

/** Why there was no answer. */
export function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause : error;
  return cause.message || ('code' in cause ? String(cause.code) : cause.name);
}
