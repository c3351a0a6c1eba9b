import type { CollectionSpec, Row } from '../driver/port.ts';
import type { Features } from '../features.ts';

/** A row that belongs to an account. */
export interface OwnedRow extends Row {
  readonly account: string;
}

/**
 * The owner of the rows of a collection, and the access of the account's own view of the store (`AccountStore`):
 * - `own`: everything; `read`: only the daemon writes them; `hidden`: only the daemon sees them. All three count
 *    towards the account's bytes.
 * - `lent`: read and change. They are the operator's, on loan, and do not count towards the account's bytes.
 * - `none`: they belong to no account.
 */
type Access<R extends Row> = R extends OwnedRow ? 'own' | 'read' | 'hidden' | 'lent' : 'none';

/** The declaration of a collection, for the drivers, the store, the account's view and its limits. */
export interface Declaration<R extends Row, N extends string, A extends string, L extends boolean>
  extends CollectionSpec<R> {
  readonly name: N;
  readonly access: A;
  /** The number of rows per account is limited (`accounts.max_…`) and counted under the collection's name. */
  readonly limited?: L;
  /** The features that hosts need to act on its rows; absent: every version understands them. */
  readonly features?: Features<R>;
}

/** Declares a collection of rows `R`. Its name and indexes are in databases in use: they never change. */
export function collection<R extends Row>() {
  return <const N extends string, const A extends Access<R>, const L extends boolean = false>(
    declaration: Declaration<R, N, A, L>,
  ) => declaration;
}
