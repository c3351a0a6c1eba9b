import { formPairs } from '../../base/form-pairs.ts';

// Forms as bodies of calls: fields whose names say in brackets where their value belongs.

/** More than any parameter needs; deeper values would overflow the stack of recursive code. */
export const MAX_DEPTH = 32;
/** Enough for a message to the maximum number of recipients, each with a name, a type and some merge variables. */
export const MAX_FORM_FIELDS = 20_000;
/** Lists and structs that the brackets of all fields name: a merge variable alone in a list of a struct has three. */
const MAX_NODES = 3 * MAX_FORM_FIELDS;

/** The form cannot be read; the message has the reason. */
export class UnreadableForm extends Error {}

/** The value of a form field: a text, or the fields that its brackets name. */
type FormValue = string | FormNode;

interface FormNode {
  readonly values: Map<string, FormValue>;
  /** The index that `[]` stands for, as in PHP: one above the largest. */
  next: number;
}

/** Longer field names are not searched for brackets: on megabytes, the repeating pattern would overflow the stack. */
const LONGEST_FIELD = 4096;
/** The name of a field and its brackets; any other form is a plain name. */
const FIELD = /^([^[\]]+)((?:\[[^[\]]*\])+)$/;

/**
 * Parses a form. Lists and structs are written as in PHP and jQuery (`to[0][email]=a`) or as in Ruby
 * (`to[][email]=a&to[][name]=A`). Throws UnreadableForm.
 */
export function parseForm(text: string): Map<string, unknown> {
  const form: FormNode = { values: new Map(), next: 0 };
  let fields = 0;
  let nodes = 0;
  const makeNode = (): FormNode => {
    if (++nodes > MAX_NODES) throw new UnreadableForm(`The form has more than ${MAX_NODES} lists and structs`);
    return { values: new Map(), next: 0 };
  };
  for (const [name, value] of formPairs(text)) {
    if (++fields > MAX_FORM_FIELDS) throw tooManyFields();
    const [, first = name, brackets = ''] = name.length <= LONGEST_FIELD ? (FIELD.exec(name) ?? []) : [];
    const inner = brackets.slice(1, -1).split('][');
    if (inner.length >= MAX_DEPTH) throw new UnreadableForm(`The form is nested deeper than ${MAX_DEPTH} levels`);
    put(form, brackets === '' ? [first] : [first, ...inner], value, makeNode);
  }
  return new Map([...form.values].map(([name, value]) => [name, toValue(value)]));
}

export function tooManyFields(): UnreadableForm {
  return new UnreadableForm(`The form has more than ${MAX_FORM_FIELDS} fields`);
}

function put(node: FormNode, [name = '', ...inner]: readonly string[], value: string, makeNode: () => FormNode): void {
  const key = name === '' ? String(indexFor(node, inner)) : name;
  if (/^\d{1,15}$/.test(key)) node.next = Math.max(node.next, Number(key) + 1);
  const known = node.values.get(key);
  if (inner.length === 0) node.values.set(key, value);
  else if (typeof known === 'object') put(known, inner, value, makeNode);
  else {
    const made = makeNode();
    node.values.set(key, made);
    put(made, inner, value, makeNode);
  }
}

/**
 * The index at which `[]` puts a value: after the last item, or that item if it is a struct without a field of this
 * name.
 */
function indexFor({ values, next }: FormNode, [field = '']: readonly string[]): number {
  const last = values.get(String(next - 1));
  return typeof last === 'object' && field !== '' && !last.values.has(field) ? next - 1 : next;
}

/** A list if it is numbered from 0 without a gap, as in PHP; otherwise a struct. */
function toValue(value: FormValue): unknown {
  if (typeof value === 'string') return value;
  const fields = [...value.values].map(([name, inner]) => [name, toValue(inner)] as const);
  return fields.every(([name], n) => name === String(n))
    ? fields.map(([, inner]) => inner)
    : Object.fromEntries(fields);
}
