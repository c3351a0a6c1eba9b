import { signal } from '@preact/signals';
import { go } from '../router.ts';
import { listOfShown } from './sections.ts';

// Keys. Rows and boxes are elements that can have the focus; the keys only move it, so everything also works with Tab.

const STORED = 'postern-keys';

/** Whether single keys work; people who dictate turn them off (WCAG 2.1.4). */
export const keysOn = signal(window.localStorage.getItem(STORED) !== 'off');
export const helpOpen = signal(false);

export function turnKeys(on: boolean): void {
  keysOn.value = on;
  window.localStorage.setItem(STORED, on ? 'on' : 'off');
}

export const KEYS: readonly (readonly [string, string])[] = [
  ['j, k', 'Next / previous row'],
  ['Enter', 'Open the row'],
  ['Esc', 'Leave a field, or go back to the list'],
  ['x', 'Select the row'],
  ['r', 'Replay, retry or release'],
  ['/', 'Search'],
  ['?', 'Show this help'],
];

export function listenToKeys(): void {
  document.addEventListener('keydown', (event) => {
    const target = event.target instanceof HTMLElement ? event.target : document.body;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape') return leave(target);
    if (!keysOn.value || isTyping(target)) return;
    if (act(event.key, target)) event.preventDefault();
  });
}

function isTyping(target: HTMLElement): boolean {
  if (target instanceof HTMLInputElement) return target.type !== 'checkbox';
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** Out of a field, or back to the list. */
function leave(target: HTMLElement): void {
  if (isTyping(target)) return target.blur();
  const list = listOfShown();
  if (list) go(list.href);
}

function act(key: string, target: HTMLElement): boolean {
  switch (key) {
    case 'j':
    case 'k':
      return move(key === 'j' ? 1 : -1, target);
    case 'x':
      return press(target.closest('[data-row]')?.querySelector('input[type="checkbox"]'));
    case 'r':
      return press(document.querySelector('[data-key="replay"] button:not(:disabled)'));
    case '/':
      document.querySelector<HTMLInputElement>('#search')?.focus();
      return true;
    case '?':
      helpOpen.value = true;
      return true;
    default:
      return false;
  }
}

function move(step: number, target: HTMLElement): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')];
  const here = rows.indexOf(target.closest<HTMLElement>('[data-row]') ?? document.body);
  const next = rows[here === -1 ? (step > 0 ? 0 : rows.length - 1) : here + step];
  const link = next?.querySelector<HTMLElement>('a');
  link?.focus();
  link?.scrollIntoView({ block: 'nearest' });
  return link !== undefined;
}

function press(element: Element | null | undefined): boolean {
  if (!(element instanceof HTMLElement)) return false;
  element.click();
  return true;
}
