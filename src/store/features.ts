import { type Collection, type Filter, type Row, StoreAway } from './driver/port.ts';

/**
 * The features that a host must understand to act on a row. Each field that was added after the first version declares
 * the features that its values need (`Features`); the store writes them into the row (`needs`), and each host compares
 * them with its own (composition/known-features.ts). So versions need not know later ones, only the form of `needs`.
 */
export interface GatedRow extends Row {
  /** Features, sorted, with spaces between them. Null or absent: every version understands the row. */
  readonly needs?: string | null;
}

/** The features that a field requires of hosts. */
interface Need<V> {
  /** Unique to this field. Names are in databases in use: they never change. */
  readonly feature: string;
  /** The value by which hosts without the feature act; it requires nothing. */
  readonly plain?: string | number | boolean;
  /** The parts of the value, each of which is a feature, because later versions may add some. */
  readonly each?: (value: V) => readonly string[];
}

type OptionalKeys<R> = { [F in keyof R]-?: object extends Pick<R, F> ? F : never }[keyof R];

/** The requirements of each field; null: none. Fields added later are optional in rows, and must be listed here. */
export type Features<R> = {
  readonly [F in Exclude<OptionalKeys<R>, keyof GatedRow> & string]: Need<NonNullable<R[F]>> | null;
} & { readonly [F in Exclude<keyof R, keyof GatedRow> & string]?: Need<NonNullable<R[F]>> | null };

/** A row that this host may not act on, because a newer version wrote it: a temporary error until it is upgraded. */
export class RowTooNew extends StoreAway {
  constructor({ id, needs }: GatedRow) {
    super(`the row ${id} needs ${needs}, which this version does not have: upgrade this host`);
  }
}

/** Whether a host with these features understands a row; undefined: it has all. */
export const understands = (features: ReadonlySet<string> | undefined, { needs }: GatedRow): boolean =>
  !needs || !features || needs.split(' ').every((need) => features.has(need));

/** Writes `needs` into rows, and refuses to change these fields in a row that this host does not understand. */
export function gated<R extends Row>(
  rows: Collection<R>,
  declared: Features<R>,
  features: ReadonlySet<string> | undefined,
): Collection<R> {
  const entries = Object.entries<Need<never> | null | undefined>(declared).filter(([, need]) => need);

  function needsOf(row: object): string | null {
    const values: Readonly<Record<string, unknown>> = { ...row };
    const needs = entries.flatMap(([field, need]) => (need ? toFeatures(need, values[field]) : []));
    return [...new Set(needs)].sort().join(' ') || null;
  }

  function needing(row: R): R {
    const needs = needsOf(row);
    return needs === null ? row : { ...row, needs };
  }

  return {
    ...rows,
    insert: (row) => rows.insert(needing(row)),
    insertAll: (all) => rows.insertAll(all.map(needing)),
    async change(filter, patch) {
      const given = Object.entries<unknown>(patch).filter(([, value]) => value !== undefined);
      if (!entries.some(([field]) => given.some(([name]) => name === field))) return rows.change(filter, patch);
      for (;;) {
        const row: GatedRow | undefined = await rows.one(filter);
        if (!row) return undefined;
        if (!understands(features, row)) throw new RowTooNew(row);
        const needs = needsOf({ ...row, ...Object.fromEntries(given) });
        // biome-ignore lint/plugin: TypeScript does not see that a generic row has `needs`
        const unchanged = { ...filter, id: row.id, needs: row.needs ?? null } as Filter<R>;
        const changed = await rows.change(unchanged, { ...patch, needs });
        // Undefined: another call changed the row in between, and its new state decides.
        if (changed) return changed;
      }
    },
  };
}

function toFeatures<V>({ feature, plain, each }: Need<V>, value: unknown): readonly string[] {
  if (value === undefined || value === null || value === plain) return [];
  if (Array.isArray(value) && value.length === 0) return [];
  // biome-ignore lint/plugin: the value of the field that the need was declared for
  return each ? each(value as V).map((part) => `${feature}=${part}`) : [feature];
}

/** Every feature of a declaration; `parts` has the known features of fields with `each`. */
export function allFeatures(declared: object, parts: Readonly<Record<string, readonly string[]>>): readonly string[] {
  return Object.values<Need<never> | null>({ ...declared }).flatMap((need) => {
    if (!need) return [];
    if (!need.each) return [need.feature];
    const known = parts[need.feature];
    if (!known) throw new TypeError(`the parts of the feature ${need.feature} are unknown`);
    return known.map((part) => `${need.feature}=${part}`);
  });
}
