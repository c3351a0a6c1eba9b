import { stringify } from 'csv-stringify/sync';

/** What stands in a cell: text, a number, or an address, which is never changed because it is read back in. */
export type Cell = string | number | { readonly address: string };

/** What stands in one line of a table. */
export type Line = readonly Cell[];

/**
 * What becomes of a cell that a spreadsheet may take for a formula: `quote` puts it in quotation marks and leaves it as it is;
 * `escape` puts a ' in front as well, which spreadsheets take for "this is text", but not in front of an address.
 */
export type Formulas = 'quote' | 'escape';

/** What formulas begin with, in full width too, and what some programs skip in front of one. */
const FORMULA = /^[=+\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20]/;

/** Lines of CSV (RFC 4180). A lone CR or LF is no end of a line here, but is one for some readers, so it is quoted too. */
export function toCsv(lines: readonly Line[], formulas: Formulas): string {
  const shown = (cell: Cell) => {
    if (typeof cell === 'object') return cell.address;
    return formulas === 'escape' && typeof cell === 'string' && FORMULA.test(cell) ? `'${cell}` : cell;
  };
  // The ' is matched too, so that an escaped cell is in quotation marks as a quoted one is.
  return stringify(
    lines.map((line) => line.map(shown)),
    { quoted_match: [FORMULA, /^'/], record_delimiter: '\r\n', quote_record_delimiter: true },
  );
}
