import { effect } from '@preact/signals';
import { Component, type ComponentChildren, type FunctionComponent, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { h } from './h.ts';
import { keepLive } from './live.ts';
import { forgetShown } from './load.ts';
import { Bars, Button } from './parts/elements.ts';
import { Frame } from './parts/frame.ts';
import { forgetJob, keepFollowing } from './parts/job.ts';
import { listenToKeys } from './parts/keys.ts';
import { mayOpen } from './parts/sections.ts';
import { capital, tickClock } from './parts/text.ts';
import { followLinks, forgetSearches, linkTo, place } from './router.ts';
import { Enter } from './screens/enter.ts';
import { person, readSession, session } from './session.ts';

/** When the other screens are loaded, after the session is known. */
const OTHERS_AFTER_MS = 2000;
/** Loads the modules of all screens. */
const loads: (() => Promise<unknown>)[] = [];

/** A screen whose modules are loaded when it is opened: the first screen does not wait for those of all others. */
function later<P extends object>(
  load: () => Promise<(props: P) => ComponentChildren>,
): (props: P) => ComponentChildren {
  let loaded: ((props: P) => ComponentChildren) | undefined;
  const loading = async () => {
    loaded ??= await load();
  };
  loads.push(loading);
  return function Later(props) {
    const [failed, setFailed] = useState(false);
    const [, setLoaded] = useState(loaded !== undefined);
    useEffect(() => {
      if (!loaded)
        loading().then(
          () => setLoaded(true),
          () => setFailed(true),
        );
    }, []);
    if (failed) throw new Error('the modules of the screen could not be loaded'); // `Screen` says so
    return loaded ? h(loaded as FunctionComponent<P>, props) : h('div.screen', [h(Bars, { rows: 8 })]);
  };
}

const Accounts = later(async () => (await import('./screens/accounts.ts')).Accounts);
const Actions = later(async () => (await import('./screens/actions.ts')).Actions);
const HostActions = later(async () => (await import('./screens/actions.ts')).HostActions);
const Domain = later(async () => (await import('./screens/domain.ts')).Domain);
const Domains = later(async () => (await import('./screens/domains.ts')).Domains);
const Endpoint = later(async () => (await import('./screens/endpoint.ts')).Endpoint);
const Endpoints = later(async () => (await import('./screens/endpoints.ts')).Endpoints);
const GivenUp = later(async () => (await import('./screens/given-up.ts')).GivenUp);
const Host = later(async () => (await import('./screens/host.ts')).Host);
const HostLog = later(async () => (await import('./screens/host-log.ts')).HostLog);
const HostSettings = later(async () => (await import('./screens/host-settings.ts')).HostSettings);
const Keys = later(async () => (await import('./screens/keys.ts')).Keys);
const Lists = later(async () => (await import('./screens/lists.ts')).Lists);
const MailList = later(async () => (await import('./screens/mail.ts')).MailList);
const Message = later(async () => (await import('./screens/message.ts')).Message);
const Now = later(async () => (await import('./screens/now.ts')).Now);
const Queue = later(async () => (await import('./screens/queue.ts')).Queue);
const Refused = later(async () => (await import('./screens/refused.ts')).Refused);
const SentList = later(async () => (await import('./screens/sent.ts')).SentList);
const SentMessageScreen = later(async () => (await import('./screens/sent-message.ts')).SentMessageScreen);

/** The screen of a path. */
function screen(path: string): ComponentChildren {
  const [, first = '', rest = ''] = /^\/([a-z-]*)(?:\/(.*))?$/s.exec(path) ?? [];
  if (!mayOpen(path)) return h(NotIncluded);
  switch (rest === '' ? first : `${first}/`) {
    case '':
      return h(Now);
    case 'mail':
      return h(MailList);
    case 'message/':
      return h(Message, { id: decodeURIComponent(rest), key: rest });
    case 'refused':
      return h(Refused);
    case 'endpoints':
      return h(Endpoints);
    case 'endpoint':
      return h(Endpoint, { url: place.value.query.get('url') ?? '' });
    case 'given-up':
      return h(GivenUp);
    case 'host':
      return h(Host);
    case 'host/':
      return hostScreen(rest);
    case 'lists':
      return h(Lists);
    case 'sent':
      return h(SentList);
    case 'sent/':
      return h(SentMessageScreen, { id: decodeURIComponent(rest), key: rest });
    case 'keys':
      return h(Keys);
    case 'actions':
      return h(Actions);
    case 'accounts':
      return h(Accounts);
    case 'queue':
      return h(Queue);
    case 'domains':
      return h(Domains);
    case 'domain/':
      return h(Domain, { name: decodeURIComponent(rest), key: rest });
    default:
      return h(Missing);
  }
}

function hostScreen(name: string): ComponentChildren {
  switch (name) {
    case 'log':
      return h(HostLog);
    case 'settings':
      return h(HostSettings);
    case 'actions':
      return h(HostActions);
    default:
      return h(Missing);
  }
}

function NotIncluded(): ComponentChildren {
  return h('div.screen', [
    h('h1', 'No access'),
    h('p', [
      `${capital(person.value?.role ?? '')}s cannot open this page. `,
      h('a', { href: linkTo('/') }, 'Go to Overview'),
    ]),
  ]);
}

function Missing(): ComponentChildren {
  return h('div.screen', [h('h1', 'Page not found'), h('p', [h('a', { href: linkTo('/') }, 'Go to Overview')])]);
}

/** A screen that fails, by a fault of ours, leaves the frame around it. */
class Screen extends Component<{ readonly path: string }, { readonly failed: boolean }> {
  override state = { failed: false };
  static override getDerivedStateFromError(): { readonly failed: boolean } {
    return { failed: true };
  }
  override render(): ComponentChildren {
    if (!this.state.failed) return h(Shown, { path: this.props.path });
    return h('div.screen', { role: 'alert' }, [
      h('h1', 'This page could not be displayed'),
      h('p', [h(Button, { label: 'Reload', onPress: () => window.location.reload() })]),
    ]);
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
      return h('main.enter', [
        h('h1', 'Postern'),
        h('p', { role: 'alert' }, current.text),
        h(Button, { label: 'Try again', onPress: readSession }),
      ]);
    case 'in':
      return h(Frame, [h(Screen, { path: place.value.path, key: place.value.path })]);
  }
}

followLinks();
listenToKeys();
tickClock();
keepLive();
keepFollowing();
effect(() => {
  // Data of one person is not shown to the next.
  if (session.value.state !== 'out') return;
  forgetShown();
  forgetJob();
  forgetSearches();
});
const root = document.getElementById('app');
if (root) render(h(App), root);
await readSession();
// The other screens open without a wait, later.
setTimeout(() => {
  for (const load of loads) load().catch(() => undefined); // tried again when it is opened
}, OTHERS_AFTER_MS);
