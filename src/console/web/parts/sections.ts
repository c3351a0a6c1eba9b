import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import { linkTo, linkToList, location } from '../router.ts';
import { may } from '../session.ts';
import { Icon, type IconName } from './icons.ts';

// The sections of the console: what the rail lists, and which screens belong to each.

export interface Section {
  readonly path: string;
  readonly label: string;
  readonly icon: IconName;
  /** The start of the paths of its details. */
  readonly one?: string;
  /** How the paths of its further screens begin. */
  readonly further?: string;
  /** The operation that it needs. */
  readonly needs?: string;
}

export const SECTIONS: readonly Section[] = [
  { path: '/', label: 'Overview', icon: 'pulse' },
  { path: '/mail', label: 'Inbound', icon: 'inbox', one: '/message/', needs: 'inbound/search' },
  { path: '/refused', label: 'Refused', icon: 'refused', needs: 'inbound/refusals' },
  { path: '/endpoints', label: 'Endpoints', icon: 'endpoint', one: '/endpoint', needs: 'endpoints/list' },
  { path: '/given-up', label: 'Failed', icon: 'given', needs: 'inbound/search' },
  { path: '/sent', label: 'Outbound', icon: 'outbox', one: '/sent/', needs: 'messages/search' },
  { path: '/lists', label: 'Suppressions', icon: 'list', needs: 'rejects/list' },
  { path: '/domains', label: 'Domains', icon: 'domain', one: '/domain/', needs: 'inbound/domains' },
  { path: '/keys', label: 'API keys', icon: 'key', needs: 'keys/list' },
  { path: '/actions', label: 'Activity', icon: 'done', needs: 'actions/list' },
  { path: '/queue', label: 'Queue', icon: 'queue', needs: 'host/queue' },
  { path: '/host', label: 'Host', icon: 'host', further: '/host/', needs: 'host/overview' },
  { path: '/accounts', label: 'Accounts', icon: 'people', needs: 'host/accounts' },
];

/** Whether the screen of a path belongs to a section. */
export function isIn({ path: own, one, further }: Section, path: string): boolean {
  return path === own || [one, further].some((begin) => begin !== undefined && path.startsWith(begin));
}

/** Whether the role may open the screen of a path. */
export function mayOpen(path: string): boolean {
  const needs = SECTIONS.find((section) => isIn(section, path))?.needs;
  return needs === undefined || may(needs);
}

/** A link to a screen; only its text where the role may not open that. */
export function ToScreen({
  path,
  query,
  children,
}: {
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly children?: ComponentChildren;
}) {
  return mayOpen(path) ? h('a', { href: linkTo(path, query) }, [children]) : h('span', [children]);
}

/** The list of which one entry is shown, as it was last seen; undefined on every other screen. */
export function listOfShown(): { readonly label: string; readonly href: string } | undefined {
  const { path } = location.value;
  const section = SECTIONS.find(({ path: own, one }) => one !== undefined && own !== path && path.startsWith(one));
  return section && { label: section.label, href: linkToList(section.path) };
}

/** The link back to the list, above the title. */
export function Back() {
  const list = listOfShown();
  return list && h('p.back', [h('a', { href: list.href }, [h(Icon, { name: 'back' }), list.label])]);
}
