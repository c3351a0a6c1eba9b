import { computed, effect, signal } from '@preact/signals';
import { ask, chosenAccount, Failed, faultsOf, signedOut } from './call.ts';
import type { Role } from './records.ts';
import { linkTo, place } from './router.ts';

// The visitor of the page.

export interface Account {
  readonly id: string;
  readonly name: string;
}

/** The answer of /console/me. */
export interface Person {
  readonly name: string;
  readonly role: Role;
  readonly account: Account | null;
  readonly accounts: readonly Account[];
  /** False: an operator who came in by a link of the command line. */
  readonly is_person: boolean;
  readonly has_password: boolean;
  /** Whether signing in needs a code. */
  readonly has_factor: boolean;
  /** How many recovery codes are left. */
  readonly recovery_codes: number;
  readonly can_set_password: boolean;
  /** Days for which things are kept. */
  readonly keeps_days: { readonly history: number; readonly refusals: number; readonly given_up: number };
  readonly hostname: string;
  readonly version: string;
  /** Addresses that take mail. */
  readonly smtp: readonly string[];
  /** Whether this person may read the content of mail. */
  readonly reads_content: boolean;
  /** Operations that this person may call. */
  readonly calls: readonly string[];
}

export type Session =
  | { readonly state: 'unknown' }
  | { readonly state: 'out'; readonly ended: boolean }
  | { readonly state: 'failed'; readonly text: string }
  | { readonly state: 'in'; readonly person: Person };

export const session = signal<Session>({ state: 'unknown' });
export const person = computed(() => (session.value.state === 'in' ? session.value.person : undefined));
/** Whose mail is shown. */
export const account = computed((): Account | undefined => {
  const { account: own, accounts = [] } = person.value ?? {};
  const wanted = place.value.query.get('account');
  return own ?? accounts.find(({ id }) => id === wanted) ?? accounts[0];
});

/** The whole URL of a screen of the account that is shown, for somebody else. */
export function shareLink(path: string): string {
  return window.location.origin + linkTo(path, { account: chosenAccount.value });
}

/** Whether this person may do that. */
export function may(operation: string): boolean {
  return person.value?.calls.includes(operation) ?? false;
}

effect(() => {
  // An owner has no choice, and sends none.
  chosenAccount.value = person.value?.account === null ? account.value?.id : undefined;
});
effect(() => {
  if (signedOut.value > 0) session.value = { state: 'out', ended: true };
});

/** Finds out who is signed in. */
export async function readSession(): Promise<void> {
  try {
    session.value = { state: 'in', person: await ask<Person>('GET', '/console/me') };
  } catch (error) {
    const known = error instanceof Failed && error.status === 401;
    session.value = known ? { state: 'out', ended: false } : { state: 'failed', text: String(messageOf(error)) };
  }
}

/** `code`: that of the second factor. */
export async function signIn(name: string, password: string, code?: string): Promise<void> {
  const given = { name, password, ...(code !== undefined && { code }) };
  session.value = { state: 'in', person: await ask<Person>('POST', '/console/session', given) };
}

export async function signOut(): Promise<void> {
  await ask('DELETE', '/console/session', {});
  session.value = { state: 'out', ended: false };
}

/** What to tell people about an error. */
export function messageOf(error: unknown): string {
  const faults = Object.values(faultsOf(error));
  if (faults.length > 0) return faults.join('. ');
  return error instanceof Error ? error.message : 'Something went wrong.';
}
