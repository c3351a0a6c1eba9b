import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { listedPrefix, toListed } from '../../mail/suppression.ts';
import { subaccountId } from '../../store/subaccounts.ts';
import type { Call } from '../operation.ts';
import { emailAddress } from './rules.ts';

// Parameters that rejects and whitelists share.

/** An address in the form the lists keep; answers show it so. */
export const listAddress = emailAddress
  .transform(toListed)
  .meta({ description: 'an email address, letters in any case' });

/** A search: an address or the beginning of one. */
export const addressPrefix = optional(z.string().max(1000).transform(listedPrefix)).meta({
  description: 'an address, or the beginning of one, letters in any case; all entries when left out',
});

/** Clients send an empty text for no subaccount. */
export const subaccountParam = optional(z.string().max(255)).meta({
  description: 'id of a subaccount; the list of the whole account when left out',
});

/** The subaccount that a call is about, '' for none; throws when there is no such subaccount. */
export async function findSubaccount(
  slug: string | undefined,
  { store, refuse }: Call<'Unknown_Subaccount'>,
): Promise<string> {
  if (slug === undefined || slug === '') return '';
  if (!(await store.subaccounts.one({ id: subaccountId(store.account, slug) })))
    throw refuse('Unknown_Subaccount', slug);
  return slug;
}
