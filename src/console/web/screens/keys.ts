import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Button, Dialog, DialogButton, Loading, Notice, Time, Title } from '../parts/elements.ts';
import { ConfirmButton, Copy, Form } from '../parts/form.ts';
import { plain } from '../parts/text.ts';
import type { ApiKey } from '../records.ts';
import { may } from '../session.ts';

/** The API keys of the account. */
export function Keys() {
  const loaded = useCall('keys/list', {});
  const { data, again, change } = loaded;
  return h('div.screen', [
    h(Title, { text: 'API keys' }, [
      may('keys/add') &&
        h(DialogButton, {
          label: 'Create key\u2026',
          kind: 'main',
          dialog: (onClose) => h(MakeKey, { onClose }),
          onClosed: again,
        }),
    ]),
    h('p.faint', ['A key has full access to the account: through the API, and as the password for SMTP.']),
    h(Loading, { of: loaded, rows: 3 }),
    data &&
      (data.length === 0
        ? h(Notice, { title: 'No API keys yet' }, [h('p', 'Create one to call the API or to send over SMTP.')])
        : h('ul.rows.columns.keys-made', [
            data.map((key) =>
              h(KeyRow, {
                key: key.id,
                made: key,
                isOnly: data.length === 1,
                revoked: () => change((keys) => keys.filter(({ id }) => id !== key.id)),
              }),
            ),
          ])),
  ]);
}

function KeyRow({
  made: { id, starts_with: start, label, created_at: createdAt, last_used_at: usedAt },
  isOnly,
  revoked,
}: {
  readonly made: ApiKey;
  readonly isOnly: boolean;
  revoked(): void;
}) {
  return h('li', { 'data-row': start }, [
    h('code', `${plain(start)}\u2026`),
    h('span.label', [h('bdi', [plain(label) || 'No label'])]),
    h('span.faint', [
      'created ',
      h(Time, { at: createdAt }),
      usedAt === null ? ', never used' : [', used ', h(Time, { at: usedAt })],
    ]),
    may('keys/revoke') &&
      h(ConfirmButton, {
        label: 'Revoke\u2026',
        kind: 'quiet',
        title: `Key ${plain(start)}\u2026`,
        question: `Revoke key ${plain(start)}\u2026?`,
        text: [
          'Programs that use it lose access within seconds. This cannot be undone.',
          isOnly && 'It is the account\u2019s only key.',
        ],
        confirm: 'Revoke key',
        onConfirm: () => call('keys/revoke', { id }).then(revoked),
      }),
  ]);
}

/** Makes a key, and shows it this once. */
function MakeKey({ onClose }: { onClose(): void }) {
  const [key, setKey] = useState<string>();
  if (key === undefined)
    return h(Dialog, { title: 'Create an API key', onClose }, [
      h(Form, {
        fields: [{ name: 'label', label: 'Label (optional)', help: 'What the key is for.' }],
        label: 'Create key',
        onSubmit: async ({ label }) => setKey((await call('keys/add', { label })).key),
      }),
    ]);
  const curl = `curl ${window.location.origin}/api/1.0/users/ping.json -d '{"key":"${key}"}'`;
  return h(Dialog, { title: 'Key created', onClose }, [
    h('p', 'Copy it now; it is not shown again.'),
    h('p.copied', [h('code.secret', key), h(Copy, { text: key, label: 'Copy key' })]),
    h('p', 'To test it (the response is "PONG!"):'),
    h('pre.code', { tabIndex: 0 }, curl),
    h('p.buttons', [
      h(Copy, { text: curl, label: 'Copy command' }),
      h(Button, { label: 'Close', kind: 'main', onPress: onClose }),
    ]),
  ]);
}
