import { invalid } from './errors.ts';

/** The parameters of a call, not yet validated. Null counts as absent. */
export interface Params {
  get(name: string): unknown;
  /**
   * The named ones that are present, in an object without prototype. Throws a refusal for NUL and lone surrogates, except
   * in those of `anyText`.
   */
  of(names: readonly string[], anyText?: readonly string[]): Record<string, unknown>;
  /** Whether they came as a form, in which every value is text. */
  readonly textOnly: boolean;
}

/** The values of parameters, in a Map if they are from a form, without what is null. */
export interface CleanValues {
  readonly values: object;
  /** Whether there is NUL or a lone surrogate in a text, which do not survive a round trip through a database. */
  readonly hasBadText: boolean;
}

/**
 * Removes what is null, in place: that means absent everywhere, and official clients send it for every omitted
 * parameter.
 */
export function cleaned(values: object): CleanValues {
  const seen = { badText: false };
  for (const one of values instanceof Map ? values.values() : [values]) removeNulls(one, seen);
  return { values, hasBadText: seen.badText };
}

/** Parameters of a caller in this process. */
export function paramsOf(values: object): Params {
  const clean = cleaned(structuredClone(values));
  return paramsOfClean(() => clean.values, { textOnly: false, hasBadText: clean.hasBadText });
}

/** Parameters from clean values, which are asked for once, with the first parameter. */
export function paramsOfClean(
  values: () => object,
  { textOnly, hasBadText: isBad }: { readonly textOnly: boolean } & Pick<CleanValues, 'hasBadText'>,
): Params {
  let known: ReadonlyMap<string, unknown> | undefined;
  const fields = () => (known ??= toFields(values()));
  return {
    textOnly,
    get: (name) => fields().get(name),
    of(names, anyText = []) {
      // Without prototype, so that a parameter named like a member of Object is absent unless it was sent.
      const found: Record<string, unknown> = Object.create(null);
      for (const name of names) {
        const value = fields().get(name);
        if (value !== undefined) found[name] = value;
      }
      if (isBad) refuseBadText(found, anyText);
      return found;
    },
  };
}

function toFields(values: object): ReadonlyMap<string, unknown> {
  return values instanceof Map ? values : new Map(Object.entries(values));
}

function refuseBadText(found: Readonly<Record<string, unknown>>, anyText: readonly string[]): void {
  const faulty = Object.entries(found).filter(([name, value]) => !anyText.includes(name) && hasBadText(value));
  const fault = 'Please enter text without NUL and without broken Unicode (lone surrogates)';
  if (faulty.length > 0) throw invalid(Object.fromEntries(faulty.map(([name]) => [name, fault])));
}

/** Whether there is NUL or a lone surrogate in a value. */
export function hasBadText(value: unknown): boolean {
  return cleaned([value]).hasBadText;
}

/** Removes members of structs that are null, and notes bad text. Items of lists stay. */
function removeNulls(value: unknown, seen: { badText: boolean }): void {
  if (typeof value === 'string') seen.badText ||= !value.isWellFormed() || value.includes('\0');
  else if (Array.isArray(value)) for (const item of value) removeNulls(item, seen);
  else if (typeof value === 'object' && value !== null)
    for (const [name, item] of Object.entries(value)) {
      removeNulls(name, seen);
      if (item === null) Reflect.deleteProperty(value, name);
      else removeNulls(item, seen);
    }
}
