import type { DatabaseSync } from 'node:sqlite';
import type { EndpointRow } from '../protocol.ts';
import { number, type SqlRow, text, textOrNull } from './rows.ts';

/** Every endpoint with how many deliveries wait for it. */
export type Loaded = readonly (EndpointRow & { readonly waiting: number })[];

/**
 * The endpoints as the writer knows them, and what the open transaction changes about them. Nothing of that counts
 * before `commit`.
 */
export interface Endpoints {
  /** The number of an endpoint; a new one gets its row. */
  keyOf(account: string, url: string): number;
  accountOf(key: number): string | undefined;
  keep(account: string, url: string, memory: string | null): void;
  /** `more` deliveries wait for it, or fewer when negative. */
  shift(key: number, more: number): void;
  /** Takes what changed since the last commit. */
  commit(): { readonly shifts: [number, number][]; readonly endpoints: EndpointRow[] };
  rollback(): void;
  /** Reads everything anew: one query over the index of what waits. */
  load(): Loaded;
}

const LOAD = `
SELECT e.key, e.account, e.url, e.memory, coalesce(c.waiting, 0) AS waiting FROM endpoints e
LEFT JOIN (SELECT endpoint, count(*) AS waiting FROM deliveries INDEXED BY deliveries_due WHERE state = 0 GROUP BY endpoint) c
ON c.endpoint = e.key`;

/** Endpoints over the writer's connection. */
export function createEndpoints(db: DatabaseSync): Endpoints {
  const insert = db.prepare(
    `INSERT INTO endpoints (account, url) VALUES (?, ?) ON CONFLICT DO UPDATE SET url = url RETURNING key, memory`,
  );
  const remember = db.prepare('UPDATE endpoints SET memory = ? WHERE key = ?');
  const everything = db.prepare(LOAD);
  const names = createNames();
  let shifts = new Map<number, number>();
  let fresh = new Map<number, EndpointRow>();

  function keyOf(account: string, url: string): number {
    const known = names.keyOf(account, url);
    if (known !== undefined) return known;
    const row = insert.get(account, url);
    if (!row) throw new Error('an endpoint could not be written');
    const key = number(row, 'key');
    names.add(key, account, url);
    fresh.set(key, { key, account, url, memory: textOrNull(row, 'memory') });
    return key;
  }

  return Object.freeze({
    keyOf,
    accountOf: names.accountOf,
    keep(account: string, url: string, memory: string | null) {
      const key = keyOf(account, url);
      remember.run(memory, key);
      fresh.set(key, { key, account, url, memory });
    },
    shift: (key: number, more: number) => {
      shifts.set(key, (shifts.get(key) ?? 0) + more);
    },
    commit() {
      const changed = { shifts: [...shifts], endpoints: [...fresh.values()] };
      shifts = new Map();
      fresh = new Map();
      return changed;
    },
    rollback() {
      for (const { key, account, url } of fresh.values()) names.remove(key, account, url); // keyOf finds those again that were there before
      shifts = new Map();
      fresh = new Map();
    },
    load() {
      const loaded = everything.all().map(toLoaded);
      names.clear();
      for (const { key, account, url } of loaded) names.add(key, account, url);
      return loaded;
    },
  });
}

function createNames() {
  const keys = new Map<string, number>();
  const accounts = new Map<number, string>();
  const nameOf = (account: string, url: string) => `${account}\0${url}`;
  return {
    keyOf: (account: string, url: string) => keys.get(nameOf(account, url)),
    accountOf: (key: number) => accounts.get(key),
    add(key: number, account: string, url: string) {
      keys.set(nameOf(account, url), key);
      accounts.set(key, account);
    },
    remove(key: number, account: string, url: string) {
      keys.delete(nameOf(account, url));
      accounts.delete(key);
    },
    clear() {
      keys.clear();
      accounts.clear();
    },
  };
}

function toLoaded(row: SqlRow): Loaded[number] {
  return {
    key: number(row, 'key'),
    account: text(row, 'account'),
    url: text(row, 'url'),
    memory: textOrNull(row, 'memory'),
    waiting: number(row, 'waiting'),
  };
}
