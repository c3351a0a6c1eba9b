import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { Button, Loading, Notice, Title } from '../parts/elements.ts';
import { ConfirmButton } from '../parts/form.ts';
import { Back } from '../parts/sections.ts';
import { count, plain } from '../parts/text.ts';
import type { InboundDomain } from '../records.ts';
import { go, linkTo } from '../router.ts';
import { may } from '../session.ts';
import { DnsRecords } from './domain-dns.ts';
import { DomainStateMark, domainSentence, useDomains, useRoutes } from './domains.ts';
import { Tester } from './route-tester.ts';
import { Routes } from './routes.ts';

/** One domain: its DNS records, its routes, and beside them the tester. */
export function Domain({ id: name }: { readonly id: string }) {
  const loaded = useDomains();
  const { data, change } = loaded;
  const routes = useRoutes(name);
  const domain = data?.find((one) => one.domain.toLowerCase() === name.toLowerCase());
  const servers = useCall('inbound/domain-servers', domain && { domain: name });
  const checked = (newer: InboundDomain) => {
    change((rows) => rows.map((one) => (one.domain === newer.domain ? newer : one)));
    servers.again();
  };
  return h('div.screen.beside', [
    h('div.pane', [
      h(Back),
      h(Title, { text: plain(name) }),
      h(Loading, { of: loaded, rows: 6 }),
      data &&
        (domain === undefined
          ? h(Notice, { title: 'Domain not found' })
          : [
              h('p.sentence', [h(DomainStateMark, { domain }), ' ', domainSentence(domain), '.']),
              h(Actions, { domain, routes: routes.data?.length ?? 0, checked }),
              h(DnsRecords, { domain, servers }),
              may('inbound/routes') && h(Routes, { domain: name, routes }),
            ]),
    ]),
    domain !== undefined && may('inbound/test-route') && h(Tester, { stamp: JSON.stringify(routes.data ?? '') }),
  ]);
}

function Actions({
  domain: { domain },
  routes,
  checked,
}: {
  readonly domain: InboundDomain;
  readonly routes: number;
  checked(newer: InboundDomain): void;
}) {
  return h('div.buttons', [
    may('inbound/check-domain') &&
      h(Button, {
        label: 'Check now',
        icon: 'replay',
        onPress: async () => checked(await call('inbound/check-domain', { domain })),
      }),
    may('inbound/delete-domain') &&
      h(ConfirmButton, {
        label: 'Remove domain\u2026',
        question: `Remove ${plain(domain)}?`,
        text: [
          `${routes > 0 ? `Its ${count(routes, 'route')} will be removed as well. ` : ''}Mail to it will be refused. ` +
            'Mail already accepted is still posted.',
        ],
        confirm: 'Remove domain',
        onConfirm: async () => {
          await call('inbound/delete-domain', { domain });
          go(linkTo('/domains'));
        },
      }),
  ]);
}
