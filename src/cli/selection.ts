import type { DeliveryState, Selection } from '../spool/types.ts';
import { type Invocation, UsageError } from './command.ts';

/** What there is in the queue. */
export const KINDS = ['mail', 'batch', 'outgoing'] as const;

/** Options that say which deliveries are meant; shared with `replay`. */
export const selecting = {
  route: { type: 'string', value: 'ID', help: 'only of this route' },
  kind: {
    type: 'string',
    value: 'KIND',
    values: KINDS,
    help: 'only mail (that came in), batch (of events) or outgoing (mail of an account)',
  },
  webhook: { type: 'string', value: 'ID', help: 'only batches of events of this webhook' },
  url: { type: 'string', value: 'URL', help: 'only to this webhook URL' },
  recipient: { type: 'string', value: 'ADDRESS', help: 'only for this recipient' },
  account: { type: 'string', value: 'ID', help: 'only of this account' },
  from: { type: 'string', value: 'TIME', help: 'accepted at or after, "2026-01-05 12:00:00" in UTC or ISO 8601' },
  to: { type: 'string', value: 'TIME', help: 'accepted before' },
} as const;

function toKind(text: string | undefined): Selection['kind'] {
  const kind = KINDS.find((known) => known === text);
  if (text !== undefined && !kind) throw new UsageError(`--kind must be one of ${KINDS.join(', ')}; not "${text}"`);
  return kind;
}

/** Reads a time of the command line as milliseconds since 1970. */
function toTime(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const iso = text.trim().replace(' ', 'T');
  const time = Date.parse(/T.*(Z|[+-]\d\d:?\d\d)$/.test(iso) ? iso : iso.includes('T') ? `${iso}Z` : iso);
  if (Number.isNaN(time)) throw new UsageError(`--${name} is not a time: ${text}`);
  return time;
}

/** Reads which deliveries are meant: ids as words, the rest as options. */
export function toSelection(call: Invocation, states?: readonly DeliveryState[]): Selection {
  const route = call.text('route');
  return {
    ids: call.words.length > 0 ? call.words : undefined,
    routeIds: route === undefined ? undefined : [route],
    kind: toKind(call.text('kind')),
    webhook: call.text('webhook'),
    url: call.text('url'),
    recipient: call.text('recipient'),
    account: call.text('account'),
    from: toTime('from', call.text('from')),
    to: toTime('to', call.text('to')),
    states,
  };
}

/** Refuses a change that names nothing: everything is meant only when `--all` says so. */
export function requireChoice(call: Invocation, selection: Selection): void {
  const { states: _, ...rest } = selection;
  if (!call.flag('all') && Object.values(rest).every((value) => value === undefined)) {
    throw new UsageError(
      'nothing is selected: give ids, --route, --kind, --webhook, --url, --recipient, --account, --from, --to, or --all',
    );
  }
}
