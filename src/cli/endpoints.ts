import { shownUrl } from '../api/operations/fields.ts';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { DELIVERY_KINDS, type EndpointSummary } from '../queue/delivery.ts';
import { BREAKER_WORDS } from '../queue/insight.ts';
import { readMemory } from '../queue/schedule/breaker.ts';
import { type Command, EXIT, toTable } from './command.ts';
import { withSpool } from './open.ts';

function toShown({ account, url, kind, waiting, memory }: EndpointSummary) {
  const { phase = 'closed', since = 0, probeAt = 0, hold } = readMemory(memory) ?? {};
  const away = phase !== 'closed';
  const held = hold && hold.until > systemClock.now() ? hold : null;
  return {
    url,
    account,
    kind,
    waiting,
    breaker: BREAKER_WORDS[phase],
    since: away ? toTime(since) : null,
    next_probe_at: away && !held ? toTime(probeAt) : null,
    paused: held !== null,
    paused_until: held && toTime(held.until),
    paused_by: held?.by ?? null,
  };
}

function toTime(ms: number): string {
  return toTimestamp(new Date(ms));
}

function endpointTable(rows: readonly ReturnType<typeof toShown>[]): string {
  if (rows.length === 0) return 'No waiting deliveries; no endpoint is down or paused.\n';
  return toTable(
    ['account', 'kind', 'waiting', 'breaker', 'since', 'paused until', 'paused by', 'endpoint'],
    rows.map(({ url, account, kind, waiting, breaker, since, paused_until: until, paused_by: by }) => [
      account,
      kind,
      waiting,
      breaker,
      since,
      until,
      by,
      shownUrl(url),
    ]),
  );
}

export const queueEndpoints: Command = {
  name: 'queue endpoints',
  summary: 'Lists the endpoints with waiting deliveries, and those that are down or paused.',
  options: {
    account: { type: 'string', value: 'ID', help: 'only this account' },
    kind: {
      type: 'string',
      value: 'KIND',
      values: DELIVERY_KINDS,
      help: `only this kind: ${DELIVERY_KINDS.join(', ')}`,
    },
  },
  notes:
    'Accounts pause endpoints with /endpoints/pause and resume them with /endpoints/resume. The query of a URL ' +
    'is shown only with --json.',
  async run(call) {
    const [account, [kind]] = [call.text('account'), call.known('kind', DELIVERY_KINDS)];
    return withSpool(call.settings().settings, async (spool) => {
      const rows = (await spool.endpoints())
        .filter((one) => (account ?? one.account) === one.account && (kind ?? one.kind) === one.kind)
        .toSorted((a, b) => b.waiting - a.waiting)
        .map(toShown);
      call.print(rows, () => endpointTable(rows));
      return EXIT.ok;
    });
  },
};
