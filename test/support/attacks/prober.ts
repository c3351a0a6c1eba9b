import { COMMON_ERRORS, ERRORS, type ErrorName } from '../../../src/api/errors.ts';
import type { Operation } from '../../../src/api/operation.ts';
import { COMPUTED } from './payloads.ts';
import { type Position, paramsWith, positionsOf, takes, typeOf } from './positions.ts';

/** What one call showed that it should not have. */
export interface Finding {
  readonly kind:
    | 'status'
    | 'fault'
    | 'undeclared'
    | 'shape'
    | 'taken'
    | 'unnamed'
    | 'header'
    | 'computed'
    | 'hang'
    | 'polluted';
  readonly where: string;
}

export interface Probed {
  asked: number;
  /** Calls that came as far as the handler. */
  handled: number;
  readonly findings: Finding[];
}

interface Payloads {
  readonly others: readonly unknown[];
  readonly texts: readonly string[];
  /** How many neighbouring positions share them, 1 unless given; a position that stands alone takes all. */
  readonly shared?: number;
}

export interface Target {
  readonly base: string;
  readonly key: string;
  readonly hangMs?: number;
}

/** Long enough for a busy machine; what takes longer hangs. */
const HANG_MS = 20_000;
const AT_ONCE = 16;

/** Attacks every position in the parameters of an operation at `base`, and says what went wrong. */
export async function probe(
  operation: Operation,
  { base, key, hangMs = HANG_MS }: Target,
  { others, texts, shared = 1 }: Payloads,
): Promise<Probed> {
  const probed: Probed = { asked: 0, handled: 0, findings: [] };
  const before = prototypes();
  const positions = positionsOf(operation);
  const calls = positions.flatMap((position, at) =>
    [...(position.isName ? [] : others), ...texts]
      .filter((_, n) => positions.length === 1 || (n + at) % shared === 0)
      // The clock of these worlds stands still: a call that may wait for seconds would wait for ever.
      .filter((value) => position.name !== 'wait' || !isWholeNumber(value))
      .map((value) => ({ position, value })),
  );
  const workers = Array.from({ length: AT_ONCE }, async () => {
    for (let call = calls.pop(); call; call = calls.pop()) {
      const body = JSON.stringify({ ...paramsWith(operation, call.position, call.value), key });
      await judge(
        operation,
        call.position,
        call.value,
        await ask(`${base}/api/1.0${operation.path}.json`, body, hangMs),
        probed,
      );
    }
  });
  await Promise.all(workers);
  if (prototypes() !== before) probed.findings.push({ kind: 'polluted', where: operation.path });
  return probed;
}

interface Seen {
  readonly status: number;
  readonly text: string;
  readonly injected: boolean;
}

async function ask(url: string, body: string, hangMs: number): Promise<Seen | 'hang'> {
  try {
    const response = await fetch(url, { method: 'POST', body, signal: AbortSignal.timeout(hangMs) });
    return { status: response.status, text: await response.text(), injected: response.headers.has('x-injected') };
  } catch {
    return 'hang';
  }
}

async function judge(
  operation: Operation,
  position: Position,
  value: unknown,
  seen: Seen | 'hang',
  probed: Probed,
): Promise<void> {
  const found = (kind: Finding['kind'], detail = '') => {
    probed.findings.push({
      kind,
      where: `${operation.path} ${position.name} ${JSON.stringify(value)?.slice(0, 80)} ${detail.slice(0, 200)}`,
    });
  };
  probed.asked++;
  if (seen === 'hang') return found('hang');
  const { status, text } = seen;
  if (seen.injected) found('header');
  if (text.includes(COMPUTED)) found('computed', text);
  const body: unknown = parsed(text);
  if (status === 200) {
    probed.handled++;
    if (!means(position, value)) found('taken', text);
    return;
  }
  if (!isEnvelope(body)) return found('shape', `${status} ${text}`);
  if (body.name === 'GeneralError') found('fault', text);
  else if (status >= 500) found('status', `${status} ${text}`);
  else if (!declared(operation, body.name, status)) found('undeclared', `${status} ${text}`);
  if (body.name !== 'ValidationError') probed.handled++;
  if (!means(position, value) && !names(body, position)) found('unnamed', `${status} ${text}`);
}

function isWholeNumber(value: unknown): boolean {
  return (typeof value === 'string' || typeof value === 'number') && Number.isInteger(Number(value));
}

/**
 * What a parameter may hold. An empty text stands for none at all, and numbers and truth may be spelled otherwise, as old
 * clients send them. PHP writes an empty struct as a list, and gochimp writes a map as a list of structs.
 */
function means(position: Position, value: unknown): boolean {
  if (value === '' || takes(position, value)) return true;
  if (Array.isArray(value) && value.length === 0) return takes(position, {}) && position.steps.at(-1) !== 'item';
  if (Array.isArray(value)) return position.isMap && value.every((item) => typeOf(item) === 'object');
  if (typeof value !== 'string' && typeof value !== 'number') return false;
  if (takes(position, true) && /^(?:true|false|on|off|yes|no|1|0)$/i.test(String(value))) return true;
  return typeof value === 'string' && /^-?\d{1,15}(?:\.\d{1,15})?$/.test(value) && takes(position, Number(value));
}

/** A refusal of what is of another kind says which parameter it is about; an empty map of nulls counts as left out. */
function names(body: Envelope, { parameter }: Position): boolean {
  return (
    body.name === 'ValidationError' &&
    (body.message.includes(`"${parameter}":`) ||
      body.message === `You must specify a ${parameter} value` ||
      body.message.includes('"body":'))
  );
}

interface Envelope {
  readonly name: string;
  readonly message: string;
}

function isEnvelope(body: unknown): body is Envelope {
  return (
    typeof body === 'object' &&
    body !== null &&
    Object.keys(body).toSorted().join() === 'code,message,name,status' &&
    'name' in body &&
    'message' in body &&
    typeof body.message === 'string'
  );
}

function declared(operation: Operation, name: string, status: number): boolean {
  const names: readonly ErrorName[] = [...COMMON_ERRORS, ...operation.errors];
  return names.some((one) => one === name && (ERRORS[one].status === status || status === 413));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What stands on the prototypes that everything shares. */
export function prototypes(): string {
  const shared = [Object, Array, Function, String, Number, Boolean, Map, Set, Date, Promise, RegExp, Error, Buffer];
  return shared.map(({ prototype }) => Object.getOwnPropertyNames(prototype).join()).join('\n');
}
