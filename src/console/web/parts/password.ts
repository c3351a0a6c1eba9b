import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { ask } from '../call.ts';
import { h } from '../h.ts';
import { person, readSession } from '../session.ts';
import { Button, Dialog } from './elements.ts';
import { Form, type FormField } from './form.ts';

// The visitor's own password.

export const passwordOpen = signal(false);

/** For somebody who came in by a link, and cannot come back, or change keys in ten minutes, without a password. */
export function PasswordNotice() {
  const { has_password: has, can_set_password: can } = person.value ?? {};
  if (has !== false || !can) return null;
  return h('p.banner', [
    isNobody()
      ? 'You signed in with a one-time link. Set a name and a password so that you can sign in again and manage ' +
        'keys and people.'
      : 'Set a password so that you can sign in again and manage keys.',
    h(Button, { label: 'Set a password\u2026', onPress: () => (passwordOpen.value = true) }),
  ]);
}

/** Whether this is the operator of a link of the command line, who has no name yet. */
const isNobody = () => person.value?.is_person === false;

export function PasswordDialog() {
  // The prompt stays the same until the dialog is closed.
  const [nobody] = useState(isNobody);
  const [title] = useState(person.value?.has_password ? 'Change password' : 'Set a password');
  const [done, setDone] = useState(false);
  const close = () => {
    passwordOpen.value = false;
  };
  if (done)
    return h(Dialog, { title, onClose: close }, [
      h('p', { role: 'status' }, [
        nobody
          ? `Password saved. From now on, sign in as ${person.value?.name}.`
          : 'Password changed. Your other sessions have been signed out.',
      ]),
      h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: close })]),
    ]);
  const fields: readonly FormField[] = [
    ...(nobody ? [NAME] : []),
    ...(person.value?.can_set_password ? [] : [CURRENT_PASSWORD]),
    NEW_PASSWORD,
  ];
  return h(Dialog, { title, onClose: close }, [
    h(Form, {
      fields,
      label: 'Save password',
      onSubmit: async (values) => {
        await ask('POST', '/console/password', values);
        // The name is shown next.
        await readSession();
        setDone(true);
      },
    }),
  ]);
}

const NAME: FormField = { name: 'name', label: 'Name', autocomplete: 'username', required: true };
const CURRENT_PASSWORD: FormField = {
  name: 'current',
  label: 'Current password',
  type: 'password',
  autocomplete: 'current-password',
  required: true,
};
const NEW_PASSWORD: FormField = {
  name: 'password',
  label: 'New password',
  type: 'password',
  autocomplete: 'new-password',
  help: 'At least 12 characters. Several words work well.',
  required: true,
};
