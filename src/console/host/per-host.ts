import { z } from 'zod';
import { ERRORS, Refusal } from '../../api/errors.ts';
import { type HostRpc, type OtherHost, type RpcHandler, rpcHandler, whyUnanswered } from '../../api/hosts/host-rpc.ts';
import { type AskedHost, createParamsReader, type Hosts } from '../../api/operation.ts';
import { type Params, paramsOf } from '../../api/requests/parameters.ts';
import { frozen } from '../../base/frozen.ts';
import { optional, text } from '../../base/schema.ts';
import type { HostRow } from '../../store/rows/hosts.ts';
import {
  type Described,
  type HostCall,
  type HostPath,
  type HostRecord,
  type LocalCall,
  refusals,
} from './operation.ts';
import type { CrossHostParts, HostParts } from './parts.ts';

// Operations about each host. With the parameter `host`, that host answers. Without it, the answers of all hosts are
// joined, or this host answers for itself.

/** This host and the others of the store, for an operation to ask. */
export interface HostsOfStore<A> extends Hosts<A> {
  readonly others: readonly (AskedHost<A> & { readonly row: HostRow })[];
}

interface PerHostDeclaration<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType, Q extends z.ZodType>
  extends Described<N, P, R> {
  /** The answer about this host. */
  handle(params: z.output<z.ZodObject<P>>, call: LocalCall): Promise<z.input<R>>;
  /** How the answers of several hosts become one. */
  readonly across?: {
    /** The answer of each host. */
    readonly part: Q;
    own(params: z.output<z.ZodObject<P>>, call: LocalCall): Promise<z.input<Q>>;
    join(hosts: HostsOfStore<z.output<Q>>, params: z.output<z.ZodObject<P>>, call: LocalCall): Promise<z.input<R>>;
  };
}

/** A call between hosts: who made it, and its parameters, not yet validated. */
interface Passed {
  readonly by: string;
  readonly params: Readonly<Record<string, unknown>>;
}

const passed: z.ZodType<Passed> = z.strictObject({ by: z.string(), params: z.record(z.string(), z.unknown()) });

/** How long another host may take to answer. */
const PATIENCE_MS = 10_000;

/** The answer is validated later: a host of another version has answered. */
const questionOf = (path: HostPath, end: '' | '/part'): HostRpc<Passed, unknown> => ({
  path: `${path}${end}`,
  params: passed,
  returns: z.unknown(),
  ms: PATIENCE_MS,
});

const named = { host: optional(text(255)) };

/** Declares an operation about each host. */
export function perHostOperation<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType, Q extends z.ZodType>(
  declaration: PerHostDeclaration<N, P, R, Q>,
) {
  const { path, access, summary, params, returns, handle, across } = declaration;
  const names = Object.keys(params);
  const read = createParamsReader(z.object(params));
  const readName = createParamsReader(z.object(named));
  const whole = questionOf(path, '');
  const spread = across && { ...across, question: questionOf(path, '/part') };

  async function joined(
    { question, part, own, join }: NonNullable<typeof spread>,
    given: Params,
    call: LocalCall,
    others: readonly OtherHost[],
  ): Promise<HostRecord> {
    const missing = new Set<string>();
    const wanted = (change: object = {}) => ({ ...given.of(names), ...change });
    const here = {
      id: call.member.id(),
      leaveOut() {},
      ask: async (change?: object) => part.parse(await own(await read(paramsOf(wanted(change))), call)),
    };
    const asked = others.map(({ row, ask }) => ({
      id: row.id,
      row,
      leaveOut: () => missing.add(row.name),
      async ask(change?: object) {
        const found = missing.has(row.name) ? undefined : await ask(question, { by: call.by, params: wanted(change) });
        const read = found?.kind === 'answered' ? part.safeParse(found.answer) : undefined;
        if (!read?.success) missing.add(row.name);
        return read?.data;
      },
    }));
    const record = await join({ here, others: asked }, await read(given), call);
    return { record, missing: [...missing] };
  }

  return frozen({
    path,
    access,
    summary,
    params: z.object({ ...params, ...named }),
    returns,
    async run(
      given: Params,
      parts: HostParts & CrossHostParts,
      who: Pick<HostCall, 'by' | 'session'>,
    ): Promise<HostRecord> {
      const call = { ...parts, ...who, ...refusals };
      const own = await read(given);
      const { host } = await readName(given);
      const isHere = host === parts.settings.hostname;
      const others = isHere || (host === undefined && !across) ? [] : await parts.otherHosts();
      if (host !== undefined && !isHere)
        return { record: await askOne(chosen(others, host), whole, { by: who.by, params: given.of(names) }, returns) };
      if (spread && others.length > 0) return joined(spread, given, call, others);
      return { record: await handle(own, call) };
    },
    answers(parts: HostParts): readonly RpcHandler[] {
      const answer = (
        question: HostRpc<Passed, unknown>,
        how: (params: z.output<z.ZodObject<P>>, call: LocalCall) => Promise<unknown>,
      ) =>
        rpcHandler(question, async ({ by, params: given }) =>
          how(await read(paramsOf(given)), { ...parts, by, ...refusals }),
        );
      return [answer(whole, handle), ...(spread ? [answer(spread.question, spread.own)] : [])];
    },
  });
}

/** 504: this host answers, and has no usable answer of the one it asked. */
const NO_ANSWER = 504;

/** The host with the name, a running one first: the row of a host that is gone may have the same name. */
function chosen(others: readonly OtherHost[], name: string): OtherHost {
  const found = others.filter(({ row }) => row.name === name);
  const host = found.find(({ row }) => row.incarnation !== null) ?? found[0];
  if (!host) throw refusals.invalid('host', `There is no host ${name}`);
  return host;
}

async function askOne(
  { row, ask }: OtherHost,
  question: HostRpc<Passed, unknown>,
  call: Passed,
  returns: z.ZodType,
): Promise<unknown> {
  const asked = await ask(question, call);
  if (asked.kind === 'refused') throw asked.refusal;
  const read = asked.kind === 'answered' ? returns.safeParse(asked.answer) : undefined;
  if (read?.success) return read.data;
  const why =
    asked.kind === 'answered' ? 'has a version with other answers; use its own console' : whyUnanswered(asked);
  const advice = row.incarnation !== null && !row.url ? '. Set it there, and restart that host' : '';
  throw new Refusal('GeneralError', `${row.name} ${why}${advice}`, ERRORS.GeneralError.code, NO_ANSWER);
}
