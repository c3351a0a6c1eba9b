import { signal } from '@preact/signals';
import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from '../call.ts';
import { person, readSession } from '../session.ts';
import { Button, Dialog } from './elements.ts';
import { Copy, Form } from './form.ts';
import { count } from './text.ts';

// The second factor of the person who looks at the page.

export const factorOpen = signal(false);

/** A secret for an authenticator app: /console/factor. */
interface Offer {
  readonly secret: string;
  readonly url: string;
}

export function FactorDialog(): ComponentChildren {
  const [offer, setOffer] = useState<Offer>();
  const [codes, setCodes] = useState<readonly string[]>();
  const { has_factor: isOn = false } = person.value ?? {};
  const close = () => {
    factorOpen.value = false;
  };
  return h(
    Dialog,
    { title: 'Second factor', onClose: close },
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
            isOn ? h(On, { key: 'state' }) : h(Off, { key: 'state' }),
            h(
              'p',
              { class: 'buttons', key: 'buttons' },
              h(Button, {
                label: isOn ? 'Use another device' : 'Set it up',
                kind: isOn ? 'plain' : 'main',
                onPress: async () => setOffer(await ask<Offer>('POST', '/console/factor', {})),
              }),
              isOn && h(Button, { label: 'Turn it off', kind: 'danger', onPress: turnOff }),
            ),
          ],
  );
}

async function turnOff(): Promise<void> {
  await ask('POST', '/console/factor/off', {});
  await readSession();
}

const Off = () =>
  h(
    'p',
    null,
    'With a second factor, signing in needs your password and a code of an authenticator app. A password that leaked is not enough then.',
  );

function On(): ComponentChildren {
  const left = person.value?.recovery_codes ?? 0;
  return [
    h('p', { key: 'on' }, 'It is on: signing in needs a code of your authenticator app.'),
    h(
      'p',
      { key: 'left', class: left < 3 ? 'wrong' : 'faint' },
      left === 0
        ? 'You have no recovery code left. Set it up again to get new ones.'
        : `You have ${count(left, 'recovery code')} left. Setting it up again makes new ones.`,
    ),
  ];
}

function Setup({
  offer: { secret, url },
  onDone,
}: {
  readonly offer: Offer;
  onDone(codes: readonly string[]): Promise<void>;
}): ComponentChildren {
  return [
    h(
      'p',
      { key: 'how' },
      'Add this key to your authenticator app (time-based, six digits), or ',
      h('a', { href: url }, 'open it in an app on this device'),
      '.',
    ),
    h('p', { key: 'secret' }, h('code', { class: 'secret' }, secret.replaceAll(/.{4}(?=.)/g, '$& '))),
    h('p', { key: 'copy' }, h(Copy, { text: secret, label: 'Copy the key' })),
    h(Form, {
      key: 'code',
      fields: [
        {
          name: 'code',
          label: 'Code',
          help: 'The six digits that the app shows now.',
          autocomplete: 'one-time-code',
          required: true,
        },
      ],
      label: 'Turn it on',
      onSubmit: async (values) => {
        const made = await ask<{ readonly recovery_codes: readonly string[] }>('POST', '/console/factor/on', values);
        await onDone(made.recovery_codes);
      },
    }),
  ];
}

function RecoveryCodes({ codes, onClose }: { readonly codes: readonly string[]; onClose(): void }): ComponentChildren {
  return [
    h('p', { key: 'on', role: 'status' }, 'The second factor is on. Your other sessions have ended.'),
    h(
      'p',
      { key: 'keep' },
      'Save these recovery codes somewhere else than on the device. Each works once, instead of a code of the app. They are shown this once.',
    ),
    h('p', { key: 'codes' }, h('code', { class: 'secret recovery' }, codes.join('\n'))),
    h(
      'p',
      { key: 'buttons', class: 'buttons' },
      h(Copy, { text: codes.join('\n'), label: 'Copy the codes' }),
      h(Button, { label: 'I have saved them', kind: 'main', onPress: onClose }),
    ),
  ];
}
