import { useLayoutEffect, useState } from 'preact/hooks';
import { Failed } from '../call.ts';
import { h } from '../h.ts';
import { CODE_FIELD } from '../parts/confirm-password.ts';
import { Field } from '../parts/elements.ts';
import { messageOf, signIn } from '../session.ts';

/** The way in, for people who have a password; those with a second factor are asked for a code then. */
export function Enter({ ended }: { readonly ended: boolean }) {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState<string>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  useLayoutEffect(() => {
    document.title = 'Sign in \u00b7 Postern';
    document.querySelector<HTMLInputElement>('.enter input')?.focus();
  }, []);
  const enter = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await signIn(name.trim(), password, code);
    } catch (thrown) {
      const kind = thrown instanceof Failed ? thrown.kind : '';
      const wantsCode = kind === 'Code_Needed' || kind === 'Wrong_Code';
      if (kind !== 'Code_Needed') setError(messageOf(thrown));
      if (!wantsCode) setPassword('');
      setCode(wantsCode ? '' : undefined);
      setBusy(false);
    }
  };
  return h('main.enter', [
    h('h1', 'Postern'),
    h('p.faint', `on ${window.location.host}`),
    ended && h('p', { role: 'status' }, 'Your session has ended. Please sign in again.'),
    h('form', { onSubmit: enter }, [
      h(Field, { label: 'Name', value: name, autocomplete: 'username', required: true, onValue: setName }),
      h(Field, {
        label: 'Password',
        value: password,
        type: 'password',
        autocomplete: 'current-password',
        required: true,
        onValue: setPassword,
      }),
      code !== undefined && h(CodeField, { code, onCode: setCode }),
      error !== undefined && h('p.wrong', { role: 'alert' }, error),
      h('button.button.main', { type: 'submit', disabled: busy }, 'Sign in'),
    ]),
    h('p.faint', [
      'No password, or forgot it? Ask an operator for a link, or run ',
      h('code', 'postern console link'),
      ' on the host.',
    ]),
  ]);
}

/** Takes the cursor when it appears. */
function CodeField({ code, onCode }: { readonly code: string; onCode(code: string): void }) {
  useLayoutEffect(() => document.querySelector<HTMLInputElement>('[autocomplete="one-time-code"]')?.focus(), []);
  const { name: _, ...field } = CODE_FIELD;
  return h(Field, { ...field, value: code, onValue: onCode });
}
