import { computed, effect, signal } from '@preact/signals';
import type { Me } from '../me.ts';
import { ask, chosenAccount, Failed, faultsOf, signedOut } from './call.ts';
import { linkTo, location } from './router.ts';

// The visitor of the page.

export type Session =
  | { readonly state: 'unknown' }
  | { readonly state: 'out'; readonly ended: boolean }
  | { readonly state: 'failed'; readonly text: string }
  | { readonly state: 'in'; readonly person: Me };

export const session = signal<Session>({ state: 'unknown' });
export const person = computed(() => (session.value.state === 'in' ? session.value.person : undefined));
/** Whose mail is shown. */
export const account = computed(() => {
  const { account: own, accounts = [] } = person.value ?? {};
  const wanted = location.value.query.get('account');
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
    session.value = { state: 'in', person: await ask<Me>('GET', '/console/me') };
  } catch (error) {
    const known = error instanceof Failed && error.status === 401;
    session.value = known ? { state: 'out', ended: false } : { state: 'failed', text: String(messageOf(error)) };
  }
}

/** `code`: that of the second factor. */
export async function signIn(name: string, password: string, code?: string): Promise<void> {
  const given = { name, password, ...(code !== undefined && { code }) };
  session.value = { state: 'in', person: await ask<Me>('POST', '/console/session', given) };
}

export async function signOut(): Promise<void> {
  await ask('DELETE', '/console/session', {});
  session.value = { state: 'out', ended: false };
}

/** The text of an error, for people. */
export function messageOf(error: unknown): string {
  const faults = Object.values(faultsOf(error));
  if (faults.length > 0) return faults.join('. ');
  return error instanceof Error ? error.message : 'Something went wrong.';
}
