import { signal } from '@preact/signals';
import type { Answer, Operation, Params } from './operations.ts';

// Calls of the server: sign-in, and operations by session.

/** Something that did not work, in words for people. */
export class Failed extends Error {
  override readonly name = 'Failed';
  readonly kind: string;
  readonly status: number;

  constructor(kind: string, message: string, status: number) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

/** Since when the store is away; lists may be old then. */
export const awaySince = signal<number | undefined>(undefined);
/** The hosts of the store that have no part in an answer, by the path of the call. */
export const hostsMissing = signal<ReadonlyMap<string, string>>(new Map());
/** Told when the session has ended. */
export const signedOut = signal(0);
/** The account that calls are about; only operators have a choice. */
export const chosenAccount = signal<string | undefined>(undefined);

/** A session has eight calls at a time, and those of a screen that was left may take a moment to end. */
const BUSY_TRIES = 10;
const BUSY_MS = 1000;

/** Runs an operation such as `inbound/search`. Waits for a slot if this session has too many calls. */
export async function call<N extends Operation>(
  operation: N,
  params: Params<N>,
  stop?: AbortSignal,
): Promise<Answer<N>> {
  for (let tries = 1; ; tries++)
    try {
      return await ask<Answer<N>>('POST', `/console/call/${operation}`, params, stop);
    } catch (error) {
      if (!(error instanceof Failed) || error.kind !== 'Too_Many_Tries' || tries === BUSY_TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, BUSY_MS));
    }
}

/** A call that waits until the visitor has entered the password again. */
interface Confirming {
  /** What the server said. */
  readonly text: string;
  goOn(): void;
  giveUp(): void;
}

export const confirming = signal<Confirming | undefined>(undefined);
let waiting: Promise<void> | undefined;

/** Waits for the password. Several calls wait for the same one. */
function confirmed(error: Failed): Promise<void> {
  waiting ??= new Promise<void>((resolve, reject) => {
    confirming.value = { text: error.message, goOn: resolve, giveUp: () => reject(error) };
  }).finally(() => {
    confirming.value = undefined;
    waiting = undefined;
  });
  return waiting;
}

type Asked = [method: 'GET' | 'POST' | 'DELETE', path: string, body?: object, stop?: AbortSignal];

/** Asks the server, and for the password if the server wants it again. Throws `Failed`. */
export async function ask<T>(...asked: Asked): Promise<T> {
  try {
    return await askOnce<T>(...asked);
  } catch (error) {
    if (!(error instanceof Failed) || error.kind !== 'Confirm_Password') throw error;
    await confirmed(error);
    return askOnce<T>(...asked);
  }
}

async function askOnce<T>(...asked: Asked): Promise<T> {
  const answer = await request(...asked);
  const [, path] = asked;
  if (answer.ok) {
    awaySince.value = undefined;
    noteMissing(path, answer.headers.get('Postern-Hosts-Missing'));
    return answer.status === 204 ? (undefined as T) : ((await answer.json()) as T);
  }
  throw await toFailed(answer, path);
}

function noteMissing(path: string, hosts: string | null): void {
  if ((hostsMissing.value.get(path) ?? null) === hosts) return;
  const next = new Map(hostsMissing.value);
  next.delete(path);
  if (hosts !== null) next.set(path, hosts);
  hostsMissing.value = next;
}

const FAULTS = /^Validation error: (\{.*\})$/s;

/** The fault of each parameter, as the API reports it. */
export function faultsOf(error: unknown): Readonly<Record<string, string>> {
  const found = error instanceof Failed && error.kind === 'ValidationError' ? FAULTS.exec(error.message) : null;
  try {
    return found?.[1] === undefined ? {} : JSON.parse(found[1]);
  } catch {
    return {};
  }
}

async function request(...[method, path, body, stop]: Asked): Promise<Response> {
  const account = chosenAccount.value;
  try {
    return await fetch(path, {
      method,
      headers: {
        'Postern-Console': '1',
        ...(body && { 'Content-Type': 'application/json' }),
        ...(account !== undefined && { 'Postern-Account': account }),
      },
      ...(body && { body: JSON.stringify(body) }),
      ...(stop && { signal: stop }),
    });
  } catch (error) {
    if (stop?.aborted) throw error;
    throw new Failed('Unreachable', 'Postern is not responding. Check that it is running.', 0);
  }
}

export async function toFailed(answer: Response, path: string): Promise<Failed> {
  const { name = '', message = '' } = await answer.json().catch(() => ({}));
  if (name === 'Signed_Out' && path !== '/console/me') signedOut.value++;
  if (name === 'ServiceUnavailable') awaySince.value ??= Date.now();
  return new Failed(name, message || `The server answered with HTTP ${answer.status}.`, answer.status);
}
