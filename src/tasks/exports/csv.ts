import { stringify } from 'csv-stringify/sync';

/** What stands in one line of a table. */
export type Line = readonly (string | number)[];

/**
 * Lines of CSV (RFC 4180). A cell whose first character makes a spreadsheet take it for a formula gets a ' in front: the library
 * does so for = + - @ tab and CR and their full-width forms; NUL and LF, which some programs skip, are done here. Numbers stay.
 * A lone CR or LF is no end of a line here, but is one for some readers, so it is quoted too.
 */
export function toCsv(lines: readonly Line[]): string {
  return stringify(lines.map((line) => line.map(guard)), { escape_formulas: true, record_delimiter: '\r\n', quote_record_delimiter: true });
}

function guard(cell: string | number): string | number {
  return typeof cell === 'string' && /^[\0\n]/.test(cell) ? `'${cell}` : cell;
}
