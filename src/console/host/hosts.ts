import { z } from 'zod';
import { READ_BACKLOG, readBacklogSummary } from '../../api/hosts/backlog-summary.ts';
import type { OtherHost } from '../../api/hosts/host-rpc.ts';
import { toTime } from '../../api/operations/fields.ts';
import { type HostRow, isSilent } from '../../store/rows/hosts.ts';
import { hostOperation } from './operation.ts';

// The hosts that share the store.

const host = z.object({
  name: z.string(),
  here: z.boolean(),
  /** unanswered: it may be running, but does not answer this host. */
  state: z.enum(['running', 'unanswered', 'silent', 'stopped']),
  version: z.string(),
  started_at: z.string(),
  seen_at: z.string(),
  /** Null if unknown; so are the next two. */
  waiting: z.int().nullable(),
  dead: z.int().nullable(),
  oldest_at: z.string().nullable(),
});

const hosts = hostOperation({
  path: '/host/hosts',
  access: 'host',
  summary: 'Lists the hosts that share the store, this one first, with what waits on each.',
  params: {},
  returns: z.object({ hosts: z.array(host) }),
  async handle(_, { settings, startedAt, metrics, otherHosts, now }) {
    const standing = async ({ row, ask }: OtherHost) => {
      const asked = await ask(READ_BACKLOG, {});
      return { row, standing: asked.kind === 'answered' ? asked.answer : undefined };
    };
    const hosts = await otherHosts();
    const [own, others] = await Promise.all([readBacklogSummary(metrics, now()), Promise.all(hosts.map(standing))]);
    const here = { name: settings.hostname, here: true, state: 'running' as const, version: settings.version };
    return {
      hosts: [
        {
          ...here,
          started_at: toTime(startedAt),
          seen_at: toTime(now()),
          ...own,
          oldest_at: toTime(own.oldest_at),
        },
        ...others
          .toSorted((a, b) => a.row.name.localeCompare(b.row.name))
          .map(({ row, standing }) => ({
            name: row.name,
            here: false,
            state: standing ? ('running' as const) : stateOf(row),
            version: row.version,
            started_at: toTime(row.startedAt.getTime()),
            seen_at: toTime(row.seenAt.getTime()),
            waiting: standing?.waiting ?? null,
            dead: standing?.dead ?? null,
            oldest_at: toTime(standing?.oldest_at ?? null),
          })),
      ],
    };
  },
});

function stateOf(row: HostRow): z.output<typeof host>['state'] {
  if (row.incarnation !== null) return 'unanswered';
  return isSilent(row) ? 'silent' : 'stopped';
}

export const hostsOperations = [hosts];
