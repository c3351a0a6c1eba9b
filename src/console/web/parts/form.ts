import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { faultsOf } from '../call.ts';
import { h } from '../h.ts';
import { messageOf } from '../session.ts';
import { Button, type ButtonProps, Dialog, DialogButton, Field, type FieldProps, useAction } from './elements.ts';

// Forms that call an operation, and questions before something is lost.

export interface FormField
  extends Pick<FieldProps, 'label' | 'type' | 'autocomplete' | 'help' | 'required' | 'options'> {
  /** The parameter of the operation, whose errors stand beside the field. */
  readonly name: string;
  readonly value?: string;
  /** Whether it is shown, given the values of the others. */
  readonly when?: (values: Values) => boolean;
}

export type Values = Readonly<Record<string, string>>;

interface FormProps {
  readonly fields: readonly FormField[];
  /** The label of the button. */
  readonly label: string;
  /** The fields and the button in one line, if there is room. */
  readonly inline?: boolean;
  onSubmit(values: Values): Promise<unknown>;
}

/** A form. The fields are empty again after it was sent. */
export function Form({ fields, label, inline = false, onSubmit }: FormProps) {
  const initial = () => Object.fromEntries(fields.map(({ name, value = '' }) => [name, value]));
  const [values, setValues] = useState<Values>(initial);
  const { busy, error, start } = useAction(() => onSubmit(values).then(() => setValues(initial())));
  const submit = (event: Event) => {
    event.preventDefault();
    return start();
  };
  const faults = error === undefined ? {} : faultsOf(error);
  const shown = fields.filter(({ when }) => when?.(values) ?? true);
  const beside = shown.filter(({ name }) => faults[name] !== undefined);
  return h('form', { class: inline ? 'form inline' : 'form', onSubmit: submit, noValidate: true }, [
    shown.map(({ name, value: _, when: __, ...field }) =>
      h(Field, {
        key: name,
        ...field,
        value: values[name] ?? '',
        error: faults[name],
        onValue: (value) => setValues((before) => ({ ...before, [name]: value })),
      }),
    ),
    error !== undefined && beside.length === 0 && h('p.wrong', { role: 'alert' }, messageOf(error)),
    h('p.buttons', [h('button.button.main', { type: 'submit', disabled: busy, 'aria-busy': busy }, label)]),
  ]);
}

interface Question {
  readonly question: string;
  /** The consequences, in paragraphs. */
  readonly text: readonly ComponentChildren[];
  /** The label of the button that does it. */
  readonly confirm: string;
  onConfirm(): Promise<unknown>;
}

/** Asks once before something is lost. */
export function Confirm({ question, text, confirm, onConfirm, onClose }: Question & { onClose(): void }) {
  return h(Dialog, { title: question, onClose }, [
    h('div', [text.map((one) => one && h('p', [one]))]),
    h('p.buttons', [
      h(Button, { label: 'Cancel', onPress: onClose }),
      h(Button, { label: confirm, kind: 'danger', onPress: () => onConfirm().then(onClose) }),
    ]),
  ]);
}

/** A button that asks for confirmation. It must not stand in a dialog, which would hide the question. */
export function ConfirmButton({
  question,
  text,
  confirm,
  onConfirm,
  ...button
}: Omit<ButtonProps, 'onPress'> & Question) {
  const dialog = (onClose: () => void) => h(Confirm, { question, text, confirm, onConfirm, onClose });
  return h(DialogButton, { ...button, dialog });
}

/** A button that puts a text on the clipboard. */
export function Copy({
  text,
  label = 'Copy',
  kind = 'quiet',
}: { readonly text: string } & Partial<Pick<ButtonProps, 'label' | 'kind'>>) {
  const [copied, setCopied] = useState(false);
  return h(Button, {
    label: copied ? 'Copied' : label,
    kind,
    title: text.slice(0, 200),
    onPress: async () => {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    },
  });
}
