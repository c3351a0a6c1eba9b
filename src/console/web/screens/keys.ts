import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { useLoad } from '../load.ts';
import { Bars, Button, Dialog, Fault, Notice, Time, Title } from '../parts/elements.ts';
import { Confirm, Copy, Form } from '../parts/form.ts';
import { plain } from '../parts/text.ts';
import type { ApiKey } from '../records.ts';
import { account, may } from '../session.ts';

/** The API keys of the account. */
export function Keys(): ComponentChildren {
  const { data, error, failedAt, again, change } = useLoad(`keys ${account.value?.id}`, (stop) =>
    call<readonly ApiKey[]>('keys/list', {}, stop),
  );
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<ApiKey>();
  return h(
    'div',
    { class: 'screen' },
    h(
      Title,
      { text: 'Keys' },
      may('keys/add') && h(Button, { label: 'Make a key\u2026', kind: 'main', onPress: () => setMaking(true) }),
    ),
    h(
      'p',
      { class: 'faint' },
      'A key may do everything that the account may do, by API and as the password of an SMTP login.',
    ),
    error && h(Fault, { error, since: failedAt, again }),
    data === undefined
      ? !error && h(Bars, { rows: 3 })
      : data.length === 0
        ? h(
            Notice,
            { title: 'The account has no key.' },
            h('p', null, 'Nothing can call the API or log in by SMTP until one is made.'),
          )
        : h(
            'ul',
            { class: 'rows keys-made' },
            data.map((key) => h(KeyRow, { key: key.id, made: key, onRevoke: () => setRevoking(key) })),
          ),
    making &&
      h(MakeKey, {
        onClose: () => {
          setMaking(false);
          again();
        },
      }),
    revoking &&
      h(
        Confirm,
        {
          title: `Revoke the key ${plain(revoking.starts_with)}\u2026?`,
          label: 'Revoke it',
          onConfirm: async () => {
            await call('keys/revoke', { id: revoking.id });
            change((keys) => keys.filter(({ id }) => id !== revoking.id));
          },
          onClose: () => setRevoking(undefined),
        },
        h('p', null, 'Programs that use it are refused within seconds. It cannot be brought back.'),
        data?.length === 1 && h('p', null, 'It is the only key of the account.'),
      ),
  );
}

function KeyRow({
  made: { starts_with: start, label, created_at: createdAt, last_used_at: usedAt },
  onRevoke,
}: {
  readonly made: ApiKey;
  onRevoke(): void;
}): ComponentChildren {
  return h(
    'li',
    { 'data-row': start },
    h('code', null, `${plain(start)}\u2026`),
    h('span', { class: 'label' }, h('bdi', null, plain(label) || 'without a label')),
    h(
      'span',
      { class: 'faint' },
      'made ',
      h(Time, { at: createdAt }),
      usedAt === null ? ', never used' : [', used ', h(Time, { key: 'used', at: usedAt })],
    ),
    may('keys/revoke') &&
      h(Button, { label: 'Revoke\u2026', kind: 'quiet', title: `Key ${plain(start)}\u2026`, onPress: onRevoke }),
  );
}

/** Makes a key, and shows it this once. */
function MakeKey({ onClose }: { onClose(): void }): ComponentChildren {
  const [key, setKey] = useState<string>();
  if (key === undefined)
    return h(
      Dialog,
      { title: 'Make a key', onClose },
      h(Form, {
        fields: [{ name: 'label', label: 'Label', help: 'What it is for, to tell keys apart.' }],
        label: 'Make it',
        onSubmit: async ({ label }) => setKey((await call<{ readonly key: string }>('keys/add', { label })).key),
      }),
    );
  const curl = `curl ${window.location.origin}/api/1.0/users/ping.json -d '{"key":"${key}"}'`;
  return h(
    Dialog,
    { title: 'The key is made', onClose },
    h('p', null, 'Copy it now: it is shown this once.'),
    h('p', { class: 'copied' }, h('code', { class: 'secret' }, key), h(Copy, { text: key, label: 'Copy the key' })),
    h('p', null, 'A call that answers "PONG!":'),
    h('pre', { class: 'code', tabIndex: 0 }, curl),
    h(
      'p',
      { class: 'buttons' },
      h(Copy, { text: curl, label: 'Copy the call' }),
      h(Button, { label: 'Close', kind: 'main', onPress: onClose }),
    ),
  );
}
