import { invalid } from '../errors.ts';

/** The parameters of a call, not yet validated. Null counts as absent. */
export interface Params {
  get(name: string): unknown;
  /**
   * The named ones that are present, in an object without prototype. Throws a refusal for NUL and lone surrogates,
   * except in those of `anyText`.
   */
  of(names: readonly string[], anyText?: readonly string[]): Record<string, unknown>;
  /** Whether they came as a form, in which every value is text. */
  readonly textOnly: boolean;
  /** Waits before validating many or large values, so that the event loop runs between calls. */
  turn?(): Promise<void>;
}

/** Parameters by name, without nulls. */
export interface CleanValues {
  readonly values: ReadonlyMap<string, unknown>;
  /** Whether there is NUL or a lone surrogate in a text, which do not survive a round trip through a database. */
  readonly hasBadText: boolean;
}

/** Maximum number of different names in the structs of a call: each new name costs more than its value. */
const MAX_NAMES = 10_000;

/**
 * Removes nulls in place: null means absent everywhere, and official clients send it for every omitted parameter.
 * Returns a fault if the values cannot be used.
 */
export function cleaned(values: Map<string, unknown>): CleanValues | { readonly fault: string } {
  const seen: Seen = { badText: false, names: new Set() };
  for (const [name, value] of values)
    if (value === null) values.delete(name);
    else removeNulls(value, seen);
  return seen.names.size > MAX_NAMES
    ? { fault: `The structs of the body have more than ${MAX_NAMES} different names` }
    : { values, hasBadText: seen.badText };
}

/** Parameters from a caller in this process. */
export function paramsOf(values: object): Params {
  const clean = cleaned(new Map(Object.entries(structuredClone(values))));
  if ('fault' in clean) throw invalid({ body: clean.fault });
  return paramsOfClean(clean, false);
}

/** Parameters from clean values. `textOnly`: they came as a form. */
export function paramsOfClean({ values, hasBadText: isFaulty }: CleanValues, textOnly: boolean): Params {
  return {
    textOnly,
    get: (name) => values.get(name),
    of(names, anyText = []) {
      // Without prototype, so that a parameter named like a member of Object is absent unless it was sent.
      const found: Record<string, unknown> = Object.create(null);
      for (const name of names) {
        const value = values.get(name);
        if (value !== undefined) found[name] = value;
      }
      if (isFaulty) refuseBadText(found, anyText);
      return found;
    },
  };
}

function refuseBadText(found: Readonly<Record<string, unknown>>, anyText: readonly string[]): void {
  const faulty = Object.entries(found).filter(([name, value]) => !anyText.includes(name) && hasBadText(value));
  const fault = 'Please enter text without NUL and without broken Unicode (lone surrogates)';
  if (faulty.length > 0) throw invalid(Object.fromEntries(faulty.map(([name]) => [name, fault])));
}

/** Whether there is NUL or a lone surrogate in a value without nulls. */
export function hasBadText(value: unknown): boolean {
  const seen: Seen = { badText: false, names: new Set() };
  removeNulls(value, seen);
  return seen.badText;
}

/** The record of values. */
interface Seen {
  badText: boolean;
  readonly names: Set<string>;
}

/** Removes members of structs that are null. Items of lists stay. */
function removeNulls(value: unknown, seen: Seen): void {
  if (typeof value === 'string') seen.badText ||= isBad(value);
  else if (Array.isArray(value)) for (const item of value) removeNulls(item, seen);
  else if (typeof value === 'object' && value !== null)
    for (const [name, item] of Object.entries(value)) {
      if (!seen.names.has(name)) {
        seen.names.add(name);
        seen.badText ||= isBad(name);
      }
      if (item === null) Reflect.deleteProperty(value, name);
      else removeNulls(item, seen);
    }
}

function isBad(text: string): boolean {
  return !text.isWellFormed() || text.includes('\0');
}
