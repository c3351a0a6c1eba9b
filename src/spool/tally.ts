import { isForUs } from '../mail/returns/address.ts';
import { isMailUrl } from '../mail/sending.ts';
import type { Loaded } from './file/endpoints.ts';
import type { EndpointRow } from './protocol.ts';

interface Entry {
  readonly account: string;
  readonly url: string;
  memory: string | null;
  waiting: number;
}

/** How much waits for whom, in memory: what backlogs and summaries are answered from. */
export interface Tally {
  replace(loaded: Loaded): void;
  change(endpoints: readonly EndpointRow[], shifts: readonly (readonly [endpoint: number, more: number])[]): void;
  ofAccount(account: string, way?: 'in'): number;
  /** All of them, by where they go. */
  byEndpoint(): Readonly<Record<'webhook' | 'mail' | 'return', number>>;
  /** Endpoints with something waiting or a memory. */
  entries(): readonly (Readonly<Entry> & { readonly key: number })[];
}

/** An empty tally. */
export function createTally(): Tally {
  const endpoints = new Map<number, Entry>();
  const accounts = new Map<string, number>();
  /** Of these, what goes out as mail. */
  const outgoing = new Map<string, number>();
  let byEndpoint = { webhook: 0, mail: 0, return: 0 };
  const shift = (entry: Entry, more: number) => {
    entry.waiting += more;
    byEndpoint[isMailUrl(entry.url) ? 'mail' : isForUs(entry.url) ? 'return' : 'webhook'] += more;
    for (const sums of isMailUrl(entry.url) ? [accounts, outgoing] : [accounts])
      sums.set(entry.account, (sums.get(entry.account) ?? 0) + more);
  };
  return Object.freeze({
    replace(loaded: Loaded) {
      endpoints.clear();
      accounts.clear();
      outgoing.clear();
      byEndpoint = { webhook: 0, mail: 0, return: 0 };
      for (const { key, account, url, memory, waiting } of loaded) {
        const entry = { account, url, memory, waiting: 0 };
        endpoints.set(key, entry);
        shift(entry, waiting);
      }
    },
    change(changed: readonly EndpointRow[], shifts: readonly (readonly [endpoint: number, more: number])[]) {
      for (const { key, account, url, memory } of changed) {
        const known = endpoints.get(key);
        if (known) known.memory = memory;
        else endpoints.set(key, { account, url, memory, waiting: 0 });
      }
      for (const [key, more] of shifts) {
        const entry = endpoints.get(key);
        if (entry) shift(entry, more);
      }
    },
    ofAccount: (account: string, way?: 'in') =>
      (accounts.get(account) ?? 0) - (way === 'in' ? (outgoing.get(account) ?? 0) : 0),
    byEndpoint: () => byEndpoint,
    entries: () =>
      [...endpoints]
        .filter(([, { waiting, memory }]) => waiting > 0 || memory !== null)
        .map(([key, entry]) => ({ key, ...entry })),
  });
}
