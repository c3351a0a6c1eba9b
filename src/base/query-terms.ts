/** A word of a search, as people type them: `bob`, `"two words"`, `from:bob`, `subject:"two words"`, `-bob`. */
export interface QueryTerm {
  /** As it was typed. */
  readonly text: string;
  /** Whether a `-` precedes it. */
  readonly negated: boolean;
  /** The name before the first colon, in lower case. */
  readonly field: string | undefined;
  /** The rest, without quotes. */
  readonly value: string;
  readonly quoted: boolean;
}

// Quotes keep words together; the last one may be missing.
const TERM = /(-?)(?:([a-z_]+):)?(?:"([^"]*)"?|(\S+))/gi;

/** Splits a search into its words. */
export function* toTerms(query: string): Generator<QueryTerm> {
  for (const [text = '', minus, field, quoted, bare = ''] of query.matchAll(TERM))
    yield {
      text,
      negated: minus === '-',
      field: field?.toLowerCase(),
      value: quoted ?? bare,
      quoted: quoted !== undefined,
    };
}
