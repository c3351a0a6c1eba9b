import { call } from '../call.ts';
import { h } from '../h.ts';
import { type Loaded, useCall } from '../load.ts';
import { Dialog, DialogButton, Loading, type Mark, Notice, State, Title } from '../parts/elements.ts';
import { Form } from '../parts/form.ts';
import { count, plain } from '../parts/text.ts';
import type { InboundDomain, InboundRoute } from '../records.ts';
import { go, linkTo, location } from '../router.ts';
import { may } from '../session.ts';
import { Tester } from './route-tester.ts';

/** Rows on one screen; the others are found by searching. */
const MAX_ROWS = 500;

/** The inbound domains of the account. */
export function useDomains(): Loaded<readonly InboundDomain[]> {
  return useCall('inbound/domains', {});
}

/** The routes of a domain; none are read without one. */
export function useRoutes(domain: string | undefined): Loaded<readonly InboundRoute[]> {
  return useCall('inbound/routes', domain === undefined ? undefined : { domain });
}

export function domainLink(domain: string): string {
  return linkTo(`/domain/${encodeURIComponent(domain)}`);
}

/** Domains that mail comes in for; the tester of routes is beside them. */
export function Domains() {
  const loaded = useDomains();
  const { data } = loaded;
  const query = (location.value.query.get('q') ?? '').trim().toLowerCase();
  const found = data?.filter(({ domain }) => domain.toLowerCase().includes(query));
  return h('div.screen.beside', [
    h('div.pane', [
      h(Title, { text: 'Domains' }, [
        may('inbound/add-domain') &&
          h(DialogButton, {
            label: 'Add a domain\u2026',
            kind: 'main',
            dialog: (onClose) => h(AddDomain, { onClose }),
          }),
      ]),
      h(Loading, { of: loaded, rows: 4 }),
      found &&
        (found.length === 0
          ? h(Empty, { query })
          : h('ul.rows.domains', [
              found.slice(0, MAX_ROWS).map((domain) => h(DomainRow, { key: domain.domain, domain })),
            ])),
      found !== undefined &&
        found.length > MAX_ROWS &&
        h('p.faint', [`${count(found.length - MAX_ROWS, 'more domain')}. Search by name to find them.`]),
    ]),
    may('inbound/test-route') && h(Tester, { stamp: '' }),
  ]);
}

function DomainRow({ domain }: { readonly domain: InboundDomain }) {
  return h('li', { 'data-row': domain.domain }, [
    h('a', { href: domainLink(domain.domain) }, [
      h(DomainStateMark, { domain }),
      h('span.name', [h('bdi', plain(domain.domain))]),
      h('span.sentence', domainSentence(domain)),
    ]),
  ]);
}

function stateOf({ routed, valid_mx: isValid, tested_at: testedAt }: InboundDomain): Mark {
  if (!routed) return { icon: 'clock', word: 'Unverified', tone: 'wait' };
  if (isValid) return { icon: 'check', word: 'Ready', tone: 'good' };
  if (testedAt === null) return { icon: 'question', word: 'Not checked', tone: 'off' };
  return { icon: 'alert', word: 'Wrong MX', tone: 'bad' };
}

export function DomainStateMark({ domain }: { readonly domain: InboundDomain }) {
  return h(State, stateOf(domain));
}

/** How a domain is, in a sentence. */
export function domainSentence(domain: InboundDomain): string {
  const { routed, valid_mx: isValid, mx_error: error, tested_at: testedAt } = domain;
  if (!routed) return 'Mail is refused until its TXT record is published';
  if (isValid) return 'The MX record points here';
  if (error !== null) return plain(error);
  return testedAt === null ? 'Its MX record has not been checked yet' : 'No MX record found yet';
}

function AddDomain({ onClose }: { onClose(): void }) {
  return h(Dialog, { title: 'Add a domain', onClose }, [
    h(Form, {
      fields: [
        {
          name: 'domain',
          label: 'Domain',
          help: 'For example in.example.com. Then publish its MX record, and add a route.',
        },
      ],
      label: 'Add domain',
      onSubmit: async ({ domain }) => {
        const added = await call('inbound/add-domain', { domain });
        go(domainLink(added.domain));
      },
    }),
  ]);
}

function Empty({ query }: { readonly query: string }) {
  if (query !== '')
    return h(Notice, { title: 'No domains match this search' }, [
      h('p', [h('a', { href: linkTo('/domains') }, 'Show all domains')]),
    ]);
  return h(Notice, { title: 'No domains yet' }, [
    h('p', ['Add a domain whose MX record points here, then a route that says where its mail is posted.']),
  ]);
}
