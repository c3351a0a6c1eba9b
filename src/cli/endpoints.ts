import {
  type EndpointList,
  type EndpointState,
  LIST_ENDPOINT_STATES,
  MAX_DELIVERIES,
} from '../api/hosts/host-deliveries.ts';
import { answered, type OtherHost } from '../api/hosts/host-rpc.ts';
import { shownUrl } from '../api/operations/fields.ts';
import { DELIVERY_KINDS } from '../queue/delivery.ts';
import type { Command } from './command.ts';
import { withDeliveries } from './open.ts';
import { hostOption, LISTS_ALL_HOSTS, listOnHosts, type Of, tableOfHosts, withHost } from './other-hosts.ts';

function endpointTable(rows: readonly Of<EndpointState>[], isSeveral: boolean): string {
  if (rows.length === 0) return 'No waiting deliveries; no endpoint is down or paused.\n';
  const headings = ['account', 'kind', 'waiting', 'breaker', 'since', 'paused until', 'paused by', 'endpoint'];
  return tableOfHosts(rows, isSeveral, headings, (state) => {
    const { url, account, kind, waiting, breaker, since, paused_until: until, paused_by: by } = state;
    return [account, kind, waiting, breaker, since, until, by, shownUrl(url)];
  });
}

export const queueEndpoints: Command = {
  options: {
    account: { value: 'ID', help: 'only this account' },
    kind: {
      value: 'KIND',
      values: DELIVERY_KINDS,
      help: `only this kind: ${DELIVERY_KINDS.join(', ')}`,
    },
    host: hostOption,
  },
  notes:
    'Accounts pause endpoints with /endpoints/pause and resume them with /endpoints/resume. The query of a URL ' +
    `is shown only with --json.\n\n${LISTS_ALL_HOSTS}`,
  async run(call, io) {
    const [account, [kind]] = [call.text('account'), call.known('kind', DELIVERY_KINDS)];
    const { settings } = call.settings();
    const reading = {
      here: () =>
        withDeliveries(settings, async ({ endpoints }) =>
          answered(await endpoints({ account, kind, limit: Infinity })),
        ),
      there: (ask: OtherHost['ask']) => ask(LIST_ENDPOINT_STATES, { account, kind, limit: MAX_DELIVERIES }),
      isCut: ({ more }: EndpointList) => more,
    };
    return listOnHosts(call, io, reading, (parts, isSeveral) => {
      const rows = parts
        .flatMap(({ host, answer }) => answer.rows.map((state): Of<EndpointState> => ({ ...state, host })))
        .toSorted((a, b) => b.waiting - a.waiting);
      call.print(
        rows.map(({ host, ...state }) => withHost(state, host)),
        () => endpointTable(rows, isSeveral),
      );
    });
  },
};
