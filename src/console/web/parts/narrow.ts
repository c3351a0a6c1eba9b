import { h } from '../h.ts';
import { fieldOf, withField } from '../query.ts';
import { go, linkTo } from '../router.ts';
import { Choice } from './elements.ts';

// Choices that put a field into the search of a list.

interface NarrowProps {
  /** The screen of the list. */
  readonly path: string;
  readonly query: string;
}

type Options = readonly (readonly [value: string, label: string])[];

/** The last answer of a webhook. */
export const ANSWERS: Options = [
  ['', 'Any response'],
  ['2xx', '2xx'],
  ['3xx', '3xx'],
  ['4xx', '4xx'],
  ['5xx', '5xx'],
  ['none', 'No response'],
];

const TIMES: Options = [
  ['', 'All time'],
  ['1h', 'Last hour'],
  ['1d', 'Last 24 hours'],
  ['7d', 'Last 7 days'],
];

/** Of more options than these, one is found by typing it into the search. */
const MAX_OPTIONS = 100;

/**
 * One field. A value that is not among the options is kept and shown. The first option is for any value; nothing is
 * shown if there is no other, or too many.
 */
export function FieldChoice({
  path,
  query,
  field,
  label,
  options,
}: NarrowProps & { readonly field: string; readonly label: string; readonly options: Options }) {
  if (options.length < 2 || options.length > MAX_OPTIONS) return null;
  const value = fieldOf(query, field) ?? '';
  const known = options.some(([one]) => one === value);
  return h(Choice, {
    label,
    value,
    options: known ? options : [...options, [value, value]],
    onValue: (one) => go(linkTo(path, { q: withField(query, field, one === '' ? undefined : one) })),
  });
}

/** Since when. */
export function TimeChoice({ path, query }: NarrowProps) {
  return h(FieldChoice, { path, query, field: 'after', label: 'Time range', options: TIMES });
}
