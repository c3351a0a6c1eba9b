import { signal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { h } from '../h.ts';
import type { Loaded } from '../load.ts';
import { messageOf } from '../session.ts';
import { Icon, type IconName } from './icons.ts';
import { age, exactTime, now, plain, relative, toMs } from './text.ts';

// The few elements that screens are made of.

export interface ButtonProps {
  readonly label: string;
  readonly icon?: IconName;
  readonly kind?: 'plain' | 'main' | 'danger' | 'quiet';
  readonly disabled?: boolean;
  readonly title?: string;
  /** While a promise is pending the button is busy; its error is shown beside it. */
  onPress(): unknown;
}

/** Something that a person starts: busy until it is done; what it throws stays until it is started again. */
export function useAction(run: () => unknown) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const start = async () => {
    if (busy) return;
    setError(undefined);
    setBusy(true);
    try {
      await run();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, start };
}

/** A button that says what went wrong. */
export function Button({ label, icon, kind = 'plain', disabled = false, title, onPress }: ButtonProps) {
  const { busy, error, start } = useAction(onPress);
  return h('span.press', [
    h(
      'button',
      { type: 'button', class: `button ${kind}`, disabled: disabled || busy, title, onClick: start, 'aria-busy': busy },
      [icon && h(Icon, { name: icon }), label],
    ),
    error !== undefined && h('span.wrong', { role: 'alert' }, messageOf(error)),
  ]);
}

/** A button that opens a dialog. */
export function DialogButton({
  dialog,
  onClosed,
  ...button
}: Omit<ButtonProps, 'onPress'> & { dialog(close: () => void): ComponentChildren; onClosed?(): void }) {
  const [open, setOpen] = useState(false);
  const close = () => {
    setOpen(false);
    onClosed?.();
  };
  return [h(Button, { ...button, onPress: () => setOpen(true) }), open && dialog(close)];
}

export interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly type?: 'text' | 'password' | 'url' | 'search' | 'email' | 'number';
  readonly autocomplete?: 'off' | 'username' | 'current-password' | 'new-password' | 'one-time-code';
  readonly help?: string;
  /** The fault of the value. */
  readonly error?: string | undefined;
  readonly required?: boolean;
  /** A choice among these, instead of a text. */
  readonly options?: readonly (readonly [string, string])[];
  onValue(value: string): void;
}

export function Field({
  label,
  value,
  type = 'text',
  autocomplete = 'off',
  help,
  error,
  required,
  options,
  onValue,
}: FieldProps) {
  const id = useId();
  const wrong = error === undefined ? {} : ({ 'aria-invalid': 'true', 'aria-errormessage': id } as const);
  return h('label.field', [
    h('span.label', label),
    options
      ? h(Select, { value, options, onValue, ...wrong })
      : h('input', {
          type,
          value,
          autocomplete,
          required: required ?? false,
          spellcheck: false,
          onInput: (event) => onValue(event.currentTarget.value),
          ...wrong,
        }),
    help !== undefined && h('span.faint', help),
    error !== undefined && h('span.wrong', { role: 'alert', id }, error),
  ]);
}

type SelectProps = Pick<FieldProps, 'value' | 'onValue'> & {
  readonly options: NonNullable<FieldProps['options']>;
} & Pick<JSX.IntrinsicElements['select'], 'aria-invalid' | 'aria-errormessage'>;

function Select({ value, options, onValue, ...wrong }: SelectProps) {
  return h('select', { value, onChange: (event) => onValue(event.currentTarget.value), ...wrong }, [
    options.map(([one, name]) => h('option', { key: one, value: one, selected: one === value }, name)),
  ]);
}

export type Tone = 'good' | 'wait' | 'bad' | 'off';

/** How a state is shown: an icon and a word; the colour only repeats them. */
export interface Mark {
  readonly icon: IconName;
  readonly word: string;
  readonly tone: Tone;
}

export function State({ icon, word, tone }: Mark) {
  return h('span', { class: `state ${tone}` }, [h(Icon, { name: icon }), h('span', word)]);
}

/** A time of the API, relative; exact in its title. */
export function Time({ at }: { readonly at: string }) {
  const ms = toMs(at);
  return h('time', { dateTime: new Date(ms).toISOString(), title: exactTime(ms) }, relative(ms, now.value));
}

interface NoticeProps extends Partial<Omit<Mark, 'word'>> {
  readonly title: string;
  readonly children?: ComponentChildren;
}

/** Why something is empty or does not work, with a remedy. */
export function Notice({ icon = 'dot', title, tone = 'off', children }: NoticeProps) {
  return h('div', { class: `notice ${tone}` }, [
    icon !== 'dot' && h(Icon, { name: icon }),
    h('div', [h('p.title', title), children]),
  ]);
}

/** An error, its time, and a button to retry. */
export function Fault({
  error,
  since,
  again,
  children,
}: {
  readonly error: Error;
  readonly since: number | undefined;
  again(): void;
  /** Another way on. */
  readonly children?: ComponentChildren;
}) {
  return h('div', { role: 'alert' }, [
    h(Notice, { icon: 'alert', tone: 'bad', title: messageOf(error) }, [
      h('p.row', [
        since !== undefined && now.value - since > 10_000 && `Failing for ${age(since, now.value)}. `,
        h(Button, { label: 'Try again', icon: 'replay', onPress: again }),
        children,
      ]),
    ]),
  ]);
}

/** Grey bars where text will be; the style sheet shows them after a moment. */
export function Bars({ rows = 6 }: { readonly rows?: number }) {
  return h('div.bars', { role: 'status' }, [
    h('span.hidden', 'Loading'),
    Array.from({ length: rows }, (_, i) => h('span.bar', { key: i })),
  ]);
}

/**
 * What stands in the place of what is loaded: grey bars at first; above it what did not work, even if older data
 * is shown.
 */
export function Loading({
  of: { data, error, failedAt, again },
  rows,
  children,
}: {
  readonly of: Pick<Loaded<unknown>, 'data' | 'failedAt' | 'again'> & { readonly error: Error | undefined };
  readonly rows: number;
  readonly children?: ComponentChildren;
}) {
  if (error) return h(Fault, { error, since: failedAt, again }, [children]);
  return data === undefined && h(Bars, { rows });
}

/** A heading of a screen, which gets the focus when the screen opens, so that a reader of screens begins there. */
export function Title({ text, children }: { readonly text: string; readonly children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${text} \u00b7 Postern`;
  }, [text]);
  useEffect(() => {
    if (!(document.activeElement instanceof HTMLInputElement)) heading.current?.focus({ preventScroll: true });
  }, []);
  return h('div.heading', [h('h1', { tabIndex: -1, ref: heading, dir: 'auto' }, text), children]);
}

export interface Tab {
  readonly id: string;
  readonly label: string;
}

interface TabsProps {
  readonly tabs: readonly Tab[];
  readonly chosen: string;
  readonly label: string;
  onChoose(id: string): void;
  readonly children?: ComponentChildren;
}

/** Tabs, moved through with the arrow keys, and below them what the chosen one shows. */
export function Tabs({ tabs, chosen, label, onChoose, children }: TabsProps) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const at = tabs.findIndex(({ id }) => id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return [
    h('div.tabs', { role: 'tablist', 'aria-label': label, onKeyDown: move }, [
      tabs.map(({ id, label: text }) =>
        h(
          'button',
          {
            type: 'button',
            key: id,
            id: `tab-${id}`,
            role: 'tab',
            'aria-selected': id === chosen,
            'aria-controls': 'panel',
            tabIndex: id === chosen ? 0 : -1,
            onClick: () => onChoose(id),
          },
          [text],
        ),
      ),
    ]),
    h('div.panel', { id: 'panel', role: 'tabpanel', 'aria-labelledby': `tab-${chosen}` }, [children]),
  ];
}

/** Dialogs that are open, by id. Only the last is shown; those below come back, as they were, when it is closed. */
const dialogs = signal<readonly string[]>([]);

/**
 * A dialog that is open as long as it is rendered, behind those that were opened later. It is rendered beside
 * another, never inside it, where it would be hidden with that.
 */
export function Dialog({
  title,
  onClose,
  children,
}: {
  readonly title: string;
  onClose(): void;
  readonly children?: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // It opens before the next frame is drawn, so that the next key or click reaches it.
  useLayoutEffect(() => {
    dialogs.value = [...dialogs.peek(), id];
    return () => {
      dialogs.value = dialogs.peek().filter((one) => one !== id);
    };
  }, []);
  const isShown = dialogs.value.at(-1) === id;
  useLayoutEffect(() => {
    const element = dialog.current;
    if (isShown && element?.open === false) element.showModal();
    else if (!isShown && element?.open) element.close();
  }, [isShown]);
  return h('dialog', { ref: dialog, 'aria-labelledby': id, onClose: () => dialogs.peek().at(-1) === id && onClose() }, [
    h('div.heading', [
      h('h2', { id }, title),
      h('button.button.quiet', { type: 'button', 'aria-label': 'Close', onClick: () => dialog.current?.close() }, [
        h(Icon, { name: 'close' }),
      ]),
    ]),
    children,
  ]);
}

/** Names and values. */
export function Facts({ rows }: { readonly rows: readonly (readonly [string, ComponentChildren])[] }) {
  return h('dl.facts', [
    rows.map(([name, value]) => h('div', { key: name }, [h('dt.faint', name), h('dd', { dir: 'auto' }, [value])])),
  ]);
}

/** Header fields. */
export function Headers({ fields }: { readonly fields: readonly { readonly name: string; readonly value: string }[] }) {
  return h('dl.headers', [
    fields.map(({ name, value }, i) =>
      h('div', { key: i }, [h('dt.faint', plain(name)), h('dd', { dir: 'auto' }, plain(value))]),
    ),
  ]);
}

interface TableProps {
  readonly label: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Whether the first column has the names of the rows. */
  readonly areNamed?: boolean;
}

/** Figures. The table scrolls by itself where it is too wide. */
export function Table({ label, columns, rows, areNamed = false }: TableProps) {
  const toCell = (text: string, i: number) =>
    areNamed && i === 0 ? h('th', { key: i, scope: 'row' }, text) : h('td', { key: i }, text);
  return h('div.wide', { tabIndex: 0, role: 'region', 'aria-label': label }, [
    h('table', [
      h('thead', [h('tr', [columns.map((name) => h('th', { key: name, scope: 'col' }, name))])]),
      h('tbody', [rows.map((cells, i) => h('tr', { key: i }, [cells.map(toCell)]))]),
    ]),
  ]);
}

/** A choice among a few. */
export function Choice({ label, ...choice }: { readonly label: string } & SelectProps) {
  return h('label.choice', [h('span.hidden', label), h(Select, choice)]);
}
