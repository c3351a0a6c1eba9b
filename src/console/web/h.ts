import {
  type ClassAttributes,
  type ComponentChildren,
  type ComponentType,
  h as create,
  type HTMLInputTypeAttribute,
  type JSX,
  type PartialInputHTMLAttributes,
  type VNode,
} from 'preact';

// Elements in one short form: h('p.faint', 'A text'), h('ul.rows', { id }, [one, another]), h(Title, { text }).
// Attributes are checked against the element, properties against the component.

/** Those of an input are a union by its type, which a field with any of several types cannot have. */
type Elements = Omit<JSX.IntrinsicElements, 'input'> & {
  readonly input: PartialInputHTMLAttributes<HTMLInputElement> &
    ClassAttributes<HTMLInputElement> & { readonly type?: HTMLInputTypeAttribute };
};
type Tag = keyof Elements;
type Selector = Tag | `${Tag}.${string}`;
type Attributes<S extends Selector> = (S extends Tag
  ? Elements[S]
  : S extends `${infer T extends Tag}.${string}`
    ? Elements[T]
    : never) & { readonly [name: `data-${string}`]: string | undefined };
type Children = string | readonly ComponentChildren[];
type Properties<P> = Omit<P, 'children'> & { readonly key?: string | number };

/** An element by its name and classes. */
export function h<S extends Selector>(element: S, children?: Children): VNode;
export function h<S extends Selector>(element: S, attributes: Attributes<S>, children?: Children): VNode;
/** A component. */
export function h<P extends object>(
  component: ComponentType<P>,
  ...given: object extends Omit<P, 'children'>
    ? [children?: Children] | [properties: Properties<P>, children?: Children]
    : [properties: Properties<P>, children?: Children]
): VNode;
export function h(
  what: Selector | ComponentType<object>,
  second: object | Children = {},
  third: Children | undefined = undefined,
): VNode {
  const [given, children] = isChildren(second) ? [{}, second] : [second, third];
  const inside = children === undefined ? [] : [children];
  if (typeof what !== 'string') return create(what, given, ...inside);
  const end = what.indexOf('.');
  if (end === -1) return create(what, given, ...inside);
  return create(what.slice(0, end), { ...given, class: what.slice(end + 1).replaceAll('.', ' ') }, ...inside);
}

const isChildren = (value: object | Children): value is Children => typeof value === 'string' || Array.isArray(value);
