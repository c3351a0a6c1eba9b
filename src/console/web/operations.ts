import type { AnswerOf, ParamsOf } from '../../api/operation.ts';
import type { DeclaredOperation } from '../../api/operations/index.ts';
import type { DeclaredHostOperation } from '../host/index.ts';

// The operations of the page: their parameters and records, as they declare them. Types only: nothing of the server
// gets here.

type Declared = DeclaredOperation | DeclaredHostOperation;
type NameOf<O> = O extends { readonly path: `/${infer N}` } ? N : never;
type Named<N extends string> = Declared extends infer O
  ? O extends { readonly path: infer P }
    ? `/${N}` extends P
      ? O
      : never
    : never
  : never;

/** An operation such as `inbound/search`. */
export type Operation = NameOf<Declared>;
/** What a call of it is given. Which texts and lists are right the server says; undefined and null are absent. */
export type Params<N extends Operation> = N extends Operation ? Fields<ParamsOf<Named<N>>> : never;
/** Its record. */
export type Answer<N extends Operation> = N extends Operation ? AnswerOf<Named<N>> : never;

type Fields<T> = { readonly [K in keyof T]: Loose<T[K]> | null | undefined };
type Loose<T> = T extends string
  ? string
  : T extends readonly (infer E)[]
    ? readonly Loose<E>[]
    : T extends object
      ? Fields<T> | (object extends T ? Readonly<Record<string, unknown>> : never)
      : T;
