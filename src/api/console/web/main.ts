import { effect } from '@preact/signals';
import { Component, type ComponentChildren, h, render } from 'preact';
import { keepLive } from './live.ts';
import { forgetShown } from './load.ts';
import { Button } from './parts/elements.ts';
import { Frame, mayOpen } from './parts/frame.ts';
import { forgetJob, keepFollowing } from './parts/job.ts';
import { listenToKeys } from './parts/keys.ts';
import { tickClock } from './parts/text.ts';
import { followLinks, linkTo, place } from './router.ts';
import { Accounts } from './screens/accounts.ts';
import { Actions, HostActions } from './screens/actions.ts';
import { Domain } from './screens/domain.ts';
import { Domains } from './screens/domains.ts';
import { Endpoint } from './screens/endpoint.ts';
import { Endpoints } from './screens/endpoints.ts';
import { Enter } from './screens/enter.ts';
import { GivenUp } from './screens/given-up.ts';
import { Host } from './screens/host.ts';
import { HostLog } from './screens/host-log.ts';
import { HostSettings } from './screens/host-settings.ts';
import { Keys } from './screens/keys.ts';
import { Lists } from './screens/lists.ts';
import { MailList } from './screens/mail-list.ts';
import { Message } from './screens/message.ts';
import { Now } from './screens/now.ts';
import { Queue } from './screens/queue.ts';
import { Refused } from './screens/refused.ts';
import { SentList } from './screens/sent-list.ts';
import { SentMessageScreen } from './screens/sent-message.ts';
import { person, readSession, session } from './session.ts';

/** The screen of a path. */
function screen(path: string): ComponentChildren {
  const [, first = '', rest = ''] = /^\/([a-z-]*)(?:\/(.*))?$/s.exec(path) ?? [];
  if (!mayOpen(path)) return h(NotIncluded, null);
  switch (rest === '' ? first : `${first}/`) {
    case '':
      return h(Now, null);
    case 'mail':
      return h(MailList, null);
    case 'message/':
      return h(Message, { id: decodeURIComponent(rest), key: rest });
    case 'refused':
      return h(Refused, null);
    case 'endpoints':
      return h(Endpoints, null);
    case 'endpoint':
      return h(Endpoint, { url: place.value.query.get('url') ?? '' });
    case 'given-up':
      return h(GivenUp, null);
    case 'host':
      return h(Host, null);
    case 'host/':
      return hostScreen(rest);
    case 'lists':
      return h(Lists, null);
    case 'sent':
      return h(SentList, null);
    case 'sent/':
      return h(SentMessageScreen, { id: decodeURIComponent(rest), key: rest });
    case 'keys':
      return h(Keys, null);
    case 'actions':
      return h(Actions, null);
    case 'accounts':
      return h(Accounts, null);
    case 'queue':
      return h(Queue, null);
    case 'domains':
      return h(Domains, null);
    case 'domain/':
      return h(Domain, { name: decodeURIComponent(rest), key: rest });
    default:
      return h(Missing, null);
  }
}

function hostScreen(name: string): ComponentChildren {
  switch (name) {
    case 'log':
      return h(HostLog, null);
    case 'settings':
      return h(HostSettings, null);
    case 'actions':
      return h(HostActions, null);
    default:
      return h(Missing, null);
  }
}

function NotIncluded(): ComponentChildren {
  return h(
    'div',
    { class: 'screen' },
    h('h1', null, 'Not for your role'),
    h(
      'p',
      null,
      `The role ${person.value?.role} does not include this. `,
      h('a', { href: linkTo('/') }, 'To the start'),
    ),
  );
}

function Missing(): ComponentChildren {
  return h(
    'div',
    { class: 'screen' },
    h('h1', null, 'There is no such page'),
    h('p', null, h('a', { href: linkTo('/') }, 'To the start')),
  );
}

/** A screen that fails, by a fault of ours, leaves the frame around it. */
class Screen extends Component<{ readonly path: string }, { readonly failed: boolean }> {
  override state = { failed: false };
  static override getDerivedStateFromError(): { readonly failed: boolean } {
    return { failed: true };
  }
  override render(): ComponentChildren {
    if (!this.state.failed) return h(Shown, { path: this.props.path });
    return h(
      'div',
      { class: 'screen', role: 'alert' },
      h('h1', null, 'This screen has failed'),
      h('p', null, h(Button, { label: 'Load the page again', onPress: () => window.location.reload() })),
    );
  }
}

function Shown({ path }: { readonly path: string }): ComponentChildren {
  return screen(path);
}

function App(): ComponentChildren {
  const current = session.value;
  switch (current.state) {
    case 'unknown':
      return null;
    case 'out':
      return h(Enter, { ended: current.ended });
    case 'failed':
      return h(
        'main',
        { class: 'enter' },
        h('h1', null, 'Postern'),
        h('p', { role: 'alert' }, current.text),
        h(Button, { label: 'Try again', onPress: readSession }),
      );
    case 'in':
      return h(Frame, null, h(Screen, { path: place.value.path, key: place.value.path }));
  }
}

followLinks();
listenToKeys();
tickClock();
keepLive();
keepFollowing();
effect(() => {
  // What one person saw is not shown to the next.
  if (session.value.state !== 'out') return;
  forgetShown();
  forgetJob();
});
const root = document.getElementById('app');
if (root) render(h(App, null), root);
await readSession();
