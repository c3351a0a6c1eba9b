import { effect, signal } from '@preact/signals';
import type { Mail, Refusal } from './records.ts';
import { account, may, person, readSession } from './session.ts';

// The live feed of the server. There is one connection for the whole page, and none while nobody
// looks at it.

export type Live =
  | { readonly state: 'on' }
  | { readonly state: 'off' }
  | { readonly state: 'lost'; readonly at: number };

/** Whether the page is connected; if not, when it tries again. */
export const live = signal<Live>({ state: 'off' });

export interface Listener {
  mail?(mail: Mail): void;
  refused?(refusal: Refusal): void;
  /** Something was missed: read the list again. */
  reset(): void;
}

const listeners = new Set<Listener>();

/** Tells a listener until the returned function is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;

/** Connects while somebody is signed in and the page is visible. */
export function keepLive(): void {
  const visible = signal(document.visibilityState === 'visible');
  document.addEventListener('visibilitychange', () => {
    visible.value = document.visibilityState === 'visible';
  });
  effect(() => {
    const id = account.value?.id;
    // Roles that see only numbers get no events of single mails.
    if (!person.value || !may('inbound/search') || !visible.value) return;
    return connect(person.value.account === null ? id : undefined);
  });
}

function connect(accountId: string | undefined): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let wait = FIRST_WAIT;
  const about = accountId === undefined ? '' : `&account=${encodeURIComponent(accountId)}`;

  const tellAll = (tell: (listener: Listener) => void) => {
    for (const listener of listeners) tell(listener);
  };
  const open = () => {
    source = new EventSource(`/console/live?topics=mail,refused${about}`);
    source.onopen = () => {
      live.value = { state: 'on' };
      wait = FIRST_WAIT;
      // Lists that were read before may lack what happened since.
      tellAll((one) => one.reset());
    };
    source.onerror = () => {
      source?.close();
      live.value = { state: 'lost', at: Date.now() + wait };
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    };
    on('mail', ({ mail }) => tellAll((one) => one.mail?.(mail)));
    on('refused', ({ refusal }) => tellAll((one) => one.refused?.(refusal)));
    on('more', () => tellAll((one) => one.reset()));
    on('reset', () => tellAll((one) => one.reset()));
    on('end', () => void readSession());
  };
  const on = (name: string, use: (data: { mail: Mail; refusal: Refusal }) => void) =>
    source?.addEventListener(name, (event) => use(JSON.parse((event as MessageEvent<string>).data || '{}')));

  open();
  return () => {
    source?.close();
    clearTimeout(timer);
    live.value = { state: 'off' };
  };
}
