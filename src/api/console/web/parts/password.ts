import { signal } from '@preact/signals';
import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from '../call.ts';
import { messageOf, person, readSession } from '../session.ts';
import { Button, Dialog, Field } from './elements.ts';

// The password of the person who looks at the page.

export const passwordOpen = signal(false);

/** For somebody who came in by an invitation, and cannot come back without a password. */
export function PasswordNotice(): ComponentChildren {
  const { has_password: has, can_set_password: can } = person.value ?? {};
  if (has !== false || !can) return null;
  return h(
    'p',
    { class: 'banner' },
    'Choose a password, so that you can come back.',
    h(Button, { label: 'Choose a password\u2026', onPress: () => (passwordOpen.value = true) }),
  );
}

export function PasswordDialog(): ComponentChildren {
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
      await ask('POST', '/console/password', { password, ...(needsCurrent && { current }) });
      setDone(true);
      await readSession();
    } catch (thrown) {
      setError(messageOf(thrown));
    }
  };
  if (done)
    return h(
      Dialog,
      { title: 'Password', onClose: close },
      h('p', { role: 'status' }, 'The password is changed. Your other sessions have ended.'),
      h('p', { class: 'buttons' }, h(Button, { label: 'Close', kind: 'main', onPress: close })),
    );
  return h(
    Dialog,
    { title: 'Password', onClose: close },
    h(
      'form',
      { onSubmit: save },
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
        help: 'At least 12 characters; several words are good.',
        required: true,
        onValue: setPassword,
      }),
      error !== undefined && h('p', { class: 'wrong', role: 'alert' }, error),
      h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'button main' }, 'Set the password')),
    ),
  );
}
