import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Answer } from '../operations.ts';
import { Button, Dialog } from './elements.ts';
import { Confirm, Copy } from './form.ts';

/** A button that shows the key by which a receiver knows that posts are ours, and makes a new one. */
export function SigningKey({ route }: { readonly route: string }) {
  const [key, setKey] = useState<Answer<'inbound/route-key'>>();
  const [rotating, setRotating] = useState(false);
  const load = async (rotate?: boolean) => setKey(await call('inbound/route-key', { id: route, rotate }));
  return h('span', [
    h(Button, { label: 'Signing key\u2026', onPress: () => load() }),
    key &&
      h(Dialog, { title: 'Signing key', onClose: () => setKey(undefined) }, [
        h('p', ['Signs the POSTs to this URL. Anyone who has it can forge them.']),
        h(OneForm, { title: 'For X-Mandrill-Signature, or as the Mailgun signing key', text: key.auth_key }),
        h(OneForm, { title: 'For webhook-signature (Standard Webhooks libraries)', text: key.signing_secret }),
        h('p.buttons', [
          h(Button, { label: 'Rotate\u2026', onPress: () => setRotating(true) }),
          h(Button, { label: 'Close', kind: 'main', onPress: () => setKey(undefined) }),
        ]),
      ]),
    key &&
      rotating &&
      h(Confirm, {
        question: 'Rotate the signing key?',
        text: [
          'For 24 hours, webhook-signature carries the signatures of both keys, and X-Mandrill-Signature ' +
            'alternates between them. After that, the old key stops working.',
        ],
        confirm: 'Rotate key',
        onConfirm: () => load(true),
        onClose: () => setRotating(false),
      }),
  ]);
}

function OneForm({ title, text }: { readonly title: string; readonly text: string }) {
  return h('div', [h('p.faint', title), h('p.copied', [h('code.secret', text), h(Copy, { text, label: 'Copy' })])]);
}
