import { type Clock, toTimestamp } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import { isExpired } from '../mail/suppression.ts';
import type { RejectRow } from '../store/rejects.ts';
import type { WhitelistRow } from '../store/whitelists.ts';
import type { SyncEvent } from './list-rows.ts';

// Sync events: what consumers of the public ancestor's `blacklist` and `whitelist` webhooks read, in the order it wrote them.

interface Making {
  readonly clock: Pick<Clock, 'now'>;
  readonly ids: Pick<Ids, 'message'>;
}

/** An entry of the rejection list as a sync event shows it: the sender is an address there, not a record. */
export function toSyncReject(row: Omit<RejectRow, 'id' | 'account'>, now: Date) {
  return {
    reason: row.reason,
    detail: row.detail,
    last_event_at: toTimestamp(row.lastEventAt),
    email: row.email,
    created_at: toTimestamp(row.createdAt),
    expires_at: row.expiresAt === null ? null : toTimestamp(row.expiresAt),
    expired: isExpired(row, now),
    subaccount: row.subaccount === '' ? null : row.subaccount,
    sender: row.sender,
  };
}

/** A change of the rejection list. `change`: an entry that was there was renewed or replaced. */
export function blacklistEvent(action: 'add' | 'change' | 'remove', row: RejectRow, { clock, ids }: Making): SyncEvent {
  const at = clock.now();
  const body = { type: 'blacklist', action, reject: toSyncReject(row, new Date(at)), ts: Math.floor(at / 1000) };
  return { id: ids.message(), event: 'blacklist', at, body: JSON.stringify(body) };
}

/** A change of the whitelist. */
export function whitelistEvent(action: 'add' | 'remove', row: WhitelistRow, { clock, ids }: Making): SyncEvent {
  const at = clock.now();
  const entry = { email: row.email, detail: row.detail, created_at: toTimestamp(row.createdAt) };
  return {
    id: ids.message(),
    event: 'whitelist',
    at,
    body: JSON.stringify({ type: 'whitelist', action, entry, ts: Math.floor(at / 1000) }),
  };
}
