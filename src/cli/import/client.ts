import { frozen } from '../../base/frozen.ts';

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
const MOST_PAUSE_MS = 60_000;
/** Temporary errors: the same call may succeed later. */
const PASSING = new Set([429, 502, 503, 504]);

interface Waiter {
  wait(ms: number): Promise<unknown>;
}

/** `base` is the URL up to the version: https://host/api/1.0 */
export function createApiClient(base: string, key: string, { wait }: Waiter) {
  const root = base.replace(/\/+$/, '');

  async function once(
    path: string,
    body: string,
  ): Promise<{
    readonly passing: boolean;
    readonly answer: unknown;
    readonly status: number;
    readonly waitMs: number;
  }> {
    const response = await fetch(`${root}${path}.json`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text();
    const { status } = response;
    const waitMs = Math.min(MOST_PAUSE_MS, (Number(response.headers.get('retry-after')) || 0) * 1000);
    try {
      return { passing: PASSING.has(status), answer: JSON.parse(text), status, waitMs };
    } catch {
      if (PASSING.has(status)) return { passing: true, answer: undefined, status, waitMs };
      throw new Unreachable(`${root}${path}.json answered ${status} without JSON: is this the URL of an API?`);
    }
  }

  async function call(path: string, params: Readonly<Record<string, unknown>> = {}, most = TRIES): Promise<unknown> {
    const body = JSON.stringify({ key, ...params });
    for (let tries = 1; ; tries++) {
      const found = await once(path, body).catch((error: unknown) => {
        if (error instanceof Unreachable) throw error;
        return new Unreachable(`${root}: ${causeOf(error)}`);
      });
      if (!(found instanceof Error) && !found.passing) return answerOrRefusal(found.answer, found.status);
      if (tries >= most)
        throw found instanceof Error ? found : new Unreachable(`${root}${path}.json answered ${found.status}`);
      await wait(Math.max(PAUSE_MS * 2 ** (tries - 1), found instanceof Error ? 0 : found.waitMs));
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

/**
 * Errors are {status: "error", name, message}: with status 500 from Mandrill, with a status of their own from Postern.
 */
export function answerOrRefusal(answer: unknown, status: number): unknown {
  if (status < 400 && !(isRecord(answer) && answer.status === 'error' && typeof answer.code === 'number'))
    return answer;
  if (isRecord(answer) && typeof answer.name === 'string')
    throw new CallRefused(answer.name, typeof answer.message === 'string' ? answer.message : answer.name);
  throw new Unreachable(`unexpected answer with status ${status}`);
}

/** Why there was no answer. */
export function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause : error;
  return cause.message || ('code' in cause ? String(cause.code) : cause.name);
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
