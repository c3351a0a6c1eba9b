import { hash } from 'node:crypto';
import { createBoundedCache } from '../base/cache.ts';
import type { MessageEventKind, SentMessageRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';

// What all feedback has in common, whether it is returned mail or a visit to a link: its event, and its account.

/** The id of an event caused from outside: the same message, kind and occasion give the same event. */
export function returnEventId(
  message: string,
  kind: MessageEventKind,
  ...occasion: readonly (string | number)[]
): string {
  const digest = hash('sha256', ['returned', message, kind, ...occasion].join('\0'), 'base64url');
  return `${message.slice(0, 8)}-${digest.slice(0, 24)}`;
}

/** Looks up the account behind a number in a token, if there is one. Numbers are never reassigned: they are cached. */
export type AccountOf = (number: number) => Promise<string | undefined>;

/** Cached accounts that get returned mail. */
const MAX_ACCOUNTS = 50_000;

export function createAccountLookup(store: Pick<Store, 'accounts'>): AccountOf {
  const known = createBoundedCache<string>({ most: MAX_ACCOUNTS });
  return async (number) => {
    const account = known.get(`${number}`) ?? (await store.accounts.one({ number }))?.id;
    if (account !== undefined) known.set(`${number}`, account);
    return account;
  };
}

/** A sent message, and its account. */
export interface FoundMessage {
  readonly account: string;
  readonly row: SentMessageRow;
}

/** Finds the message that a token names; undefined if it or its account was deleted. */
export type MessageLookup = ReturnType<typeof createMessageLookup>;

export function createMessageLookup(store: Pick<Store, 'messages'>, accountOf: AccountOf) {
  return async (named: { readonly account: number; readonly message: string }): Promise<FoundMessage | undefined> => {
    const account = await accountOf(named.account);
    const row = account === undefined ? undefined : await store.messages.one({ id: named.message, account });
    return account === undefined || row === undefined ? undefined : { account, row };
  };
}
