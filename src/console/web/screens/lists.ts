import { useEffect, useRef, useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import type { Answer } from '../operations.ts';
import { Chips } from '../parts/chips.ts';
import {
  Button,
  type ButtonProps,
  Choice,
  Dialog,
  DialogButton,
  Loading,
  type Mark,
  Notice,
  State,
  Time,
  Title,
} from '../parts/elements.ts';
import { ConfirmButton, Form } from '../parts/form.ts';
import { now, plain, relative, replyText, toMs } from '../parts/text.ts';
import type { RejectEntry } from '../records.ts';
import { go, linkTo, location, sentLink, withQuery } from '../router.ts';
import { may } from '../session.ts';

/** As many as the API lists; those behind are found by the beginning of their address. */
const MAX_LISTED = 1_000;

type Which = 'rejects' | 'whitelists';

/** Addresses that get no mail, and those that always do. */
export function Lists() {
  const { query } = location.value;
  const which: Which = query.get('list') === 'whitelist' ? 'whitelists' : 'rejects';
  const q = (query.get('q') ?? '').trim();
  const [version, setVersion] = useState(0);
  return h('div.screen', [
    h(Title, { text: 'Suppressions' }, [
      h('span.buttons', [
        may(`exports/${which === 'rejects' ? 'rejects' : 'whitelist'}`) && h(Export, { key: which, which }),
        may(`${which}/add`) &&
          h(DialogButton, {
            label: 'Add an address\u2026',
            kind: 'main',
            dialog: (close) =>
              h(AddAddress, {
                which,
                onClose: close,
                added: () => {
                  close();
                  setVersion(version + 1);
                },
              }),
          }),
      ]),
    ]),
    h(Chips<string>, {
      label: 'List',
      chips: [
        ['', 'Suppressed'],
        ['whitelist', 'Whitelist'],
      ],
      chosen: query.get('list') ?? '',
      href: (list) => linkTo('/lists', { list, q }),
    }),
    h('p.faint', [
      which === 'rejects'
        ? 'Mail to these addresses is rejected. Bounces, complaints and unsubscribes add them for a limited ' +
          'time; entries added manually do not expire.'
        : 'These addresses are never suppressed.',
    ]),
    which === 'rejects' ? h(Rejects, { q, version }) : h(Whitelist, { q, version }),
  ]);
}

const REASONS: Readonly<Record<RejectEntry['reason'], Mark>> = {
  'hard-bounce': { icon: 'cross', word: 'Hard bounce', tone: 'bad' },
  'soft-bounce': { icon: 'clock', word: 'Soft bounce', tone: 'wait' },
  spam: { icon: 'alert', word: 'Complaint', tone: 'bad' },
  unsub: { icon: 'refused', word: 'Unsubscribed', tone: 'off' },
  custom: { icon: 'person', word: 'Manual', tone: 'off' },
};

interface ListProps {
  /** The beginning of an address. */
  readonly q: string;
  /** Changes when an address was added. */
  readonly version: number;
}

function Rejects({ q, version }: ListProps) {
  const { query } = location.value;
  const withExpired = query.get('expired') === 'yes';
  const reason = query.get('reason') ?? '';
  const loaded = useCall('rejects/list', { email: q, include_expired: withExpired }, version);
  const { data, change } = loaded;
  const shown = data?.filter((one) => reason === '' || one.reason === reason);
  return h('div.pane', [
    h('p.chips', [
      h(Choice, {
        label: 'Reason',
        value: reason,
        options: [['', 'Any reason'], ...Object.entries(REASONS).map(([id, { word }]) => [id, word] as const)],
        onValue: (value) => go(withQuery({ reason: value }), true),
      }),
      h(
        'a.chip',
        {
          href: withQuery({ expired: withExpired ? undefined : 'yes' }),
          'aria-current': withExpired ? 'true' : undefined,
        },
        ['Include expired'],
      ),
    ]),
    h(Loading, { of: loaded, rows: 8 }),
    shown &&
      (shown.length === 0
        ? h(Empty, { filtered: q !== '' || reason !== '', which: 'rejects' })
        : h('ul.rows.columns.listed', [
            shown.map((entry) =>
              h(RejectRow, {
                key: keyOf(entry),
                entry,
                taken: () => change((rows) => rows.filter((one) => keyOf(one) !== keyOf(entry))),
              }),
            ),
          ])),
    h(Cut, { length: data?.length ?? 0 }),
  ]);
}

const keyOf = ({ email, subaccount }: RejectEntry) => `${email} ${subaccount ?? ''}`;

/** How long an entry still holds. */
function termOf({ expires_at: at, expired }: RejectEntry): string {
  if (at === null) return 'no expiry';
  if (expired) return 'expired';
  return `expires ${relative(toMs(at), now.value)}`;
}

function RejectRow({ entry, taken }: { readonly entry: RejectEntry; taken(): void }) {
  const { email, reason, detail, last_event_at: at, subaccount, message_id: message } = entry;
  return h('li', { 'data-row': keyOf(entry) }, [
    h('span.mark', [h(State, REASONS[reason])]),
    h('span.address', [h('bdi', plain(email)), subaccount !== null && h('span.faint', ` (${plain(subaccount)})`)]),
    h('span.detail.faint', { dir: 'auto' }, detail === null ? '' : replyText(detail)),
    h('span.when.faint', [h(Time, { at }), `, ${termOf(entry)}`]),
    h('span.buttons', [
      message !== null && may('messages/info') && h('a.button.quiet', { href: sentLink(message) }, 'Message'),
      message === null &&
        may('messages/search') &&
        h('a.button.quiet', { href: linkTo('/sent', { q: `email:${email}` }) }, 'Messages'),
      may('rejects/delete') && h(TakeOff, { entry, label: 'Remove\u2026', kind: 'quiet', title: plain(email), taken }),
    ]),
  ]);
}

/** A button that asks before an address gets mail again, and says what that costs. */
export function TakeOff({
  entry: { email, subaccount, reason, expires_at: expires },
  taken,
  ...button
}: Omit<ButtonProps, 'onPress'> & {
  readonly entry: Pick<RejectEntry, 'email' | 'subaccount' | 'reason' | 'expires_at'>;
  taken(): void;
}) {
  const expiry = expires === null ? '' : ` The entry expires by itself ${relative(toMs(expires), now.value)}.`;
  return h(ConfirmButton, {
    ...button,
    question: `Remove ${plain(email)} from the suppression list?`,
    text: [
      'Mail to this address will be sent again.',
      reason === 'custom'
        ? 'It was added manually. Unless it replaced the entry of a bounce or complaint, your reputation does ' +
          'not change.'
        : `This lowers your reputation, on which the hourly quota depends.${expiry} If the address bounces or ` +
          'complains again, it is suppressed again.',
    ],
    confirm: 'Remove address',
    onConfirm: () => call('rejects/delete', { email, ...(subaccount !== null && { subaccount }) }).then(taken),
  });
}

function Whitelist({ q, version }: ListProps) {
  const loaded = useCall('whitelists/list', { email: q }, version);
  const { data, change } = loaded;
  return h('div.pane', [
    h(Loading, { of: loaded, rows: 8 }),
    data &&
      (data.length === 0
        ? h(Empty, { filtered: q !== '', which: 'whitelists' })
        : h('ul.rows.columns.listed', [
            data.map(({ email, detail, created_at: at }) =>
              h('li', { key: email, 'data-row': email }, [
                h('span.mark', [h(State, { icon: 'check', word: 'Whitelisted', tone: 'good' })]),
                h('span.address', [h('bdi', plain(email))]),
                h('span.detail.faint', { dir: 'auto' }, detail === null ? '' : plain(detail)),
                h('span.when.faint', [h(Time, { at })]),
                h('span.buttons', [
                  may('whitelists/delete') &&
                    h(ConfirmButton, {
                      label: 'Remove\u2026',
                      kind: 'quiet',
                      title: plain(email),
                      question: `Remove ${plain(email)} from the whitelist?`,
                      text: [
                        'Bounces and complaints can suppress it again. If it was suppressed when it was whitelisted, ' +
                          'this lowers your reputation.',
                      ],
                      confirm: 'Remove address',
                      onConfirm: async () => {
                        await call('whitelists/delete', { email });
                        change((rows) => rows.filter((one) => one.email !== email));
                      },
                    }),
                ]),
              ]),
            ),
          ])),
    h(Cut, { length: data?.length ?? 0 }),
  ]);
}

function Cut({ length }: { readonly length: number }) {
  if (length < MAX_LISTED) return null;
  return h('p.faint', [
    'Showing the first 1,000 addresses. To see the rest, search for the start of an address or export the list.',
  ]);
}

function AddAddress({ which, added, onClose }: { readonly which: Which; added(): void; onClose(): void }) {
  const [refused, setRefused] = useState<string>();
  return h(Dialog, { title: which === 'rejects' ? 'Suppress an address' : 'Whitelist an address', onClose }, [
    h('p.faint', [
      which === 'rejects'
        ? 'No mail is sent to it until it is removed from this list.'
        : 'It is removed from the suppression list and never suppressed again.',
    ]),
    h(Form, {
      fields: [
        { name: 'email', label: 'Address', type: 'email' },
        { name: 'comment', label: 'Note (optional)' },
      ],
      label: 'Add address',
      onSubmit: async ({ email, comment }) => {
        setRefused(undefined);
        const answer = await call(`${which}/add`, {
          email,
          comment,
        });
        if (answer.added) added();
        else setRefused(answer.email);
      },
    }),
    refused !== undefined &&
      h('p.wrong', { role: 'alert' }, [`${plain(refused)} is on the whitelist. Remove it there first.`]),
  ]);
}

const ASK_AGAIN_MS = 1_000;

/** Exports the whole list; the link leads to its archive. */
function Export({ which }: { readonly which: Which }) {
  const [job, setJob] = useState<Answer<'exports/info'>>();
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const start = async () => {
    let found = await call(`exports/${which === 'rejects' ? 'rejects' : 'whitelist'}`, {});
    while (found.state === 'waiting' || found.state === 'working') {
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
      if (stop.current.signal.aborted) return;
      found = await call('exports/info', { id: found.id }, stop.current.signal);
    }
    if (found.error !== null) throw new Error(found.error);
    setJob(found);
  };
  if (job?.result_url) return h('a.button', { href: job.result_url, download: '' }, 'Download export');
  return h(Button, { label: 'Export', onPress: start });
}

function Empty({ filtered, which }: { readonly filtered: boolean; readonly which: Which }) {
  if (!filtered)
    return h(Notice, {
      icon: 'check',
      tone: 'good',
      title: which === 'rejects' ? 'No suppressed addresses' : 'No whitelisted addresses',
    });
  return h(Notice, { title: 'No addresses match this search and reason' }, [
    h('p', [
      h('a', { href: linkTo('/lists', { list: which === 'whitelists' ? 'whitelist' : undefined }) }, 'Show all'),
    ]),
  ]);
}
