import type { z } from 'zod';
import type { ApiClient } from './client.ts';
import * as records from './records.ts';

type Reject = z.output<typeof records.reject>;

/** What one call shows at most. */
const PAGE = 1000;
/** Calls after which the list counts as too long to be read by searching. */
const MOST_CALLS = 3000;
/** What an address can go on with, the frequent ones first. */
const LETTERS = [...'abcdefghijklmnopqrstuvwxyz0123456789._-+@'];

/**
 * All entries of the account and of its subaccounts. A call shows at most 1,000 and has no pages: where a list is longer it is
 * searched by the beginnings of its addresses.
 */
export async function allRejects(api: ApiClient, say: (note: string) => void): Promise<readonly Reject[]> {
  const subaccounts = records
    .readList('subaccounts', records.subaccount, await api.call('/subaccounts/list'))
    .map(({ id }) => id);
  const found: Reject[] = [];
  for (const subaccount of [undefined, ...subaccounts]) found.push(...(await ofOne(api, subaccount, say)));
  return found;
}

async function ofOne(
  api: ApiClient,
  subaccount: string | undefined,
  say: (note: string) => void,
): Promise<readonly Reject[]> {
  const byAddress = new Map<string, Reject>();
  let calls = 0;
  let complete = true;

  async function search(beginning: string): Promise<void> {
    if (calls++ >= MOST_CALLS) {
      complete = false;
      return;
    }
    const page = records.readList(
      'rejects',
      records.reject,
      await api.call('/rejects/list', { email: beginning === '' ? undefined : beginning, subaccount }),
    );
    // The account's own list shows those of subaccounts on some servers; each is asked for by itself.
    for (const one of page)
      if ((one.subaccount ?? undefined) === subaccount) byAddress.set(one.email, { ...one, subaccount });
    if (page.length < PAGE) return;
    for (const letter of LETTERS) await search(beginning + letter);
  }
  await search('');
  if (!complete)
    say(
      `${subaccount === undefined ? 'the list' : `the list of ${subaccount}`} was too long to be read whole (${byAddress.size} found)`,
    );
  return [...byAddress.values()];
}
