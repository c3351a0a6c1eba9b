import type { z } from 'zod';
import { frozen } from '../../base/frozen.ts';
import type { HostRow } from '../../store/rows/hosts.ts';
import type { Refusal } from '../errors.ts';
import { type PeerWire, readAtMost, toRefusal } from './peer-wire.ts';

// Remote calls to a host of the store about all its accounts, for operators. Hosts and commands make them.

/** A remote call: its path, its parameters and its result. */
export interface HostRpc<P extends object, A> {
  readonly path: `/${string}`;
  readonly params: z.ZodType<P>;
  readonly returns: z.ZodType<A>;
  /** How long a host may take to answer. Milliseconds. */
  readonly ms: number;
}

/** silent: it was not reached, because `why`. lost: its answer did not arrive, so it may have done what was asked. */
export type RpcResult<A> =
  | { readonly kind: 'answered'; readonly answer: A }
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | { readonly kind: 'silent'; readonly why: string }
  | { readonly kind: 'lost' };

export const answered = <A>(answer: A): RpcResult<A> => ({ kind: 'answered', answer });

/** Another host of the store. */
export type OtherHost = ReturnType<typeof otherHost>;

const MAX_ANSWER_BYTES = 32 * 1024 * 1024;

export function otherHost(row: HostRow, wire: Pick<PeerWire, 'call'>) {
  return frozen({
    row,
    async ask<P extends object, A>({ path, returns, ms }: HostRpc<P, A>, params: P): Promise<RpcResult<A>> {
      const lost: RpcResult<A> = { kind: 'lost' };
      const asked = await wire.call<RpcResult<A>>(row, path, params, { ms, lost }, async (response) => {
        const bytes = await readAtMost(response.body ?? [], MAX_ANSWER_BYTES);
        if (!response.ok) return { kind: 'refused', refusal: toRefusal(bytes) };
        return { kind: 'answered', answer: returns.parse(JSON.parse(bytes.toString())) };
      });
      return asked ?? { kind: 'silent', why: whySilent(row) };
    },
  });
}

/** Follows the name of the host. */
const SILENT = 'does not answer';

/** Why a host is not reached; this follows its name. */
export function whySilent({ incarnation, url }: HostRow): string {
  if (incarnation === null) return 'does not run';
  return url ? SILENT : 'has no http.peer_url';
}

/** Why a host has not answered. */
type Unanswered = Exclude<RpcResult<never>, { kind: 'answered' }>;

/** Why a host did not answer; this follows its name. */
export function whyUnanswered(asked: Unanswered): string {
  if (asked.kind === 'refused') return `refused: ${asked.refusal.message}`;
  return asked.kind === 'silent' ? asked.why : SILENT;
}

/** Why the part of a host is missing. Without `isAsked`, it was only asked to count. */
export function whyMissing(asked: Unanswered, unchanged: string, isAsked: boolean): string {
  if (asked.kind === 'lost' && isAsked) return 'was asked, but its answer is lost; its mail may have been changed';
  const why = whyUnanswered(asked);
  return asked.kind === 'refused' ? why : `${why}; ${unchanged}`;
}

/** How this host answers a remote call. */
export type RpcHandler = ReturnType<typeof rpcHandler>;

export function rpcHandler<P extends object, A>(
  { path, params }: HostRpc<P, A>,
  answer: (params: P) => Promise<A> | A,
) {
  return frozen({ path, answer: async (call: unknown): Promise<unknown> => answer(params.parse(call)) });
}
