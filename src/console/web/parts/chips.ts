import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import { number } from './text.ts';

interface ChipsProps<T> {
  /** For those who do not see it. */
  readonly label: string;
  readonly chips: readonly (readonly [value: T, text: string])[];
  readonly chosen: T;
  href(value: T): string;
  readonly children?: ComponentChildren;
}

/** Links of which one is chosen: the views of a screen, or the values of a filter. */
export function Chips<T extends string | undefined>({ label, chips, chosen, href, children }: ChipsProps<T>) {
  return h('nav.chips', { 'aria-label': label }, [
    chips.map(([value, text]) =>
      h('a.chip', { key: text, href: href(value), 'aria-current': value === chosen ? 'true' : undefined }, text),
    ),
    children,
  ]);
}

interface CountedProps {
  /** For those who do not see it. */
  readonly label: string;
  readonly rows: readonly {
    readonly key: string;
    readonly name: ComponentChildren;
    readonly count: number;
    /** In place of a bar with the share of the largest count. */
    readonly note?: ComponentChildren;
    readonly isChosen: boolean;
    readonly href: string;
  }[];
  /** Whether the names are long. */
  readonly isWide?: boolean;
}

/** Counts, each of which is a link that filters by it, or takes the filter away. */
export function CountedFilters({ label, rows, isWide = false }: CountedProps) {
  if (rows.length === 0) return null;
  const most = Math.max(...rows.map(({ count }) => count));
  return h(isWide ? 'nav.reasons.causes' : 'nav.reasons', { 'aria-label': label }, [
    rows.map(({ key, name, count, note, isChosen, href }) =>
      h('a', { key, href, 'aria-current': isChosen ? 'true' : undefined }, [
        h('span.name', [name]),
        h('span.count', number(count)),
        note ?? h('meter', { max: most, value: count, 'aria-hidden': 'true' }),
      ]),
    ),
  ]);
}
