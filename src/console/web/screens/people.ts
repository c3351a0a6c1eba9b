import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Button, Dialog, DialogButton, Loading, Notice, State, Time } from '../parts/elements.ts';
import { ConfirmButton, Copy, Form } from '../parts/form.ts';
import { clockTime, count, plain, toMs } from '../parts/text.ts';
import type { EnterLink, HostPerson, HostSession, Role } from '../records.ts';
import { linkTo } from '../router.ts';
import { account, may, person } from '../session.ts';

/** The people who may use the console, with their roles. */
export function People() {
  const loaded = useCall('host/people', {});
  const { data, again, change } = loaded;
  const [link, setLink] = useState<EnterLink>();
  return h('div.pane', [
    h('div.heading', [
      h('p.faint', ['Operators who signed in with a command-line link are not listed.']),
      may('host/add-person') &&
        h(DialogButton, {
          label: 'Invite a person\u2026',
          kind: 'main',
          dialog: (close) =>
            h(Invite, {
              onClose: close,
              invited: (made) => {
                close();
                setLink(made);
                again();
              },
            }),
        }),
    ]),
    h(Loading, { of: loaded, rows: 4 }),
    data &&
      (data.people.length === 0
        ? h(Notice, { title: 'No people yet' }, [h('p', 'An invitation creates a one-time link to the console.')])
        : h('ul.rows.columns.people', [
            data.people.map((one) =>
              h(PersonRow, {
                key: one.name,
                one,
                onInvite: async () => setLink(await call('host/invite-person', { name: one.name })),
                removed: () => change(({ people }) => ({ people: people.filter(({ name }) => name !== one.name) })),
                again,
              }),
            ),
          ])),
    link && h(ShowLink, { link, onClose: () => setLink(undefined) }),
  ]);
}

/** Whether that is the visitor. An operator who signed in by a command-line link is not in the list. */
function isSelf({ name }: HostPerson): boolean {
  const { name: own, has_password: has = false, can_set_password: can = false } = person.value ?? {};
  return name === own && (has || can);
}

interface PersonRowProps {
  readonly one: HostPerson;
  onInvite(): Promise<void>;
  removed(): void;
  again(): void;
}

function PersonRow({ one, onInvite, removed, again }: PersonRowProps) {
  const { name, role, account: whose, locked, created_at: createdAt, sessions } = one;
  const { has_password: has, has_factor: hasFactor } = one;
  return h('li', [
    h('span.who', [h('bdi.name', plain(name)), isSelf(one) && h(Own, { word: 'You' })]),
    h(RoleOf, { role, whose }),
    h('span.faint', [
      has ? `has a password${hasFactor ? ' and two-factor authentication' : ''}` : 'no password yet',
      ', added ',
      h(Time, { at: createdAt }),
      ', ',
      sessions === 0
        ? 'no sessions'
        : h('a', { href: linkTo('/accounts', { show: 'sessions' }) }, count(sessions, 'session')),
    ]),
    locked &&
      h('span.wrong', [
        'Locked after too many wrong codes. To unlock, run on the host: ',
        h('code', `postern person unlock ${plain(name)}`),
      ]),
    h('span.buttons', [
      may('host/invite-person') &&
        h(Button, { label: 'New link', kind: 'quiet', title: plain(name), onPress: onInvite }),
      may('host/reset-factor') &&
        hasFactor &&
        !isSelf(one) &&
        h(ConfirmButton, {
          label: 'Reset two-factor\u2026',
          kind: 'quiet',
          title: plain(name),
          question: `Reset two-factor authentication for ${plain(name)}?`,
          text: ['For a lost device. They can then sign in with their password alone.'],
          confirm: 'Reset',
          onConfirm: () => call('host/reset-factor', { name }).then(again),
        }),
      may('host/remove-person') &&
        !isSelf(one) &&
        h(ConfirmButton, {
          label: 'Remove\u2026',
          kind: 'quiet',
          title: plain(name),
          question: `Remove ${plain(name)}?`,
          text: ['Their sessions and links end immediately. Their past activity is kept.'],
          confirm: 'Remove person',
          onConfirm: () => call('host/remove-person', { name }).then(removed),
        }),
    ]),
  ]);
}

const Own = ({ word }: { readonly word: string }) => h(State, { icon: 'person', word, tone: 'good' });

function RoleOf({ role, whose }: { readonly role: Role; readonly whose: HostPerson['account'] }) {
  return h('span.role', [
    role,
    whose === null
      ? h('span.faint', ' of all accounts')
      : [h('span.faint', ' of '), h('a', { href: linkTo('/', { account: whose.id }) }, [h('bdi', plain(whose.name))])],
  ]);
}

const ROLES: Readonly<Record<Role, string>> = {
  owner: 'Owner: full access to one account, including message content',
  helper: 'Helper: finds and replays messages; no content, no settings',
  reader: 'Reader: statistics and states; no messages',
  operator: 'Operator: all accounts and hosts',
};

function Invite({ invited, onClose }: { invited(link: EnterLink): void; onClose(): void }) {
  return h(Dialog, { title: 'Invite a person', onClose }, [
    h(Form, {
      fields: [
        { name: 'name', label: 'Name', help: 'Used to sign in. Letters, digits and . _ @ + -' },
        { name: 'role', label: 'Role', value: 'owner', options: Object.entries(ROLES) },
        {
          name: 'account',
          label: 'Account',
          value: account.value?.id ?? '',
          options: (person.value?.accounts ?? []).map(({ id, name }) => [id, plain(name)] as const),
          when: ({ role }) => role !== 'operator',
        },
      ],
      label: 'Create link',
      onSubmit: async ({ name = '', role, account: whose }) =>
        invited(
          await call('host/add-person', {
            name: name.trim(),
            role,
            ...(role !== 'operator' && { account: whose }),
          }),
        ),
    }),
  ]);
}

/** A link, this once. */
function ShowLink({ link: { name, url, until }, onClose }: { readonly link: EnterLink; onClose(): void }) {
  return h(Dialog, { title: `Link for ${plain(name)}`, onClose }, [
    h('p', [`Copy it now; it is not shown again. It works once, until ${clockTime(toMs(until))}.`]),
    h('p', [h('code.secret', url)]),
    new URL(url).protocol === 'http:' &&
      h('p.faint', [
        'It opens in a browser on the host, or over SSH. For a link that works elsewhere, set ',
        h('code', 'console.url'),
        '.',
      ]),
    h('p.buttons', [
      h(Copy, { text: url, label: 'Copy link' }),
      h(Button, { label: 'Close', kind: 'main', onPress: onClose }),
    ]),
  ]);
}

/** The open sessions of the console. */
export function Sessions() {
  const loaded = useCall('host/sessions', {});
  const { data, change } = loaded;
  return h('div.pane', [
    h('p.faint', [
      'Sessions end after ',
      h('code', 'console.session_hours'),
      ', or earlier after ',
      h('code', 'console.idle_minutes'),
      ' without a click.',
    ]),
    h(Loading, { of: loaded, rows: 3 }),
    data &&
      h('ul.rows.columns.people', [
        data.sessions.map((one) =>
          h(SessionRow, {
            key: one.id,
            one,
            ended: () => change(({ sessions }) => ({ sessions: sessions.filter(({ id }) => id !== one.id) })),
          }),
        ),
      ]),
  ]);
}

function SessionRow({ one, ended }: { readonly one: HostSession; ended(): void }) {
  const { id, name, role, account: whose, by, address, since, seen_at: seenAt, until, own } = one;
  return h('li', [
    h('span.who', [h('bdi.name', plain(name)), own && h(Own, { word: 'This session' })]),
    h(RoleOf, { role, whose }),
    h('span.faint', [
      `signed in by ${by} from ${plain(address)} `,
      h(Time, { at: since }),
      ', last used ',
      h(Time, { at: seenAt }),
      ', ends ',
      h(Time, { at: until }),
    ]),
    h('span.buttons', [
      may('host/end-session') &&
        !own &&
        h(ConfirmButton, {
          label: 'End\u2026',
          kind: 'quiet',
          title: plain(name),
          question: `End the session of ${plain(name)}?`,
          text: ['They have to sign in again. To revoke access, remove the person.'],
          confirm: 'End session',
          onConfirm: () => call('host/end-session', { id }).then(ended),
        }),
    ]),
  ]);
}
