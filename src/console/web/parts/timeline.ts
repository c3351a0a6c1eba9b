import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import type { Mark } from './elements.ts';
import { Icon } from './icons.ts';
import { clockTime, exactTime, plain, span } from './text.ts';

interface HappeningProps extends Omit<Mark, 'word'> {
  readonly at: number;
  /** Since the timeline began. */
  readonly afterMs: number;
  readonly text: string;
  readonly detail?: string | null;
  readonly children?: ComponentChildren;
}

/** What happened to a message at a time, in its timeline. */
export function Happening({ at, afterMs, icon, tone, text, detail, children }: HappeningProps) {
  return h('li', { class: tone }, [
    h(Icon, { name: icon }),
    h('span.when.faint', [
      h('time', { dateTime: new Date(at).toISOString(), title: exactTime(at) }, clockTime(at)),
      afterMs > 0 && h('span.after', `+${span(afterMs)}`),
    ]),
    h('span.text', [plain(text), detail && h('span.detail.faint', { dir: 'auto' }, plain(detail)), children]),
  ]);
}
