import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import type { SignIn } from '../../sign-in.ts';
import { ask } from '../call.ts';
import { h } from '../h.ts';
import { person, readSession } from '../session.ts';
import { Button, Dialog } from './elements.ts';
import { Copy, Form } from './form.ts';
import { count } from './text.ts';

// The visitor's own second factor.

export const factorOpen = signal(false);

type Offer = Awaited<ReturnType<SignIn['offerFactor']>>;

export function FactorDialog() {
  const [offer, setOffer] = useState<Offer>();
  const [codes, setCodes] = useState<readonly string[]>();
  const { has_factor: isOn = false } = person.value ?? {};
  const close = () => {
    factorOpen.value = false;
  };
  return h(Dialog, { title: 'Two-factor authentication', onClose: close }, [
    codes
      ? h(RecoveryCodes, { codes, onClose: close })
      : offer
        ? h(Setup, {
            offer,
            onDone: async (made) => {
              setCodes(made);
              await readSession();
            },
          })
        : [
            isOn ? h(On) : h(Off),
            h('p.buttons', [
              h(Button, {
                label: isOn ? 'Change device' : 'Set up',
                kind: isOn ? 'plain' : 'main',
                onPress: async () => setOffer(await ask<Offer>('POST', '/console/factor', {})),
              }),
              isOn && h(Button, { label: 'Turn off', kind: 'danger', onPress: turnOff }),
            ]),
          ],
  ]);
}

async function turnOff(): Promise<void> {
  await ask('POST', '/console/factor/off', {});
  await readSession();
}

const Off = () =>
  h('p', [
    'With two-factor authentication, signing in needs your password and a code from an authenticator ' +
      'app, so a leaked password is not enough.',
  ]);

function On() {
  const left = person.value?.recovery_codes ?? 0;
  return [
    h('p', ['Two-factor authentication is on. Signing in needs a code from your authenticator app.']),
    h('p', { class: left < 3 ? 'wrong' : 'faint' }, [
      left === 0
        ? 'You have no recovery codes left. Choose "Change device" to get new ones.'
        : `You have ${count(left, 'recovery code')} left. Changing the device replaces them.`,
    ]),
  ];
}

function Setup({
  offer: { secret, url },
  onDone,
}: {
  readonly offer: Offer;
  onDone(codes: readonly string[]): Promise<void>;
}) {
  return [
    h('p', [
      'Add this key to your authenticator app (time-based, 6 digits), or ',
      h('a', { href: url }, 'open it in an app on this device'),
      '.',
    ]),
    h('p', [h('code.secret', secret.replaceAll(/.{4}(?=.)/g, '$& '))]),
    h('p', [h(Copy, { text: secret, label: 'Copy key' })]),
    h(Form, {
      fields: [
        {
          name: 'code',
          label: 'Code',
          help: 'The 6-digit code that the app shows now.',
          autocomplete: 'one-time-code',
          required: true,
        },
      ],
      label: 'Turn on',
      onSubmit: async (values) => {
        const made = await ask<{ readonly recovery_codes: readonly string[] }>('POST', '/console/factor/on', values);
        await onDone(made.recovery_codes);
      },
    }),
  ];
}

function RecoveryCodes({ codes, onClose }: { readonly codes: readonly string[]; onClose(): void }) {
  return [
    h('p', { role: 'status' }, ['Two-factor authentication is on. Your other sessions have been signed out.']),
    h('p', [
      'Save these recovery codes somewhere other than this device. Each works once, in place of a code ' +
        'from the app. They are not shown again.',
    ]),
    h('p', [h('code.secret.recovery', codes.join('\n'))]),
    h('p.buttons', [
      h(Copy, { text: codes.join('\n'), label: 'Copy codes' }),
      h(Button, { label: 'I have saved them', kind: 'main', onPress: onClose }),
    ]),
  ];
}
