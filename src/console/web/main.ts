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
import { followLinks, forgetSearches, linkTo, location } from './router.ts';
import { Enter } from './screens/enter.ts';
import { person, readSession, session } from './session.ts';

/** When the other screens are loaded, after the session is known. */
const OTHERS_AFTER_MS = 2000;
/** Loads the modules of all screens. */
const loads: (() => Promise<unknown>)[] = [];

/** What a screen is given: the rest of its path, the id or name of the one that it shows. */
interface Shows {
  readonly id: string;
}

/** A screen whose modules are loaded when it is opened: the first screen does not wait for those of all others. */
function later(load: () => Promise<(props: Shows) => ComponentChildren>): FunctionComponent<Shows> {
  let loaded: FunctionComponent<Shows> | undefined;
  const loading = async () => {
    loaded ??= await load();
  };
  loads.push(loading);
  return function Later(props) {
    const [failed, setFailed] = useState(false);
    const [, setLoaded] = useState(loaded !== undefined);
    useEffect(() => {
      // Also if they were loaded since it was drawn, by the timer below: else it would not be drawn again.
      loading().then(
        () => setLoaded(true),
        () => setFailed(true),
      );
    }, []);
    if (failed) throw new Error('the modules of the screen could not be loaded'); // `Screen` says so
    return loaded ? h(loaded, props) : h('div.screen', [h(Bars, { rows: 8 })]);
  };
}

/** By the first part of their path; with a slash those that show one, by what follows it. */
const SCREENS: ReadonlyMap<string, FunctionComponent<Shows>> = new Map([
  ['', later(async () => (await import('./screens/now.ts')).Now)],
  ['mail', later(async () => (await import('./screens/mail.ts')).MailList)],
  ['message/', later(async () => (await import('./screens/message.ts')).Message)],
  ['refused', later(async () => (await import('./screens/refused.ts')).Refused)],
  ['endpoints', later(async () => (await import('./screens/endpoints.ts')).Endpoints)],
  ['endpoint', later(async () => (await import('./screens/endpoint.ts')).Endpoint)],
  ['given-up', later(async () => (await import('./screens/given-up.ts')).GivenUp)],
  ['host', later(async () => (await import('./screens/host.ts')).Host)],
  ['host/log', later(async () => (await import('./screens/host-log.ts')).HostLog)],
  ['host/settings', later(async () => (await import('./screens/host-settings.ts')).HostSettings)],
  ['host/actions', later(async () => (await import('./screens/actions.ts')).HostActions)],
  ['lists', later(async () => (await import('./screens/lists.ts')).Lists)],
  ['sent', later(async () => (await import('./screens/sent.ts')).SentList)],
  ['sent/', later(async () => (await import('./screens/sent-message.ts')).SentMessageScreen)],
  ['keys', later(async () => (await import('./screens/keys.ts')).Keys)],
  ['actions', later(async () => (await import('./screens/actions.ts')).Actions)],
  ['accounts', later(async () => (await import('./screens/accounts.ts')).Accounts)],
  ['queue', later(async () => (await import('./screens/queue.ts')).Queue)],
  ['domains', later(async () => (await import('./screens/domains.ts')).Domains)],
  ['domain/', later(async () => (await import('./screens/domain.ts')).Domain)],
]);

/** The screen of a path. */
function Shown({ path }: { readonly path: string }) {
  const [, first = '', rest = ''] = /^\/([a-z-]*)(?:\/(.*))?$/s.exec(path) ?? [];
  if (!mayOpen(path)) return h(NotIncluded);
  const found = SCREENS.get(path.slice(1)) ?? (rest === '' ? undefined : SCREENS.get(`${first}/`));
  return h(found ?? Missing, { id: found ? decodeURIComponent(rest) : '', key: rest });
}

function NotIncluded() {
  return h('div.screen', [
    h('h1', 'No access'),
    h('p', [
      `${capital(person.value?.role ?? '')}s cannot open this page. `,
      h('a', { href: linkTo('/') }, 'Go to Overview'),
    ]),
  ]);
}

function Missing() {
  return h('div.screen', [h('h1', 'Page not found'), h('p', [h('a', { href: linkTo('/') }, 'Go to Overview')])]);
}

/** A screen that fails, by a fault of ours, leaves the frame around it. */
class Screen extends Component<{ readonly path: string }, { readonly failed: boolean }> {
  override state = { failed: false };
  static override getDerivedStateFromError(): { readonly failed: boolean } {
    return { failed: true };
  }
  override render() {
    if (!this.state.failed) return h(Shown, { path: this.props.path });
    return h('div.screen', { role: 'alert' }, [
      h('h1', 'This page could not be displayed'),
      h('p', [h(Button, { label: 'Reload', onPress: () => window.location.reload() })]),
    ]);
  }
}

function App() {
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
      return h(Frame, [h(Screen, { path: location.value.path, key: location.value.path })]);
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
