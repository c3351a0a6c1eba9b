import type { CollectionSpec, Row } from '../driver/port.ts';

/** A row that belongs to an account. */
export interface OwnedRow extends Row {
  readonly account: string;
}

/**
 * Whose the rows of a collection are, and what the account's own view of the store (`AccountStore`) can do with them:
 * - `own`: everything; `read`: only the daemon writes them; `hidden`: only the daemon sees them. All three count as the
 *   account's bytes.
 * - `lent`: read and change. They come from the operator, go back to the operator, and are not the account's bytes.
 * - `none`: they belong to no account.
 */
type Access<R extends Row> = R extends OwnedRow ? 'own' | 'read' | 'hidden' | 'lent' : 'none';

/** A collection as it is declared: all that the drivers, the store, the account's view and its limits know of it. */
export interface Declaration<R extends Row, N extends string, A extends string, L extends boolean>
  extends CollectionSpec<R> {
  readonly name: N;
  readonly access: A;
  /** An account may have so many rows of it (`accounts.max_…`); they are counted by the name of the collection. */
  readonly limited?: L;
}

/**
 * Declares a collection of rows `R`. The name and the indexes stand in databases that are in use: they never change.
 */
export function collection<R extends Row>() {
  return <const N extends string, const A extends Access<R>, const L extends boolean = false>(
    declaration: CollectionSpec<R> & { readonly name: N; readonly access: A; readonly limited?: L },
  ): Declaration<R, N, A, L> => declaration;
}
