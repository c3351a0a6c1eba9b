import { z } from 'zod';
import { runInSlices } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { JsonText } from '../webhooks/message-views.ts';
import type { AccountParts } from './account/account.ts';
import { type About, type CommonError, type ErrorName, type Faults, invalid, missing, type Refusal } from './errors.ts';
import { createSchemaReader, type Issue } from './requests/param-coercion.ts';
import type { Params } from './requests/parameters.ts';
import type { Pages } from './streamed-lists.ts';

/** What a handler receives: the parts of one account, and how to refuse. */
export interface Call<E extends ErrorName> extends AccountParts {
  /** Creates an error that the operation declares, or a common one; the compiler rejects others. Throw it. */
  refuse<N extends E | CommonError>(name: N, ...about: About<N>): Refusal;
  /** Returns `found`. Throws such an error if it is undefined. */
  orRefuse<T, N extends E | CommonError>(found: T | undefined, name: N, ...about: About<N>): T;
}

export type Path = `/${string}/${string}`;

/**
 * The access that an operation needs, by which the console decides who may call it: `numbers` and states · `mail`:
 * searching, envelopes, refusals, replaying · `content` of mail · `settings`: everything else of an account, and URLs
 * with their passwords and queries · `secrets`: creating, showing and changing keys. An API key may call all of them.
 */
export type Access = 'numbers' | 'mail' | 'content' | 'settings' | 'secrets';

interface Described<N extends Path, P extends z.ZodRawShape, R extends z.ZodType, E extends ErrorName> {
  readonly path: N;
  readonly access: Access;
  /** Fields of the record about single mails: empty for callers who may see only numbers. */
  readonly mailFields?: readonly string[];
  readonly summary: string;
  /** Details for the reference, after the summary. */
  readonly notes?: string;
  /** Not part of Mandrill's documented API. */
  readonly extension?: boolean;
  /** The body may carry a whole message, or a template. */
  readonly large?: boolean;
  /** A call may wait for an event, so its duration says nothing about this host. */
  readonly waits?: boolean;
  readonly params: P;
  /** Parameters that may hold NUL and lone surrogates: the operation has an error of its own for them. */
  readonly anyText?: readonly (string & keyof P)[];
  /** Fills in required parameters that may be omitted, depending on others. */
  readonly defaults?: (given: Given) => Given;
  readonly returns: R;
  /** Its own errors, besides COMMON_ERRORS. */
  readonly errors?: readonly E[];
  /** The error that says that a thing is not on this host; then the other hosts of the store are asked. */
  readonly notHereError?: E;
  /** Must not run on two hosts: others are asked one after another, until one answers or its answer is lost. */
  readonly once?: boolean;
  /** The parameters of an example call, if any. A test runs it; `npm run docs` records its answer for the reference. */
  readonly example?: Given;
}

/** The parameters as received. */
type Given = Readonly<Record<string, unknown>>;

interface Declaration<
  N extends Path,
  P extends z.ZodRawShape,
  R extends z.ZodType,
  E extends ErrorName,
  Q extends z.ZodType,
> extends Described<N, P, R, E> {
  handle(params: z.output<z.ZodObject<P>>, call: Call<E>): Promise<z.input<R>>;
  /** Merges the answers of several hosts; absent: its answer does not depend on the host. */
  readonly across?: AcrossDeclaration<P, E, Q, z.input<R>>;
}

interface ListDeclaration<N extends Path, P extends z.ZodRawShape, R extends z.ZodType, E extends ErrorName>
  extends Described<N, P, z.ZodArray<R>, E> {
  pages(params: z.output<z.ZodObject<P>>, call: Call<E>): Pages<z.input<R>>;
  /** Merges the lists of all hosts. */
  readonly across?: JoinDeclaration<P, E, readonly z.output<R>[], Pages<z.input<R>>>;
}

interface TextDeclaration<N extends Path, P extends z.ZodRawShape, R extends z.ZodType, E extends ErrorName>
  extends Described<N, P, R, E> {
  text(params: z.output<z.ZodObject<P>>, call: Call<E>): Promise<JsonText>;
  readonly across?: JoinDeclaration<P, E, JsonText, JsonText>;
}

/** A host that an operation can ask. */
export interface AskedHost<A> {
  readonly id: string;
  /**
   * Its answer to the call, with `change` in place of some parameters. Undefined: it does not have the thing, or does
   * not answer; then the merged answer names it as missing.
   */
  ask(change?: Given): Promise<A | undefined>;
  /** Names it in the merged answer as missing, without asking it. */
  leaveOut(): void;
}

/** This host and the others of the store. */
export interface Hosts<A> {
  readonly here: AskedHost<A>;
  readonly others: readonly AskedHost<A>[];
}

interface JoinDeclaration<P extends z.ZodRawShape, E extends ErrorName, A, J> {
  /** The longest that another host may take to answer, if not ten seconds. */
  readonly patienceMs?: number;
  /** Merges the answers of hosts. Undefined: none of them has the thing. */
  join(hosts: Hosts<A>, params: z.output<z.ZodObject<P>>, call: Call<E>): Promise<J | undefined>;
}

interface AcrossDeclaration<P extends z.ZodRawShape, E extends ErrorName, Q extends z.ZodType, J>
  extends JoinDeclaration<P, E, z.output<Q>, J> {
  /** The schema of the answer of each host; absent: as `returns`. */
  readonly part?: Q;
  /** Makes the answer of this host; absent: as `handle`. */
  own?(params: z.output<z.ZodObject<P>>, call: Call<E>): Promise<z.input<Q>>;
}

/**
 * The result of a call: a record, the records of a list that is answered whole, or a record that is JSON text already.
 */
export type Answer = ({ readonly record: unknown } | { readonly pages: Pages } | { readonly text: JsonText }) & {
  /** Names of hosts that are missing from it. */
  readonly missing?: readonly string[];
};

/** A host that answers an operation of any kind. `read` throws if this version does not know the answer. */
export interface AnsweringHost extends Pick<AskedHost<never>, 'id' | 'leaveOut'> {
  ask<A>(change: Given, read: (answer: Answer) => Promise<A> | A): Promise<A | undefined>;
}

/** Runs an operation for all hosts. */
interface AcrossHosts {
  readonly patienceMs: number | undefined;
  /** The answer of one host. */
  part(params: Params, call: Call<ErrorName>): Promise<Answer>;
  join(
    hosts: { readonly here: AnsweringHost; readonly others: readonly AnsweringHost[] },
    params: Params,
    call: Call<ErrorName>,
  ): Promise<Answer | undefined>;
}

/** An operation, with the types of its parameters and record erased. */
export interface Operation
  extends Required<
    Omit<Described<Path, z.ZodRawShape, z.ZodType, ErrorName>, 'params' | 'notHereError' | 'anyText' | 'defaults'>
  > {
  readonly params: z.ZodObject;
  readonly notHereError: ErrorName | undefined;
  readonly across: AcrossHosts | undefined;
  /**
   * Validates the parameters, reporting all faults together, and runs the operation. Throws refusals; so do pages while
   * they are read.
   */
  run(params: Params, call: Call<ErrorName>): Promise<Answer>;
}

/** An operation with the types of its declaration, for the page of the console, which calls it by its path. */
interface Declared<N extends Path, P extends z.ZodRawShape, R extends z.ZodType> extends Operation {
  readonly path: N;
  readonly params: z.ZodObject<P>;
  readonly returns: R;
}

/** The parameters of a call. */
export type ParamsOf<O extends Pick<Operation, 'params'>> = z.input<O['params']>;
export type AnswerOf<O extends Pick<Operation, 'returns'>> = z.input<O['returns']>;

/** Declares an operation. Validation, types, routing, OpenAPI and the reference are derived from it. */
export function operation<
  N extends Path,
  P extends z.ZodRawShape,
  R extends z.ZodType,
  const E extends ErrorName = never,
  Q extends z.ZodType = R,
>(declaration: Declaration<N, P, R, E, Q>): Declared<N, P, R> {
  const { across, handle, returns } = declaration;
  const { part = returns, own = handle } = across ?? {};
  return declare(
    declaration,
    async (params, call) => ({ record: await handle(params, call) }),
    across && {
      ...across,
      own: async (params, call) => ({ record: await own(params, call) }),
      read: (answer) => part.parse(recordOf(answer)),
      toAnswer: (record) => ({ record }),
    },
  );
}

/** Declares an operation that answers a list whole, however long it is. */
export function listOperation<
  N extends Path,
  P extends z.ZodRawShape,
  R extends z.ZodType,
  const E extends ErrorName = never,
>(declaration: ListDeclaration<N, P, R, E>): Declared<N, P, z.ZodArray<R>> {
  const own = async (params: z.output<z.ZodObject<P>>, call: Call<E>) => ({ pages: declaration.pages(params, call) });
  const { across, returns } = declaration;
  return declare(
    declaration,
    own,
    across && {
      ...across,
      own,
      read: async (answer) => returns.parse(await wholeOf(answer)),
      toAnswer: (pages: Pages<z.input<R>>) => ({ pages }),
    },
  );
}

/** Declares an operation whose record may be large: it is made as JSON text elsewhere and passed on. */
export function textOperation<
  N extends Path,
  P extends z.ZodRawShape,
  R extends z.ZodType,
  const E extends ErrorName = never,
>(declaration: TextDeclaration<N, P, R, E>): Declared<N, P, R> {
  const own = async (params: z.output<z.ZodObject<P>>, call: Call<E>) => ({
    text: await declaration.text(params, call),
  });
  const { across } = declaration;
  return declare(
    declaration,
    own,
    across && { ...across, own, read: textOf, toAnswer: (text: JsonText) => ({ text }) },
  );
}

function recordOf(answer: Answer): unknown {
  if (!('record' in answer)) throw new Error('the answer is not a record');
  return answer.record;
}

function textOf(answer: Answer): JsonText {
  if (!('text' in answer)) throw new Error('the answer is not a text');
  return answer.text;
}

/** The answer as one record, with a list read whole: the form in which hosts answer each other. */
export async function wholeOf(answer: Answer): Promise<unknown> {
  if (!('pages' in answer)) return recordOf(answer);
  const records: unknown[] = [];
  for await (const page of answer.pages) for (const record of page) records.push(record);
  return records;
}

/** An operation over all hosts: how this host answers, and how the answer of any host is read. */
interface AcrossImplementation<P extends z.ZodRawShape, E extends ErrorName, A, J> extends JoinDeclaration<P, E, A, J> {
  own(params: z.output<z.ZodObject<P>>, call: Call<E>): Promise<Answer>;
  read(answer: Answer): Promise<A> | A;
  toAnswer(joined: J): Answer;
}

function declare<N extends Path, P extends z.ZodRawShape, R extends z.ZodType, E extends ErrorName, A, J>(
  declaration: Described<N, P, R, E>,
  answer: (params: z.output<z.ZodObject<P>>, call: Call<E>) => Promise<Answer>,
  reach: AcrossImplementation<P, E, A, J> | undefined,
): Declared<N, P, R> {
  const { path, access, mailFields = [], summary, notes = '', extension = false, large = false } = declaration;
  const { waits = false, once = false, params, returns, notHereError, example = {} } = declaration;
  const shape = z.object(params);
  const read = createParamsReader(shape, declaration);
  return frozen({
    path,
    access,
    mailFields: mailFields,
    summary,
    notes,
    extension,
    large,
    waits,
    once,
    returns,
    errors: [...(notHereError === undefined ? [] : [notHereError]), ...(declaration.errors ?? [])],
    notHereError,
    example,
    params: shape,
    across: reach && toAcrossHosts(reach, read),
    run: async (given, call) => answer(await read(given), call),
  });
}

function toAcrossHosts<P extends z.ZodRawShape, E extends ErrorName, A, J>(
  { patienceMs, own, read, toAnswer, join }: AcrossImplementation<P, E, A, J>,
  readParams: (given: Params) => Promise<z.output<z.ZodObject<P>>>,
): AcrossHosts {
  const asked = ({ id, leaveOut, ask }: AnsweringHost): AskedHost<A> => ({
    id,
    leaveOut,
    ask: (change = {}) => ask(change, read),
  });
  return frozen({
    patienceMs,
    part: async (given, call) => own(await readParams(given), call),
    async join({ here, others }, given, call) {
      const params = await readParams(given);
      const joined = await join({ here: asked(here), others: others.map(asked) }, params, call);
      return joined === undefined ? undefined : toAnswer(joined);
    },
  });
}

type ReaderOptions = {
  readonly [K in 'defaults' | 'anyText']?: Described<Path, z.ZodRawShape, z.ZodType, ErrorName>[K];
};

/** Creates the validation of parameters. It throws a refusal that reports all faults together. */
export function createParamsReader<S extends z.ZodObject>(
  shape: S,
  { defaults = () => ({}), anyText = [] }: ReaderOptions = {},
): (given: Params) => Promise<z.output<S>> {
  const names = Object.keys(shape.shape);
  const schemaReader = createSchemaReader(shape);
  return async (given) => {
    await given.turn?.();
    const values = given.of(names, anyText);
    const read = await runInSlices(schemaReader({ ...defaults(values), ...values }, given.textOnly));
    if (!read.success) throw toRefusal(read.issues, given, names);
    return read.data;
  };
}

/**
 * A missing parameter is reported alone, because its error has another code; otherwise every faulty field with its
 * first fault.
 */
function toRefusal(issues: readonly Issue[], given: Params, names: readonly string[]): Refusal {
  const faulty = new Set(issues.map((issue) => String(issue.path[0])));
  const absent = names.find((name) => faulty.has(name) && given.get(name) === undefined);
  if (absent !== undefined) return missing(absent);
  const faults: Record<string, string> = {};
  for (const issue of issues) faults[String(issue.path[0])] ??= toPosition(issue.path) + issue.message;
  return invalid(faults satisfies Faults);
}

/** The position inside a parameter: `[3]: ` or `[0].name: `. */
function toPosition([, ...inner]: readonly PropertyKey[]): string {
  if (inner.length === 0) return '';
  return inner.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('') + ': ';
}
