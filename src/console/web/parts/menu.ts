import type { ComponentChildren, TargetedMouseEvent } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { h } from '../h.ts';
import { Icon } from './icons.ts';

// Rare or destructive actions, in a menu, so that they are not pressed instead of the next step.

/** Shows its items when it is pressed. Escape, and a press elsewhere, close it. */
export function Menu({ children }: { readonly children: ComponentChildren }) {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const leave = (event: Event) => {
      const inside = event.target instanceof Node && menu.current?.contains(event.target);
      if (menu.current && !inside) menu.current.open = false;
    };
    document.addEventListener('pointerdown', leave);
    document.addEventListener('focusin', leave);
    return () => {
      document.removeEventListener('pointerdown', leave);
      document.removeEventListener('focusin', leave);
    };
  }, []);
  const close = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !menu.current?.open) return;
    event.stopPropagation();
    menu.current.open = false;
    menu.current.querySelector('summary')?.focus();
  };
  return h('details.menu.more-actions', { ref: menu, onKeyDown: close }, [
    h('summary.button', { 'aria-label': 'More actions', title: 'More actions' }, [h(Icon, { name: 'more' })]),
    h('div.sheet', [children]),
  ]);
}

export function MenuItem({
  label,
  destroys = false,
  onPress,
}: {
  readonly label: string;
  readonly destroys?: boolean;
  onPress(): void;
}) {
  const press = ({ currentTarget }: TargetedMouseEvent<HTMLElement>) => {
    currentTarget.closest('details')?.removeAttribute('open');
    onPress();
  };
  return h('button', { type: 'button', class: `button quiet ${destroys ? 'destroys' : ''}`, onClick: press }, label);
}
