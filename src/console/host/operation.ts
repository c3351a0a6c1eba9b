import { z } from 'zod';
import { invalid, type Refusal, refusal } from '../../api/errors.ts';
import type { RpcHandler } from '../../api/hosts/host-rpc.ts';
import { createParamsReader, type Path } from '../../api/operation.ts';
import type { Params } from '../../api/requests/parameters.ts';
import { frozen } from '../../base/frozen.ts';
import { DELIVERY_KINDS } from '../../queue/delivery.ts';
import type { CrossHostParts, HostParts } from './parts.ts';

/** The argument of a handler about one host: its parts, the caller, and functions that create errors. */
export interface LocalCall extends HostParts {
  /** The caller's name in the journal. */
  readonly by: string;
  /** Creates an error. Throw it. */
  unknownJob(id: string): Refusal;
  /** Creates a ValidationError for one field. Throw it. */
  invalid(field: string, text: string): Refusal;
}

/** The argument of the other handlers. */
export interface HostCall extends LocalCall, CrossHostParts {
  /** The id of the caller's session. */
  readonly session: string;
}

type Who = Pick<HostCall, 'by' | 'session'>;

/** The permission: for all accounts and the machine, or for people and their sessions. */
export type HostAccess = 'host' | 'people';

/** An answer, and the names of hosts that are missing in it. */
export interface HostRecord {
  readonly record: unknown;
  readonly missing?: readonly string[];
}

/** An operation of the group `host`: only an operator's session can call it. */
export interface HostOperation {
  readonly path: Path;
  readonly access: HostAccess;
  readonly summary: string;
  readonly params: z.ZodObject;
  readonly returns: z.ZodType;
  /** Validates the parameters and runs it. Throws refusals. */
  run(params: Params, parts: HostParts & CrossHostParts, who: Who): Promise<HostRecord>;
  /** Handles the calls of other hosts. */
  answers(parts: HostParts): readonly RpcHandler[];
}

// Fields of records that several operations share.
export const account = z.object({ id: z.string(), name: z.string() });
export const kind = z.enum(DELIVERY_KINDS);
export const breaker = z.enum(['up', 'down', 'gone']);
/** The name of the host that a row is from, if there are several. */
export const fromHost = z.string().optional();

export type HostPath = `/host/${string}`;

export interface Described<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType> {
  readonly path: N;
  readonly access: HostAccess;
  readonly summary: string;
  readonly params: P;
  readonly returns: R;
}

interface Declaration<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType> extends Described<N, P, R> {
  handle(params: z.output<z.ZodObject<P>>, call: HostCall): Promise<z.input<R>>;
}

/** Declares an operation about data that all hosts share; `operation` declares one of an account. */
export function hostOperation<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType>(
  declaration: Declaration<N, P, R>,
) {
  const { path, access, summary, params, returns } = declaration;
  const shape = z.object(params);
  const read = createParamsReader(shape);
  return frozen({
    path,
    access,
    summary,
    params: shape,
    returns,
    run: async (given: Params, parts: HostParts & CrossHostParts, who: Who): Promise<HostRecord> => ({
      record: await declaration.handle(await read(given), { ...parts, ...who, ...refusals }),
    }),
    answers: (): readonly RpcHandler[] => [],
  });
}

export const refusals = {
  unknownJob: (id: string) => refusal('Unknown_Job', id),
  invalid: (field: string, text: string) => invalid({ [field]: text }),
};
