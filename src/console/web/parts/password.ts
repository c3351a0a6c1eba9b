import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from '../call.ts';
import { h } from '../h.ts';
import { messageOf, person, readSession } from '../session.ts';
import { Button, Dialog, Field } from './elements.ts';

// The visitor's own password.

export const passwordOpen = signal(false);

/** For somebody who came in by a link, and cannot come back, or change keys in ten minutes, without a password. */
export function PasswordNotice(): ComponentChildren {
  const { has_password: has, can_set_password: can } = person.value ?? {};
  if (has !== false || !can) return null;
  return h('p.banner', [
    isNobody()
      ? 'You signed in with a one-time link. Set a name and a password so that you can sign in again and manage keys and people.'
      : 'Set a password so that you can sign in again and manage keys.',
    h(Button, { label: 'Set a password\u2026', onPress: () => (passwordOpen.value = true) }),
  ]);
}

/** Whether this is the operator of a link of the command line, who has no name yet. */
const isNobody = () => person.value?.is_person === false;

export function PasswordDialog(): ComponentChildren {
  // The prompt stays the same until the dialog is closed.
  const [nobody] = useState(isNobody);
  const [name, setName] = useState('');
  const [current, setCurrent] = useState('');
  const [password, setPassword] = useState('');
  const [error, setError] = useState<string>();
  const [done, setDone] = useState(false);
  const close = () => {
    passwordOpen.value = false;
  };
  const needsCurrent = !person.value?.can_set_password;
  const save = async (event: Event) => {
    event.preventDefault();
    setError(undefined);
    try {
      await ask('POST', '/console/password', { password, ...(needsCurrent && { current }), ...(nobody && { name }) });
      setDone(true);
      await readSession();
    } catch (thrown) {
      setError(messageOf(thrown));
    }
  };
  if (done)
    return h(Dialog, { title: 'Password', onClose: close }, [
      h('p', { role: 'status' }, [
        nobody
          ? `Password saved. From now on, sign in as ${person.value?.name}.`
          : 'Password changed. Your other sessions have been signed out.',
      ]),
      h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: close })]),
    ]);
  return h(Dialog, { title: 'Password', onClose: close }, [
    h('form', { onSubmit: save }, [
      nobody && h(Field, { label: 'Name', value: name, autocomplete: 'username', required: true, onValue: setName }),
      needsCurrent &&
        h(Field, {
          label: 'Current password',
          type: 'password',
          value: current,
          autocomplete: 'current-password',
          required: true,
          onValue: setCurrent,
        }),
      h(Field, {
        label: 'New password',
        type: 'password',
        value: password,
        autocomplete: 'new-password',
        help: 'At least 12 characters. Several words work well.',
        required: true,
        onValue: setPassword,
      }),
      error !== undefined && h('p.wrong', { role: 'alert' }, error),
      h('p.buttons', [h('button.button.main', { type: 'submit' }, 'Save password')]),
    ]),
  ]);
}
