import { effect, signal } from '@preact/signals';

// The URL is the state: what a screen shows stands in it, so that every view can be linked and opened in a tab.

export interface PageLocation {
  /** Below /console, such as `/` or `/mail`. */
  readonly path: string;
  readonly query: URLSearchParams;
}

const ROOT = '/console';

function here(): PageLocation {
  const { pathname, search } = window.location;
  return { path: pathname.slice(ROOT.length).replace(/\/$/, '') || '/', query: new URLSearchParams(search) };
}

export const location = signal<PageLocation>(here());
/** The parameters with which each path was last shown. */
const shown = new Map<string, URLSearchParams>();
effect(() => void shown.set(location.value.path, location.value.query));

/** Forgets the last searches: lists open without one. */
export function forgetSearches(): void {
  shown.clear();
}

/** The URL of a screen. The account stays in it; empty parameters are left out. */
export function linkTo(path: string, query: Readonly<Record<string, string | undefined>> = {}): string {
  const account = location.value.query.get('account') ?? undefined;
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries({ account, ...query })) if (value) params.set(name, value);
  const text = params.toString();
  return ROOT + (path === '/' ? '/' : path) + (text && `?${text}`);
}

/** The URL of a message that came in, or of one that was sent. */
export const messageLink = (id: string): string => linkTo(`/message/${encodeURIComponent(id)}`);
export const sentLink = (id: string): string => linkTo(`/sent/${encodeURIComponent(id)}`);

/** The URL of a list as it was last shown, unless that was the list of another account. */
export function linkToList(path: string): string {
  const query = shown.get(path);
  const same = query?.get('account') === location.value.query.get('account');
  return linkTo(path, query && same ? Object.fromEntries(query) : {});
}

/** Goes to a URL of this page. `replace` puts it in the place of the current one, as a change of a filter does. */
export function go(url: string, replace = false): void {
  const before = location.value.path;
  if (replace) window.history.replaceState(null, '', url);
  else window.history.pushState(null, '', url);
  location.value = here();
  if (before !== location.value.path) window.scrollTo(0, 0);
}

/** The current location with other parameters. */
export function withQuery(change: Readonly<Record<string, string | undefined>>): string {
  return linkTo(location.value.path, { ...Object.fromEntries(location.value.query), ...change });
}

/** Follows links within the page without loading it again. */
export function followLinks(): void {
  window.addEventListener('popstate', () => {
    location.value = here();
  });
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !plain || event.defaultPrevented || link.target !== '' || link.hasAttribute('download')) return;
    if (link.origin !== window.location.origin || !`${link.pathname}/`.startsWith(`${ROOT}/`) || link.hash) return;
    event.preventDefault();
    go(link.href);
  });
}
