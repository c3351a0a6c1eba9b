import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';

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
