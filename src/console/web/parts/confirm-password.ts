import { ask, confirming } from '../call.ts';
import { h } from '../h.ts';
import { person } from '../session.ts';
import { Button, Dialog } from './elements.ts';
import { Form } from './form.ts';

/** Asks for the password again, and then lets the call that waits for it go on. */
export function ConfirmPassword() {
  const waiting = confirming.value;
  if (!waiting) return null;
  const { has_password: hasPassword = false, has_factor: hasFactor = false } = person.value ?? {};
  return h(
    Dialog,
    { title: hasPassword ? 'Confirm your password' : 'Open a new sign-in link', onClose: waiting.giveUp },
    [
      h('p', waiting.text),
      hasPassword
        ? h(Form, {
            fields: [
              {
                name: 'password',
                label: 'Password',
                type: 'password',
                autocomplete: 'current-password',
                required: true,
              },
              ...(hasFactor ? [CODE_FIELD] : []),
            ],
            label: 'Confirm',
            onSubmit: async (values) => {
              await ask('POST', '/console/confirm', values);
              waiting.goOn();
            },
          })
        : h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: waiting.giveUp })]),
    ],
  );
}

/** The field for a code of the second factor. */
export const CODE_FIELD = {
  name: 'code',
  label: 'Code',
  help: 'The 6-digit code from your authenticator app, or a recovery code.',
  autocomplete: 'one-time-code',
  required: true,
} as const;
