import { z } from 'zod';
import { invalid, type Refusal, refusal } from '../../api/errors.ts';
import { createParamsReader, type Path } from '../../api/operation.ts';
import type { Params } from '../../api/parameters.ts';
import { frozen } from '../../base/frozen.ts';
import { DELIVERY_KINDS } from '../../queue/delivery.ts';
import type { HostParts } from './parts.ts';

/** What a handler receives: the parts of the host, who calls, and how to refuse. */
export interface HostCall extends HostParts {
  /** The person, as the journal names them. */
  readonly by: string;
  /** The id of their session. */
  readonly session: string;
  /** Creates an error. Throw it. */
  unknownJob(id: string): Refusal;
  /** Creates a ValidationError for one field. Throw it. */
  invalid(field: string, text: string): Refusal;
}

/** Its subject: all accounts and the machine, or people and their sessions. */
export type HostAccess = 'host' | 'people';

/** An operation of the group `host`: only an operator's session can call it. */
export interface HostOperation {
  readonly path: Path;
  readonly access: HostAccess;
  readonly summary: string;
  readonly params: z.ZodObject;
  readonly returns: z.ZodType;
  /** Validates the parameters and runs it. Throws refusals. */
  run(params: Params, parts: HostParts, who: Pick<HostCall, 'by' | 'session'>): Promise<unknown>;
}

// Fields of records that several operations share.
export const account = z.object({ id: z.string(), name: z.string() });
export const kind = z.enum(DELIVERY_KINDS);
export const breaker = z.enum(['up', 'down', 'gone']);

type HostPath = `/host/${string}`;

interface Declaration<N extends HostPath, P extends z.ZodRawShape, R extends z.ZodType> {
  readonly path: N;
  readonly access: HostAccess;
  readonly summary: string;
  readonly params: P;
  readonly returns: R;
  handle(params: z.output<z.ZodObject<P>>, call: HostCall): Promise<z.input<R>>;
}

/** Declares an operation of the host, as `operation` does one of an account. */
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
    run: async (given: Params, parts: HostParts, who: Pick<HostCall, 'by' | 'session'>): Promise<unknown> =>
      declaration.handle(await read(given), {
        ...parts,
        ...who,
        unknownJob: (id) => refusal('Unknown_Job', id),
        invalid: (field, text) => invalid({ [field]: text }),
      }),
  });
}
