import { Readable } from 'node:stream';
import type { Context, Middleware } from 'koa';
import { z } from 'zod';
import { toBuffer } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import type { HostRow, TokenSecret } from '../../store/rows/hosts.ts';
import type { Store } from '../../store/store.ts';
import type { PartsOf } from '../account/account.ts';
import { ERRORS, type ErrorName, Refusal, refusal, toEnvelope } from '../errors.ts';
import { abortOnClose } from '../http/bounded-server.ts';
import { type Answer, type AnsweringHost, type Call, type Operation, wholeOf } from '../operation.ts';
import { type Params, paramsOf } from '../requests/parameters.ts';
import { type OtherHost, otherHost, type RpcHandler } from './host-rpc.ts';
import { createCallNumbers, createPeerWire, PEER_PATH, PING, readAtMost, toRefusal } from './peer-wire.ts';

// Hosts that share a store answer calls as one. A call that names a thing of one host, such as mail in its queue, is
// forwarded to the other hosts if this one does not have it. A call about the data of all hosts, such as a search, is
// forwarded to all of them, and their answers are merged. A forwarded call is not forwarded again.

/** Present if the answer is a record, not a text to pass on unchanged. */
const IS_RECORD = 'postern-record';
/** How long a host may take to answer a call about one thing, which may be a trial POST. Milliseconds. */
const ONE_THING_MS = 40_000;
const JOINED_MS = 10_000;
/** Texts up to this size are read at once, larger ones while the client reads them. */
const SMALL_BYTES = 65_536;
const MAX_RECORD_BYTES = 64 * 1024 * 1024;

const forwarded = z.strictObject({
  account: z.string(),
  apiKey: z.string().nullable(),
  person: z.string().nullable(),
  params: z.record(z.string(), z.unknown()),
});

export interface PeerSettings {
  /** Whether the store is a file of this host, so that there are no other hosts. */
  readonly alone: boolean;
}

interface PeerDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'hosts' | 'accounts'>;
  readonly tokenSecret: TokenSecret;
  /** This host, and this process of it. */
  readonly member: { id(): string; readonly incarnation: string };
  readonly operations: readonly Operation[];
  readonly partsOf: PartsOf;
  /** Answers to remote calls about this host and all accounts. */
  readonly answers: readonly RpcHandler[];
  /** Answers with a file of this host, by path. */
  readonly files: (ctx: Context, path: string) => Promise<void>;
}

/** The path of calls for files, and the headers that they pass on. */
const FILES = '/files';
const ASKED = ['range', 'if-range', 'if-none-match'] as const;
const ANSWERED = [
  'accept-ranges',
  'content-disposition',
  'content-length',
  'content-range',
  'content-type',
  'etag',
] as const;

const fileCall = z.strictObject({ path: z.string(), headers: z.partialRecord(z.enum(ASKED), z.string()) });

/** The answer of another host to a forwarded call. */
type PeerAnswer = { readonly found: Answer } | { readonly refused: Refusal };

export type Peers = ReturnType<typeof createPeers>;

export function createPeers({ alone }: PeerSettings, deps: PeerDeps) {
  const { store, operations, partsOf, answers, log } = deps;
  const wire = createPeerWire({ ...deps, nextCall: createCallNumbers() });
  const others = async (): Promise<readonly HostRow[]> => (alone ? [] : wire.others());

  /** Asks one host. Undefined if it is not running, has no URL, does not answer, or does not know the operation. */
  function ask(
    host: HostRow,
    { path, waits, once }: Operation,
    params: Readonly<Record<string, unknown>>,
    call: Call<ErrorName>,
    ms: number,
  ): Promise<PeerAnswer | undefined> {
    const { account, apiKey, person, gone } = call;
    const body = { account: account.id, apiKey, person, params } satisfies z.input<typeof forwarded>;
    const lost = once ? { refused: mayBeDone(host) } : undefined;
    return wire.call(host, path, body, { ms, gone: waits ? gone : undefined, lost }, toPeerAnswer);
  }

  /** Asks the other hosts for a thing that this one does not know. */
  async function find(operation: Operation, given: Params, call: Call<ErrorName>, unknown: Refusal): Promise<Answer> {
    const hosts = await others();
    const params = given.of(Object.keys(operation.params.shape));
    const toAnswer = (host: HostRow) => ask(host, operation, params, call, ONE_THING_MS);
    const answers = operation.once ? await untilDone(hosts, toAnswer, unknown) : await Promise.all(hosts.map(toAnswer));
    const [found, ...more] = answers.flatMap((answer) => (answer && 'found' in answer ? [answer.found] : []));
    for (const one of more) discard(one);
    if (found) return found;
    for (const answer of answers)
      if (answer && 'refused' in answer && answer.refused.name !== unknown.name) throw answer.refused;
    throw mayBeOn(
      unknown,
      hosts.filter((_, n) => answers[n] === undefined).map(({ name }) => name),
    );
  }

  /** Merges the answers of all hosts. */
  async function join(
    operation: Operation,
    across: NonNullable<Operation['across']>,
    given: Params,
    call: Call<ErrorName>,
    hosts: readonly HostRow[],
  ): Promise<Answer> {
    const names = Object.keys(operation.params.shape);
    const missing = new Set<string>();
    let unknown: Refusal | undefined;
    const isUnknown = (error: unknown): error is Refusal =>
      error instanceof Refusal && error.name === operation.notHereError;

    const here: AnsweringHost = {
      id: deps.member.id(),
      leaveOut() {},
      async ask(change, read) {
        try {
          return await read(await across.part(changed(given, change), call));
        } catch (error) {
          if (!isUnknown(error)) throw error;
          unknown ??= error;
          return undefined;
        }
      },
    };
    const toAsked = (host: HostRow): AnsweringHost => ({
      id: host.id,
      leaveOut: () => missing.add(host.name),
      async ask(change, read) {
        if (missing.has(host.name)) return undefined;
        const params = { ...given.of(names), ...change };
        const answer = await ask(host, operation, params, call, across.patienceMs ?? JOINED_MS);
        if (answer && 'refused' in answer) {
          if (answer.refused.name === 'RequestLimitExceeded') throw answer.refused;
          if (isUnknown(answer.refused)) {
            unknown ??= answer.refused;
            return undefined;
          }
        }
        try {
          if (answer && 'found' in answer) return await read(answer.found);
          if (answer) throw answer.refused;
        } catch (error) {
          log.warn('api.peer_silent', { host: host.name, url: host.url, error });
        }
        missing.add(host.name);
        return undefined;
      },
    });

    const joined = await across.join({ here, others: hosts.map(toAsked) }, given, call);
    if (joined) return missing.size > 0 ? { ...joined, missing: [...missing] } : joined;
    throw mayBeOn(unknown ?? refusal('GeneralError'), [...missing]);
  }

  return frozen({
    /** The operation, answered for all hosts. */
    across(operation: Operation): Operation {
      const { across, notHereError } = operation;
      if (alone || !(across || notHereError)) return operation;
      return frozen({
        ...operation,
        async run(params: Params, call: Call<ErrorName>) {
          if (across) return join(operation, across, params, call, await others());
          try {
            return await operation.run(params, call);
          } catch (error) {
            if (!(error instanceof Refusal) || error.name !== notHereError) throw error;
            return await find(operation, params, call, error);
          }
        },
      });
    },

    /** The other hosts, for remote calls about all their accounts. */
    others: async (): Promise<readonly OtherHost[]> => (await others()).map((row) => otherHost(row, wire)),

    /**
     * Answers a GET or HEAD with the file that another host has at this path, as it comes: the host with this name, or
     * any. False if none answers with it.
     */
    async fetchFile(ctx: Context, path: string, name?: string): Promise<boolean> {
      const headers = Object.fromEntries(ASKED.flatMap((one) => (ctx.get(one) === '' ? [] : [[one, ctx.get(one)]])));
      const call = { path, headers } satisfies z.input<typeof fileCall>;
      const waiting = { ms: JOINED_MS, gone: abortOnClose(ctx) };
      for (const host of await others()) {
        if (name !== undefined && host.name !== name) continue;
        const response = await wire.call(host, FILES, call, waiting, async (found) => found);
        const { status } = response ?? {};
        const isFile = status !== undefined && (status < 400 || status === 416);
        if (!response || !isFile || ctx.method === 'HEAD') await response?.body?.cancel();
        if (!response || !isFile) continue;
        ctx.status = response.status;
        const body = ctx.method === 'HEAD' ? null : response.body;
        if (body) ctx.body = Readable.from(body, { objectMode: false }).on('error', () => undefined);
        for (const one of ANSWERED) {
          const value = response.headers.get(one);
          if (value !== null) ctx.set(one, value);
        }
        return true;
      }
      return false;
    },

    /** Answers the calls that other hosts forward. */
    middleware: (async (ctx, next) => {
      if (!ctx.path.startsWith(`${PEER_PATH}/`)) return next();
      const path = ctx.path.slice(PEER_PATH.length);
      if (path === PING && ctx.method === 'POST') {
        await wire.receive(ctx);
        ctx.body = '';
        return;
      }
      const answering = ctx.method === 'POST' ? answers.find((one) => one.path === path) : undefined;
      if (answering) {
        ctx.body = await answering.answer(await wire.receive(ctx));
        return;
      }
      if (path === FILES && ctx.method === 'POST') {
        const { path: file, headers } = fileCall.parse(await wire.receive(ctx));
        // The handlers answer a GET.
        ctx.method = 'GET';
        Object.assign(ctx.req.headers, headers);
        return deps.files(ctx, file);
      }
      const operation = operations.find((one) => one.path === path && (one.notHereError ?? one.across) !== undefined);
      if (!operation || ctx.method !== 'POST') throw refusal('Unknown_Operation', `There is no operation ${path}`);
      const call = await wire.receive(ctx);
      ctx.type = 'application/json; charset=utf-8';
      try {
        const { account: id, apiKey, person, params } = forwarded.parse(call);
        const account = await store.accounts.one({ id });
        if (!account) throw refusal('Invalid_Key');
        const parts = partsOf(account, apiKey ?? undefined, person ?? undefined, abortOnClose(ctx));
        const run = operation.across?.part ?? operation.run;
        const answer = await run(paramsOf(params), parts);
        if ('text' in answer) {
          const { size, content } = answer.text;
          ctx.body = content instanceof Uint8Array ? toBuffer(content) : content;
          ctx.length = size;
        } else {
          ctx.set(IS_RECORD, '1');
          ctx.body = JSON.stringify(await wholeOf(answer));
        }
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        ctx.status = error.status;
        ctx.body = JSON.stringify(toEnvelope(error));
      }
    }) satisfies Middleware,
  });
}

/** The error for an unknown thing, with the hosts that could not be asked. */
export function mayBeOn(unknown: Refusal, silent: readonly string[]): Refusal {
  if (silent.length === 0) return unknown;
  const { name, code, status, message } = unknown;
  return new Refusal(name, `${message}; it may be on ${silent.join(', ')}, which cannot be asked`, code, status);
}

/** The error if a host may have carried out a call that must be carried out once. */
function mayBeDone({ name }: HostRow): Refusal {
  const { code, status } = ERRORS.GeneralError;
  const text = `The answer of ${name} is lost. It may have done what you asked for: check before you repeat the call`;
  return new Refusal('GeneralError', text, code, status);
}

/** The parameters with some values replaced. */
function changed(given: Params, change: Readonly<Record<string, unknown>>): Params {
  if (Object.keys(change).length === 0) return given;
  return {
    ...given,
    get: (name) => change[name] ?? given.get(name),
    of: (names, anyText) => Object.assign(given.of(names, anyText), change),
  };
}

/** Asks one host after another until one has the thing. */
async function untilDone(
  hosts: readonly HostRow[],
  ask: (host: HostRow) => Promise<PeerAnswer | undefined>,
  unknown: Refusal,
): Promise<readonly (PeerAnswer | undefined)[]> {
  const answers: (PeerAnswer | undefined)[] = [];
  for (const host of hosts) {
    const answer = await ask(host);
    answers.push(answer);
    if (answer && !('refused' in answer && answer.refused.name === unknown.name)) break;
  }
  return answers;
}

function discard(answer: Answer): void {
  if ('text' in answer && answer.text.content instanceof Readable) answer.text.content.destroy();
}

/** Reads the answer of another host: a record whole, a text as it comes. */
async function toPeerAnswer(response: Response): Promise<PeerAnswer> {
  const body = response.body ?? Readable.from([]);
  if (!response.ok) return { refused: toRefusal(await readAtMost(body, MAX_RECORD_BYTES)) };
  if (response.headers.get(IS_RECORD) !== null)
    return { found: { record: JSON.parse((await readAtMost(body, MAX_RECORD_BYTES)).toString()) } };
  const size = Number(response.headers.get('content-length') ?? Number.NaN);
  if (!Number.isSafeInteger(size)) throw new Error('the text has no Content-Length');
  if (size <= SMALL_BYTES) return { found: { text: { size, content: await readAtMost(body, size) } } };
  const content = Readable.from(body, { objectMode: false });
  // It fails if its client hangs up; the reader of the stream gets the error too.
  content.on('error', () => undefined);
  return { found: { text: { size, content } } };
}
